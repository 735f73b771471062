#include "graph.hpp"

#include "graph_builder.hpp"
#include "tiling.hpp"

#include <algorithm>
#include <utility>

namespace tenon::npu {
namespace {

constexpr std::int64_t table_bytes = 512;  // of the two that a gated activation may need

}  // namespace

std::optional<Dims> dims_of(const Shape& shape, Form form) noexcept {
  if (form == Form::image) {
    if (shape.rank() != 4) return std::nullopt;
    return Dims{shape[0], shape[2], shape[3], shape[1]};
  }
  Dims dims;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) dims.n *= shape[axis];
  if (shape.rank() > 0) dims.c = shape[shape.rank() - 1];
  return dims;
}

std::string_view to_string(Layer::Kind kind) noexcept {
  constexpr std::string_view names[] = {"quantize", "dequantize", "conv",     "depthwise", "linear",
                                        "matmul",   "max_pool",   "sum_pool", "move"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Post::Kind kind) noexcept {
  constexpr std::string_view names[] = {"rescale", "lut", "add", "mul", "max"};
  return names[static_cast<std::size_t>(kind)];
}

Graph::Root Graph::root(MapId id) const {
  Root root{id, 0};
  while (map(root.map).whole != no_map) {
    root.first_block += map(root.map).first_block;
    root.map = map(root.map).whole;
  }
  return root;
}

void Graph::set_step(MapId id, double step) {
  const MapId whole = root(id).map;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    if (root(static_cast<MapId>(i)).map == whole) maps[i].step = step;
  }
}

void GraphBuilder::finish(int index, Layer layer) {
  const Step& step = steps_[static_cast<std::size_t>(index)];
  layer.op = step.kind == Step::Kind::op ? std::string(step.op.def()->name) : "copy";
  layer.line = step.line;
  layer.values.push_back(step.value);
  if (layer.output == no_map) layer.output = layer.made;
  made_[static_cast<std::size_t>(index)] = layer.output;
  graph_.layers.push_back(std::move(layer));
  last_maker_ = index;
}

// The layer that a step's element-wise work is fused into: the one that computes its operand, where
// nothing else reads that value, or a new one that only loads it. Reading the step's other operands
// may have added layers behind `layers_before`; they are moved before the carrier.
Layer& GraphBuilder::carrier(int index, std::size_t operand, Form form, std::size_t layers_before) {
  const Step& step = steps_[static_cast<std::size_t>(index)];
  if (can_follow(index, operand, form) && has_room(graph_.layers[layers_before - 1])) {
    const auto maker = graph_.layers.begin() + static_cast<std::ptrdiff_t>(layers_before) - 1;
    std::rotate(maker, maker + 1, graph_.layers.end());
    graph_.layers.back().values.push_back(step.value);
    graph_.layers.back().step = index;
    return graph_.layers.back();
  }
  Layer layer;
  layer.kind = Layer::Kind::move;
  layer.input = read(index, operand, form);
  layer.made = layer.output = layer.input;
  layer.op = step.op.def()->name;
  layer.line = step.line;
  layer.values.push_back(step.value);
  graph_.layers.push_back(std::move(layer));
  return graph_.layers.back();
}

// Whether one row of the layer and of two more operands fits on chip, with all maps in external
// memory.
bool GraphBuilder::has_room(const Layer& layer) const {
  if (options_.ocm_bytes == 0) return true;
  MapPlace outside;
  outside.where = MapPlace::Where::ftmp;
  const std::vector<MapPlace> places(graph_.maps.size(), outside);
  const auto index = static_cast<std::size_t>(&layer - graph_.layers.data());
  const std::int64_t more = 2 * graph_.map(layer.output).dims.w * line_bytes + table_bytes;
  const LayerShape shape(graph_, places, index);
  return min_work_bytes(shape, /*cut=*/true) + more <= options_.ocm_bytes;
}

// Call after posts have been fused into the last layer.
void GraphBuilder::finish_posts(int index) {
  Layer& layer = graph_.layers.back();
  if (!layer.posts.empty()) layer.output = layer.posts.back().result;
  made_[static_cast<std::size_t>(index)] = layer.output;
  last_maker_ = index;
}

Graph GraphBuilder::build() {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const int index = static_cast<int>(i);
    add_step(index);
    if (flow_.leaves[i]) write_dense(index);
    number_layers(index);
  }
  if (options_.show) show_values();
  return std::move(graph_);
}

// The layers that a step has added are the last ones.
void GraphBuilder::number_layers(int index) {
  for (auto layer = graph_.layers.rbegin(); layer != graph_.layers.rend(); ++layer) {
    if (layer->step != no_step && layer->step != index) return;
    layer->step = index;
  }
}

// The map that holds a step's value after the step; none where the value exists only inside of a
// layer, or its padding is not stored.
MapId GraphBuilder::held(int index) const {
  const auto i = static_cast<std::size_t>(index);
  const MapId map = made_[i];
  const Shape& shape = steps_[i].output.shape;
  if (map == no_map || paddings_[i] || graph_.map(map).is_constant()) return no_map;
  const Dims& dims = graph_.map(map).dims;
  if (dims_of(shape, Form::image) != dims && dims_of(shape, Form::rows) != dims) return no_map;
  const MapId root = graph_.root(map).map;
  const bool stored = std::ranges::any_of(graph_.layers, [&](const Layer& layer) {
    if (layer.kind == Layer::Kind::dequantize || layer.step > index) return false;
    // A concatenation whose parts were computed in place is complete here.
    return layer.output == map || layer.output == root ||
           (map == root && graph_.root(layer.output).map == root);
  });
  return stored ? map : no_map;
}

void GraphBuilder::show_values() {
  std::vector<Layer> layers;
  auto next = graph_.layers.begin();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const int index = static_cast<int>(i);
    graph_.shown.push_back(held(index));
    bool is_written = graph_.shown.back() == no_map;
    for (; next != graph_.layers.end() && next->step == index; ++next) {
      is_written =
          is_written || (next->kind == Layer::Kind::dequantize && next->edge == steps_[i].output);
      layers.push_back(*next);
    }
    if (is_written) continue;
    layers.push_back(dequantized(index));
    layers.back().step = index;
  }
  graph_.layers = std::move(layers);
}

Graph build_graph(const Lowered& program, std::span<const Step> steps,
                  const GraphOptions& options) {
  Graph graph = GraphBuilder(program, steps, options).build();
  assign_normratios(graph, options.calibration);
  return graph;
}

}  // namespace tenon::npu
