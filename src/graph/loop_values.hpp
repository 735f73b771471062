// The forward loop that keeps values for its gradient, and where a backward iteration finds them.
// Private to the core.
#pragma once

#include "graph/loop_flow.hpp"

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tenon {

/// i64[], and a number of it beside a tensor.
Shape index_shape();
Tensor index_constant(const Tensor& beside, std::int64_t value, const std::source_location& where);

/// A value of every iteration, and the item of the forward loop that has them. The item is in no
/// function before the forward loop is made.
struct LoopStack {
  const Node* of;
  Node* item;
};

/// Values of one forward iteration, in the backward loop's function. They are recorded when they
/// are asked for.
class IterationValues : public FunctionValues {
 public:
  /// `number`: the forward loop's index in the iteration; `slot`: where stacks have its values.
  /// `before`: the node behind which `forward`, the forward loop, is or will be.
  IterationValues(Graph::Impl& graph, const LoopCall& call, const LoopInputs& inputs, Node* forward,
                  const Node* before, const Tensor& number, Tensor slot);

  bool is_outer(const Node* node) const override;
  const Node* of(const Node* node) override;
  /// What has been asked for.
  const std::vector<LoopStack>& stacks() const { return stacks_; }

 private:
  bool is_computed(const Node& node) const;
  bool can_stack(const Shape& shape) const;
  const Node* make(const Node& node);
  const Node* stacked(const Node& node);

  Graph::Impl& graph_;
  const LoopCall& call_;
  const GraphFunction& function_;
  Node* forward_;
  const Node* before_;
  Tensor slot_;
  std::unordered_map<const Node*, Tensor> captured_;
  std::unordered_map<const Node*, std::size_t> positions_;
  std::unordered_map<const Node*, const Node*> known_;
  std::vector<LoopStack> stacks_;
};

/// While one exists, nodes are recorded in another function, or in another place of it.
class RecordingIn {
 public:
  /// At the end of `function`.
  RecordingIn(Graph::Impl& graph, GraphFunction* function) : graph_(graph), outer_(graph.current) {
    graph_.current = function;
  }
  /// Behind `before` in the current function.
  RecordingIn(Graph::Impl& graph, Node* before)
      : graph_(graph),
        outer_(graph.current),
        rest_(before->next),
        last_(graph.current->last),
        was_split_(graph.current->is_split) {
    before->next = nullptr;
    outer_->last = before;
    outer_->is_split |= rest_ != nullptr;
  }
  ~RecordingIn() {
    graph_.current = outer_;
    if (rest_ == nullptr) return;
    outer_->last->next = rest_;
    outer_->last = last_;
    outer_->is_split = was_split_;
  }
  RecordingIn(const RecordingIn&) = delete;
  RecordingIn& operator=(const RecordingIn&) = delete;

 private:
  Graph::Impl& graph_;
  GraphFunction* outer_;
  Node* rest_ = nullptr;
  Node* last_ = nullptr;
  bool was_split_ = false;
};

/// The forward loop of `call` that stacks values: its operands and its function.
class ForwardLoop {
 public:
  ForwardLoop(Graph::Impl& graph, const LoopCall& call, const LoopInputs& inputs)
      : graph_(graph), call_(call), inputs_(inputs), loop_(*call.repeat.callee) {}

  /// Records what stacks and the count of iterations begin with in the current function, then makes
  /// `forward` the loop. `counts`: whether it counts its iterations.
  void make(Node& forward, std::span<const LoopStack> stacks, bool counts);

 private:
  const std::source_location& where() const { return call_.repeat.where; }
  Tensor start_of(const LoopStack& stack);
  GraphFunction* make_function(std::span<Node* const> operands, std::span<const LoopStack> stacks,
                               bool counts);
  Tensor slot_of(const Tensor& index);
  Node* copied(const Node& node, const std::unordered_map<const Node*, Node*>& now);

  Graph::Impl& graph_;
  const LoopCall& call_;
  const LoopInputs& inputs_;
  const GraphFunction& loop_;
};

}  // namespace tenon
