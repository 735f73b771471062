#include "graph_builder.hpp"

#include <tenon/error.hpp>
#include <tenon/npu/quantize.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

/// Whether both hold the same elements in the same order, each densely.
bool same_elements(const Operand& a, const Operand& b) {
  return a.is_contiguous() && b.is_contiguous() && byte_range(a) == byte_range(b);
}

/// Whether a map of these sizes has the channels that a calibration sees of a value.
bool has_channels_of(const Shape& value, const Dims& dims) {
  const Dims seen = *dims_of(value, value.rank() == 4 ? Form::image : Form::rows);
  return dims == seen;
}

}  // namespace

double GraphBuilder::step_of(const std::string& name) const {
  const ValueRange* range = options_.calibration.find(name);
  if (range == nullptr) {
    throw Error(Errc::bad_input, name.empty() ? "npu" : name,
                "the calibration has no range for this value");
  }
  if (!range->tensor.is_finite()) {
    throw Error(Errc::bad_input, name,
                "it had infinities or NaN when it was calibrated, and a layer reads it in int8");
  }
  return int8_step(range->tensor.threshold);
}

MapId GraphBuilder::new_map(std::string name, Dims dims, double step) {
  graph_.maps.push_back({std::move(name), dims, step, std::nullopt});
  return static_cast<MapId>(graph_.maps.size()) - 1;
}

// What a step makes, or its sum before a residual.
MapId GraphBuilder::value_map(const Step& step, std::string name, Dims dims, double step_size) {
  const MapId map = new_map(std::move(name), dims, step_size);
  graph_.maps.back().has_channels_of_value = has_channels_of(step.output.shape, dims);
  return map;
}

MapId GraphBuilder::result_map(const Step& step, Form form) {
  return value_map(step, step.value, *dims_of(step.output.shape, form), step_of(step.value));
}

// The map that holds an operand as it is, when one does.
MapId GraphBuilder::direct(int index, std::size_t operand, const Dims& dims) const {
  const auto i = static_cast<std::size_t>(index);
  const int origin = flow_.inputs[i][operand].step;
  if (origin == no_step) return no_map;
  const MapId map = made_[static_cast<std::size_t>(origin)];
  const bool same =
      same_elements(steps_[i].inputs[operand], steps_[static_cast<std::size_t>(origin)].output);
  return same && graph_.map(map).dims == dims ? map : no_map;
}

// The image map that a row per image holds flattened.
MapId GraphBuilder::flattened(int index, std::size_t operand) const {
  const auto i = static_cast<std::size_t>(index);
  const int origin = flow_.inputs[i][operand].step;
  if (origin == no_step) return no_map;
  const Step& maker = steps_[static_cast<std::size_t>(origin)];
  const Operand& x = steps_[i].inputs[operand];
  const MapId map = made_[static_cast<std::size_t>(origin)];
  const Dims& dims = graph_.map(map).dims;
  const Dims rows = *dims_of(x.shape, Form::rows);
  const bool fits = maker.output.shape.rank() == 4 &&
                    dims_of(maker.output.shape, Form::image) == dims && rows.n == dims.n &&
                    rows.c == dims.c * dims.h * dims.w;
  return fits && same_elements(x, maker.output) ? map : no_map;
}

Form GraphBuilder::form_of(int index, std::size_t operand) const {
  const Operand& x = steps_[static_cast<std::size_t>(index)].inputs[operand];
  for (const Form form : {Form::image, Form::rows}) {
    const auto dims = dims_of(x.shape, form);
    if (!dims) continue;
    if (direct(index, operand, *dims) != no_map || sliced(index, operand, form).map != no_map) {
      return form;
    }
  }
  return x.shape.rank() == 4 ? Form::image : Form::rows;
}

// Whether the step can be fused into the layer that computes its operand: the tiles of that layer
// have to be those of the operand in the step's form, which they are not for a flattened image.
bool GraphBuilder::can_follow(int index, std::size_t operand, Form form) const {
  const auto i = static_cast<std::size_t>(index);
  const int origin = flow_.inputs[i][operand].step;
  if (!options_.fuse || origin == no_step || origin != last_maker_) return false;
  const auto o = static_cast<std::size_t>(origin);
  const auto dims = dims_of(steps_[i].inputs[operand].shape, form);
  return flow_.uses[o] == 1 && !flow_.leaves[o] && !dense_[o] && dims &&
         direct(index, operand, *dims) != no_map;
}

void GraphBuilder::write_dense(int index) {
  const auto i = static_cast<std::size_t>(index);
  if (dense_[i]) return;
  dense_[i] = true;
  graph_.layers.push_back(dequantized(index));
}

Layer GraphBuilder::dequantized(int index) const {
  const auto i = static_cast<std::size_t>(index);
  const Step& step = steps_[i];
  Layer layer;
  layer.kind = Layer::Kind::dequantize;
  layer.input = made_[i];
  layer.edge = step.output;
  layer.op = "dequantize";
  layer.values.push_back(step.value);
  layer.line = step.line;
  return layer;
}

