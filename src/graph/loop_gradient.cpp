#include "graph/loop_gradient.hpp"

#include "graph/loop_flow.hpp"
#include "graph/loop_values.hpp"
#include "graph/zeros.hpp"

#include <tenon/control.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/repeat.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tenon {
namespace {

/// Unlinks what no result needs, such as captured values that gradients have asked only the sizes of: another gradient
/// copies what is there.
void drop_unused(GraphFunction& function, std::span<const Tensor> results) {
  std::vector<const Node*> ends;
  for (const Tensor& result : results) ends.push_back(&GraphAccess::node(result));
  const NodeSet needed = needed_for(function, ends);
  Node** link = &function.first;
  function.last = nullptr;
  for (Node* node = function.first; node != nullptr; node = node->next) {
    const bool is_parameter = node->kind == Node::Kind::input && node->captured == nullptr;
    if (!is_parameter && !needed.contains(node)) continue;
    *link = node;
    link = &node->next;
    function.last = node;
  }
  *link = nullptr;
}

/// How the iterations' gradients of a value of outside are summed.
struct Sum {
  enum class By : std::uint8_t {
    none,      ///< no iteration has one
    addition,  ///< in what the loop carries
    product,   ///< by one product behind the loop, of the factors that iterations have stacked
  };
  By by = By::none;
  std::size_t left = 0, right = 0;  ///< the stacks, among what the loop carries
};

/// Products of more rows run at full speed each, and their stacks would be large.
constexpr std::int64_t max_stacked_rows = 64;

class Differentiator {
 public:
  Differentiator(Graph::Impl& graph, const LoopCall& call, const ConstantNames& constants,
                 const std::source_location& where, const PlaceOf& place_of)
      : graph_(graph),
        call_(call),
        where_(where),
        place_of_(place_of),
        inputs_(*call.repeat.callee),
        flow_(call, inputs_, constants),
        owner_(graph.current),
        counts_(call.repeat.condition >= 0) {}

  LoopGradients run();

 private:
  std::pair<Node*, Node*> forward_loop();
  Node* count_of(Node* forward);
  Tensor number_of(const Tensor& slot) const;
  std::vector<LoopStack> number_stacks(const GraphFunction& backward,
                                       IterationValues& values) const;
  LoopGradients gradients_of(const std::vector<Tensor>& carried_out) const;
  std::vector<Tensor> starts(Node* iterations);
  std::vector<Tensor> iteration(RepeatRecorder& recorder, const RepeatRecorder::Frame& frame,
                                IterationValues& values);
  bool is_stacked(const Tensor& gradient) const;
  static Tensor product_of(const Tensor& left, const Tensor& right);
  Tensor with_slices(Tensor sum, bool is_alone, const std::function<bool(const Node*)>& is_wanted,
                     const BackwardPass& pass, IterationValues& values);
  void make_forward(Node* forward, Node* before, Node* iterations,
                    std::span<const LoopStack> stacks);
  void link(Node* node);

