// The state of build_graph, split by concern: operands and edges in graph_operands.cpp, ops in
// graph_ops.cpp, pools and padding in graph_windows.cpp, slices and concatenations in
// graph_views.cpp, the walk in graph.cpp.
#pragma once

#include "graph.hpp"
#include "value_flow.hpp"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::npu {

class GraphBuilder {
 public:
  GraphBuilder(const Lowered& program, std::span<const Step> steps, const GraphOptions& options)
      : program_(program), steps_(steps), options_(options), flow_(value_flow(program, steps)) {
    made_.assign(steps.size(), no_map);
    dense_.assign(steps.size(), false);
    paddings_.resize(steps.size());
  }

  Graph build();

 private:
  // graph_ops.cpp
  void add_step(int index);
  void add_conv(const Step& step, int index);
  void add_linear(const Step& step, int index);
  void add_matmul(const Step& step, int index);
  void add_pointwise(const Step& step, int index);
  void add_glu(const Step& step, int index);
  void add_copy(const Step& step, int index);
  void fuse_activation(const Step& step, int index, const Activation& activation);

  // graph_windows.cpp
  double picked_step(const Step& step, MapId input) const;
  void add_pool(const Step& step, int index);
  void add_mean(const Step& step, int index, MapId input);
  void add_pad(const Step& step, int index);
  bool readers_pad(int index) const;
  MapId read_padded(int index, Window& window);

  // graph_views.cpp
  void add_concat(const Step& step, int index);
  bool can_lie_in(MapId part, MapId whole, int origin) const;
  struct Run {
    MapId map = no_map;
    std::int64_t first_block = 0;
  };
  Run sliced(int index, std::size_t operand, Form form) const;
  MapId view_of(const Run& run, const Dims& dims);

  // graph_operands.cpp
  MapId read(int index, std::size_t operand, Form form);
  MapId read_spread(int index, std::size_t operand, Form form, Post::Spread& spread);
  MapId read_constant(const Operand& operand, const Shape& spread_to, Form form);
  MapId read_edge(const Operand& operand, Form form, int origin, const OuterValue& value);
  MapId direct(int index, std::size_t operand, const Dims& dims) const;
  MapId flattened(int index, std::size_t operand) const;
  Form form_of(int index, std::size_t operand) const;
  double step_of(const std::string& name) const;
  // By value: sizes may be those of another map, which moves.
  MapId new_map(std::string name, Dims dims, double step);
  MapId value_map(const Step& step, std::string name, Dims dims, double step_size);
  MapId result_map(const Step& step, Form form);
  void write_dense(int index);
  Layer dequantized(int index) const;
  bool can_follow(int index, std::size_t operand, Form form) const;
  bool has_room(const Layer& layer) const;

  // graph.cpp
  void finish(int index, Layer layer);
  void number_layers(int index);
  MapId held(int index) const;
  void show_values();
  Layer& carrier(int index, std::size_t operand, Form form, std::size_t layers_before);
  void finish_posts(int index);

  const Lowered& program_;
  std::span<const Step> steps_;
  const GraphOptions& options_;
  ValueFlow flow_;
  Graph graph_;
  std::vector<MapId> made_;  // per step
  struct Edge {
    Operand operand;
    Form form;
    int origin;  // the step that wrote it, or none
    MapId map;
  };
  std::vector<Edge> edges_;
  /// Zeros around a value that its readers add: it is made_ without them.
  struct Padding {
    std::int64_t top = 0, left = 0;
  };
  std::vector<std::optional<Padding>> paddings_;  // per step
  std::vector<bool> dense_;                       // per step: its value was written to memory
  int last_maker_ = no_step;                      // the step whose value the last layer makes
};

}  // namespace tenon::npu
