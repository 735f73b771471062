#include "graph_builder.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <utility>

namespace tenon::npu {
namespace {

/// Parts of a concatenation share one step. A part that others read as well is held no more
/// coarsely for it than this.
constexpr double coarser = 2;

}  // namespace

void GraphBuilder::add_concat(const Step& step, int index) {
  const Form form = step.output.shape.rank() == 4 ? Form::image : Form::rows;
  std::vector<MapId> parts;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) parts.push_back(read(index, i, form));
  const MapId whole = result_map(step, form);
  std::int64_t block = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const MapId part = parts[i];
    const int origin = flow_.inputs[static_cast<std::size_t>(index)][i].step;
    if (std::ranges::count(parts, part) == 1 && can_lie_in(part, whole, origin)) {
      // Its layer writes it where it belongs.
      FeatureMap& map = graph_.maps[static_cast<std::size_t>(part)];
      map.whole = whole;
      map.first_block = block;
    } else {
      Layer layer;
      layer.kind = Layer::Kind::move;
      layer.input = layer.made = part;
      layer.first_block = block;
      Post rescale;
      rescale.result = whole;
      layer.posts.push_back(std::move(rescale));
      layer.output = whole;
      finish(index, std::move(layer));
    }
    block += graph_.map(part).dims.blocks();
  }
  graph_.set_step(whole, graph_.map(whole).step);
  made_[static_cast<std::size_t>(index)] = whole;
  last_maker_ = no_step;  // each layer made a part of it only
}

// Whether a part of a concatenation can be made in its place, with the step of the whole.
bool GraphBuilder::can_lie_in(MapId part, MapId whole, int origin) const {
  const FeatureMap& map = graph_.map(part);
  if (!options_.fuse || map.is_constant() || map.whole != no_map) return false;
  const bool rounds = std::ranges::all_of(graph_.layers, [&](const Layer& layer) {
    return layer.output != part || layer.kind == Layer::Kind::quantize || !layer.posts.empty() ||
           !layer.keeps_step();
  });
  if (!rounds) return false;
  const auto o = static_cast<std::size_t>(origin);
  const bool only_here = origin != no_step && flow_.uses[o] == 1 && !flow_.leaves[o];
  return only_here || graph_.map(whole).step <= coarser * map.step;
}

// The blocks of a map that an operand is: channels of another value, from a whole block on, and to
// the end of one or of the value.
GraphBuilder::Run GraphBuilder::sliced(int index, std::size_t operand, Form form) const {
  const auto i = static_cast<std::size_t>(index);
  const int origin = flow_.inputs[i][operand].step;
  if (!options_.fuse || origin == no_step || paddings_[static_cast<std::size_t>(origin)]) return {};
  const Operand& x = steps_[i].inputs[operand];
  const Operand& from = steps_[static_cast<std::size_t>(origin)].output;
  const MapId map = made_[static_cast<std::size_t>(origin)];
  const int rank = from.shape.rank();
  const auto dims = dims_of(from.shape, form);
  if (x.shape.rank() != rank || rank == 0 || !dims || graph_.map(map).dims != *dims) return {};
  if (!same_storage(x.place, from.place) || x.shape.dtype() != from.shape.dtype()) return {};
  HostView view;
  view.shape = from.shape;
  view.strides = from.strides;
  if (!view.is_contiguous()) return {};
  const int channel = form == Form::image ? 1 : rank - 1;
  for (int axis = 0; axis < rank; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    if (axis != channel && x.shape[axis] != from.shape[axis]) return {};
    if (x.shape[axis] > 1 && x.strides[a] != from.strides[a]) return {};
  }
  const std::int64_t stride = from.strides[static_cast<std::size_t>(channel)];
  const std::int64_t offset = x.place.offset - from.place.offset;
  if (stride <= 0 || offset < 0 || offset % stride != 0) return {};
  const std::int64_t first = offset / stride, end = first + x.shape[channel];
  if (first % block_channels != 0 || end > dims->c) return {};
  if (end % block_channels != 0 && end != dims->c) return {};
  return {map, first / block_channels};
}

MapId GraphBuilder::view_of(const Run& run, const Dims& dims) {
  for (std::size_t i = 0; i < graph_.maps.size(); ++i) {
    const FeatureMap& map = graph_.maps[i];
    if (map.whole == run.map && map.first_block == run.first_block && map.dims == dims) {
      return static_cast<MapId>(i);
    }
  }
  const FeatureMap& whole = graph_.map(run.map);
  const MapId view = new_map(whole.name, dims, whole.step);
  graph_.maps.back().whole = run.map;
  graph_.maps.back().first_block = run.first_block;
  return view;
}

}  // namespace tenon::npu