  Graph::Impl& graph_;
  const LoopCall& call_;
  const std::source_location& where_;
  const PlaceOf& place_of_;
  LoopInputs inputs_;
  LoopFlow flow_;
  std::vector<Sum> sums_;  ///< of outer values, then constants
  GraphFunction* owner_;
  bool counts_;
};

LoopGradients Differentiator::run() {
  if (flow_.starts.empty() && flow_.constants.empty()) {
    LoopGradients none;
    none.operands.resize(call_.operands.size());
    return none;
  }
  const Node& repeat = call_.repeat;
  const auto [forward, before] = forward_loop();
  Node* const iterations = counts_ ? count_of(forward) : nullptr;

  RepeatRecorder recorder(starts(iterations), repeat.where);
  const RepeatRecorder::Frame frame = recorder.begin({});
  GraphFunction* const backward = graph_.current;
  const Tensor slot = counts_ ? frame.carry[1] : frame.index;
  IterationValues values(graph_, call_, inputs_, forward, before, number_of(slot), slot);
  const std::vector<Tensor> results = iteration(recorder, frame, values);
  drop_unused(*backward, results);
  const std::vector<LoopStack> stacks = number_stacks(*backward, values);
  recorder.end(results, repeat.count, counts_ ? 0 : -1);
  make_forward(forward, before, iterations, stacks);
  return gradients_of(recorder.finish());
}

/// The loop in the function that asks for gradients, and the node before it: where another function
/// has it, a copy that is not linked yet.
std::pair<Node*, Node*> Differentiator::forward_loop() {
  const Node& repeat = call_.repeat;
  if (repeat.function == owner_) {
    auto* forward = const_cast<Node*>(&repeat);  // a node of this graph: ours to change
    Node* before = owner_->first;                // the loop has operands: it is not the first node
    while (before->next != forward) before = before->next;
    return {forward, before};
  }
  Node* const copy = graph_.arena.make(repeat);
  copy->function = owner_;
  copy->region = 0;
  copy->next = nullptr;
  return {copy, owner_->last};
}

/// A result of the loop that make_forward() adds: how many iterations ran.
Node* Differentiator::count_of(Node* forward) {
  Node* const iterations =
      graph_.arena.make(Node{.kind = Node::Kind::item,
                             .shape = index_shape(),
                             .inputs = graph_.arena.copy(std::span<Node* const>(&forward, 1)),
                             .count = static_cast<std::int64_t>(inputs_.carried.size()),
                             .where = call_.repeat.where});
  iterations->function = owner_;
  return iterations;
}

/// The index of the iteration that one of the backward loop goes through, whose place in stacks is
/// `slot`: with a condition it counts down; without one, an index counts up from `first`.
Tensor Differentiator::number_of(const Tensor& slot) const {
  const Node& repeat = call_.repeat;
  const std::source_location& line = repeat.where;
  if (!counts_) {
    return sub(index_constant(slot, repeat.first + repeat.count - 1, line), slot, line);
  }
  return repeat.first == 0 ? slot : add(slot, index_constant(slot, repeat.first, line), line);
}

/// Numbers the stacks of the forward loop's values that the backward loop reads as further results of
/// the forward loop, and returns them.
std::vector<LoopStack> Differentiator::number_stacks(const GraphFunction& backward,
                                                     IterationValues& values) const {
  const Node& repeat = call_.repeat;
  std::vector<LoopStack> stacks;
  std::int64_t next_item = static_cast<std::int64_t>(inputs_.carried.size()) + (counts_ ? 1 : 0);
  for (const Node* node = backward.first; node != nullptr; node = node->next) {
    const auto stack = std::ranges::find(values.stacks(), node->captured, &LoopStack::item);
    if (node->captured == nullptr || stack == values.stacks().end()) continue;
    stack->item->count = next_item++;
    stacks.push_back(*stack);
  }
  if (counts_ && repeat.count >= max_iterations && !stacks.empty()) {
    throw Error(
        Errc::unsupported, fmt::format("{}: grad", place_of_(repeat)),
        fmt::format("the gradient of a loop needs room for values of as many iterations as it "
                    "may have, which are {}: give the loop a limit",
                    repeat.count));
  }
  return stacks;
}

/// What the backward loop has carried out, in the order of starts().
LoopGradients Differentiator::gradients_of(const std::vector<Tensor>& carried_out) const {
  LoopGradients gradients;
  gradients.operands.resize(call_.operands.size());
  std::size_t next = counts_ ? 2 : 0;
  const std::size_t carried = inputs_.carried.size();
  for (std::size_t k = 0; k < carried; ++k) {
    if (!flow_.carried[k]) continue;
    if (flow_.initial[k]) gradients.operands[k] = carried_out[next];
    ++next;
  }
  auto sum = sums_.begin();
  const auto total = [&]() -> Tensor {
    const Sum& now = *sum++;
    const Tensor& added = carried_out[next++];
    if (now.by == Sum::By::product) {
      return product_of(carried_out[now.left], carried_out[now.right]);
    }
    return now.by == Sum::By::addition ? added : Tensor();
  };
  for (std::size_t e = 0; e < inputs_.captured.size(); ++e) {
    if (flow_.captured[e]) gradients.operands[carried + e] = total();
  }
  for (const auto& [name, node] : flow_.constants) {
    if (const Tensor gradient = total(); !gradient.is_empty()) gradients.constants[name] = gradient;
  }
  return gradients;
}

/// What the backward loop carries first: with a condition, whether there is an iteration to go
/// back through and its number; gradients of what the last iteration carries out; sums.
std::vector<Tensor> Differentiator::starts(Node* iterations) {
  const std::source_location& line = call_.repeat.where;
  std::vector<Tensor> tensors;
  if (counts_) {
    const Tensor count = graph_.handle(iterations);
    const Tensor last = sub(count, index_constant(count, 1, line), line);
    tensors = {ge(last, index_constant(count, 0, line), line), last};
  }
  const auto zeros = [&](const Tensor& like) {
    return detail::zeros_of_type(like, std::nullopt, line).with_tags({});
  };
  const std::size_t carried = inputs_.carried.size();
  for (std::size_t k = 0; k < carried; ++k) {
    if (!flow_.carried[k]) continue;
    const Tensor& upstream = call_.upstream[k];
    tensors.push_back(upstream.is_empty() ? zeros(call_.operands[k]) : upstream.with_tags({}));
  }
  for (std::size_t e = 0; e < inputs_.captured.size(); ++e) {
    if (flow_.captured[e]) tensors.push_back(zeros(call_.operands[carried + e]));
  }
  for (const auto& [name, node] : flow_.constants) {
    tensors.push_back(zeros(graph_.handle(graph_.constant(name, node->shape, node->where))));
  }
  return tensors;
}

/// Records the backward pass of one iteration, and what it carries to the one before.
std::vector<Tensor> Differentiator::iteration(RepeatRecorder& recorder,
                                              const RepeatRecorder::Frame& frame,
                                              IterationValues& values) {
  const GraphFunction& loop = *call_.repeat.callee;
  const std::source_location& line = call_.repeat.where;
  ConstantNames names;
  for (const auto& [name, node] : flow_.constants) names.insert(name);
  BackwardPass pass(graph_, loop, where_, place_of_, std::move(names), &values);
  pass.find_path(flow_.outputs, flow_.starts);
  const std::size_t first_sum = counts_ ? 2 : 0;
  std::size_t next = first_sum;
  const std::size_t carried = inputs_.carried.size();
  for (std::size_t k = 0; k < carried; ++k) {
    if (flow_.carried[k]) pass.add(loop.results[k], frame.carry[next++]);
    if (!flow_.read[k]) continue;
    const Node& update = *flow_.written[k];
    const Tensor at = graph_.handle(values.of(update.inputs[1]));
    pass.add(update.inputs[2], select(call_.upstream[k], at, line));
  }
  pass.run();

  std::vector<Tensor> results;
  if (counts_) {
    const Tensor& now = frame.carry[1];
    const Tensor before = sub(now, index_constant(now, 1, line), line);
    results = {ge(before, index_constant(now, 0, line), line), before};
  }
  next = first_sum;
  for (std::size_t k = 0; k < carried; ++k) {
    if (!flow_.carried[k]) continue;
    const Tensor& after = frame.carry[next++];
    const Tensor gradient = pass.of(inputs_.carried[k]);
    if (gradient.is_empty() && !flow_.may_not_run) flow_.initial[k] = false;
    results.push_back(gradient.is_empty() ? detail::zeros_of_type(after, std::nullopt, line)
                                          : in_sizes_of(gradient, after));
  }
  std::vector<Tensor> stacks;
  const auto stack = [&](const Tensor& rows) {
    Tensor start;
    {
      const RecordingIn place(graph_, owner_);
      start = detail::zeros_of_shape(call_.operands[0], rows.shape(), call_.repeat.count, line);
    }
    const Tensor carried_rows = recorder.carry(start);
    stacks.push_back(
        update_slice(carried_rows, counts_ ? frame.carry[1] : frame.index, rows, line));
    return frame.carry.size() + stacks.size() - 1;
  };
  const auto sum = [&](const Tensor& gradient, const std::function<bool(const Node*)>& is_it) {
    const Tensor& before = frame.carry[next++];
    const bool has_slices = std::ranges::any_of(
        pass.slices(), [&](const SliceGradient& slice) { return is_it(slice.of); });
    if (!has_slices && is_stacked(gradient)) {
      const Node& product = GraphAccess::node(gradient);
      const std::size_t left = stack(permute(graph_.handle(product.inputs[0]), {1, 0}, line));
      const std::size_t right = stack(graph_.handle(product.inputs[1]));
      sums_.push_back({Sum::By::product, left, right});
      results.push_back(before);
      return;
    }
    Tensor total = before;
    if (!gradient.is_empty()) total = add(total, in_sizes_of(gradient, total), line);
    total = with_slices(total, gradient.is_empty(), is_it, pass, values);
    const bool is_some = &GraphAccess::node(total) != &GraphAccess::node(before);
    sums_.push_back({is_some ? Sum::By::addition : Sum::By::none});
    results.push_back(total);
  };
  for (std::size_t e = 0; e < inputs_.captured.size(); ++e) {
    const Node* const outer = inputs_.captured[e];
    if (flow_.captured[e]) sum(pass.of(outer), [&](const Node* node) { return node == outer; });
  }
  for (const auto& [name, constant] : flow_.constants) {
    sum(pass.of_constant(name),
        [&](const Node* node) { return node->kind == Node::Kind::constant && node->name == name; });
  }
  results.insert(results.end(), stacks.begin(), stacks.end());
  return results;
}

/// Whether an iteration's gradient is a product of matrices whose factors are stacked: the sum of the products is one
/// product of the stacks, as of a layer's weights in every step of a recurrence. It computes few rows of each step at the
/// speed of many, and nothing of the weights' size is added up in every step.
bool Differentiator::is_stacked(const Tensor& gradient) const {
  if (gradient.is_empty() || call_.repeat.count < 2) return false;
  if (counts_ && call_.repeat.count >= max_iterations) return false;
  const Node& node = GraphAccess::node(gradient);
  if (node.kind != Node::Kind::op || node.op != &op_def<Matmul>()) return false;
  const Shape &left = node.inputs[0]->shape, &right = node.inputs[1]->shape;
  return left.rank() == 2 && right.rank() == 2 && left.is_static() && right.is_static() &&
         right[0] <= max_stacked_rows;
}

/// Of stacks [iterations, rows, m] and [iterations, rows, n] the sum of left^T right.
Tensor Differentiator::product_of(const Tensor& left, const Tensor& right) {
  return matmul(permute(merge_axes(left, 0, 1), {1, 0}), merge_axes(right, 0, 1));
}

/// Adds gradients of slices of a value to its sum; `is_alone`: this iteration adds nothing else.
Tensor Differentiator::with_slices(Tensor sum, bool is_alone,
                                   const std::function<bool(const Node*)>& is_wanted,
                                   const BackwardPass& pass, IterationValues& values) {
  const std::source_location& line = call_.repeat.where;
  std::vector<const SliceGradient*> slices;
  for (const SliceGradient& slice : pass.slices()) {
    if (is_wanted(slice.of)) slices.push_back(&slice);
  }
  for (const SliceGradient* slice : slices) {
    const Tensor at = graph_.handle(values.of(slice->index));
    // Nothing has been added to the slice where each iteration reads one of its own.
    const bool is_fresh =
        is_alone && slices.size() == 1 && numbers_iterations(*call_.repeat.callee, slice->index);
    const Tensor gradient =
        is_fresh ? slice->gradient : add(select(sum, at, line), slice->gradient, line);
    sum = update_slice(sum, at, gradient, line);
  }
  return sum;
}

void Differentiator::link(Node* node) {
  node->next = nullptr;
  owner_->last->next = node;
  owner_->last = node;
}

/// Makes the loop that stacks values and puts it, with what it begins with and what it has made,
/// behind `before`.
void Differentiator::make_forward(Node* forward, Node* before, Node* iterations,
                                  std::span<const LoopStack> stacks) {
  const bool is_there = before->next == forward;
  {
    const RecordingIn place(graph_, before);
    ForwardLoop(graph_, call_, inputs_).make(*forward, stacks, counts_);
    if (!is_there) link(forward);
  }
  const RecordingIn place(graph_, forward);
  if (iterations != nullptr) link(iterations);
  for (const LoopStack& stack : stacks) link(stack.item);
}

}  // namespace

LoopGradients differentiate_loop(Graph::Impl& graph, const LoopCall& call,
                                 const ConstantNames& constants, const std::source_location& where,
                                 const PlaceOf& place_of) {
  return Differentiator(graph, call, constants, where, place_of).run();
}

}  // namespace tenon