MapId GraphBuilder::read_edge(const Operand& operand, Form form, int origin,
                              const OuterValue& value) {
  for (const Edge& edge : edges_) {
    if (edge.origin == origin && edge.form == form && edge.operand == operand) return edge.map;
  }
  const Dims dims = dims_of(operand.shape, form).value_or(Dims{});
  const MapId map = new_map(value.name, dims, step_of(value.name));
  graph_.maps.back().has_channels_of_value =
      same_elements(operand, value.operand) && has_channels_of(value.operand.shape, dims);
  Layer layer;
  layer.kind = Layer::Kind::quantize;
  layer.made = layer.output = map;
  layer.edge = operand;
  layer.op = "quantize";
  layer.values.push_back(value.name);
  graph_.layers.push_back(std::move(layer));
  edges_.push_back({operand, form, origin, map});
  return map;
}

// An operand as a map of `form`: the one in int8 where there is such, else read from memory.
MapId GraphBuilder::read(int index, std::size_t operand, Form form) {
  const auto i = static_cast<std::size_t>(index);
  const Step& step = steps_[i];
  const Operand& x = step.inputs[operand];
  const auto dims = dims_of(x.shape, form);
  if (!dims) {
    throw Error(Errc::internal, step.value, fmt::format("{} is no image", to_string(x.shape)));
  }
  if (x.place.kind == Place::Kind::constant) return read_constant(x, x.shape, form);
  const MapId found = direct(index, operand, *dims);
  if (found != no_map) return found;
  const Run run = sliced(index, operand, form);
  if (run.map != no_map) return view_of(run, *dims);
  const Origin origin = flow_.inputs[i][operand];
  if (origin.mixed) {
    // Its parts are in memory; the only range known for all of them is that of the reader.
    const MapId map = new_map(step.value, *dims, step_of(step.value));
    Layer layer;
    layer.kind = Layer::Kind::quantize;
    layer.made = layer.output = map;
    layer.edge = x;
    layer.op = "quantize";
    layer.values.push_back(step.value);
    graph_.layers.push_back(std::move(layer));
    return map;
  }
  if (origin.step != no_step) {
    write_dense(origin.step);
    const Step& maker = steps_[static_cast<std::size_t>(origin.step)];
    return read_edge(x, form, origin.step, {maker.value, maker.output});
  }
  return read_edge(x, form, no_step, outer_value(program_, steps_, x));
}

// The second operand of element-wise work, and how it spreads over the result.
MapId GraphBuilder::read_spread(int index, std::size_t operand, Form form, Post::Spread& spread) {
  const Step& step = steps_[static_cast<std::size_t>(index)];
  const Operand& x = step.inputs[operand];
  const Dims out = *dims_of(step.output.shape, form);
  MapId map = no_map;
  if (x.place.kind == Place::Kind::constant) {
    map = read_constant(x, step.output.shape, form);
  } else {
    map = read(index, operand, form);
  }
  const Dims& dims = graph_.map(map).dims;
  if (dims == out) {
    spread = Post::Spread::same;
  } else if (dims.pixels() == 1) {
    spread = Post::Spread::channel;
  } else if (dims.n == out.n && dims.h * dims.w == 1) {
    spread = Post::Spread::image;
  } else {
    throw Error(Errc::internal, step.value,
                fmt::format("{} beside {}", to_string(x.shape), to_string(step.output.shape)));
  }
  return map;
}

// A constant as a map: one pixel where it differs by channel only, else all of it. Broadcast axes
// get a stride of 0.
MapId GraphBuilder::read_constant(const Operand& operand, const Shape& spread_to, Form form) {
  const int lead = spread_to.rank() - operand.shape.rank();
  const int channel = form == Form::image ? 1 : spread_to.rank() - 1;
  Operand spread;
  spread.place = operand.place;
  spread.shape = spread_to;
  bool by_channel = true;
  for (int axis = 0; axis < spread_to.rank(); ++axis) {
    const bool repeats = axis < lead || (operand.shape[axis - lead] == 1 && spread_to[axis] != 1);
    spread.strides[static_cast<std::size_t>(axis)] =
        repeats ? 0 : operand.strides[static_cast<std::size_t>(axis - lead)];
    if (axis != channel && !repeats && spread_to[axis] != 1) by_channel = false;
  }
  if (by_channel) {
    for (int axis = 0; axis < spread_to.rank(); ++axis) {
      if (axis != channel) spread.shape = spread.shape.with_dim(axis, 1);
    }
  }
  const MapId map =
      new_map(program_.constants[operand.place.index].name, *dims_of(spread.shape, form), 0);
  graph_.maps.back().constant = spread;
  return map;
}

}  // namespace tenon::npu
