#include "graph.hpp"

#include "graph_builder.hpp"

#include <algorithm>
#include <utility>

namespace tenon::npu {

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

// The layer behind which a step's element-wise work goes: the one that makes its operand, when
// nobody else wants that value, or a new one that only fetches it. Reading the step's other
// operands may have added layers behind `layers_before`; they go ahead of the carrier.
Layer& GraphBuilder::carrier(int index, std::size_t operand, Form form, std::size_t layers_before) {
  const Step& step = steps_[static_cast<std::size_t>(index)];
  if (can_follow(index, operand)) {
    const auto maker = graph_.layers.begin() + static_cast<std::ptrdiff_t>(layers_before) - 1;
    std::rotate(maker, maker + 1, graph_.layers.end());
    graph_.layers.back().values.push_back(step.value);
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

// After posts were put behind the last layer.
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
  }
  return std::move(graph_);
}

Graph build_graph(const Lowered& program, std::span<const Step> steps,
                  const GraphOptions& options) {
  Graph graph = GraphBuilder(program, steps, options).build();
  assign_normratios(graph, options.calibration);
  return graph;
}

}  // namespace tenon::npu
