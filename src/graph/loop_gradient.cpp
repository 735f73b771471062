#include "graph/loop_gradient.hpp"

#include "graph/zeros.hpp"

#include <tenon/control.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/repeat.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace tenon {
namespace {

using Flags = std::vector<bool>;

/// The inputs of a repeated function.
struct LoopInputs {
  std::vector<const Node*> carried, captured;
  explicit LoopInputs(const GraphFunction& function) {
    for (const Node* node = function.first; node != nullptr; node = node->next) {
      if (node->kind != Node::Kind::input || node == function.index) continue;
      (node->captured != nullptr ? captured : carried).push_back(node);
    }
  }
};

Shape index_shape() { return Shape(std::span<const Axis>(), i64); }

Tensor index_constant(const Tensor& beside, std::int64_t value, const std::source_location& where) {
  const Full op{.value = static_cast<double>(value), .dims = {}, .dtype = i64};
  return record_beside(beside, op_def<Full>(), &op, where);
}

bool is_number(const Node* node) {
  return node->kind == Node::Kind::op && node->op == &op_def<Full>() && node->shape.rank() == 0;
}

/// Whether a value is another number in each iteration: the index, or it plus or minus a number.
bool numbers_iterations(const GraphFunction& loop, const Node* node) {
  if (node == loop.index) return true;
  if (node->kind != Node::Kind::op || node->inputs.size() != 2) return false;
  if (node->op != &op_def<Add>() && node->op != &op_def<Sub>()) return false;
  const Node* const a = node->inputs[0];
  const Node* const b = node->inputs[1];
  return (a == loop.index && is_number(b)) || (b == loop.index && is_number(a));
}

/// How often the function uses each of its nodes.
std::unordered_map<const Node*, int> count_uses(const GraphFunction& function) {
  std::unordered_map<const Node*, int> uses;
  for (const Node* node = function.first; node != nullptr; node = node->next) {
    for (const Node* input : node->inputs) ++uses[input];
  }
  for (const Node* result : function.results) ++uses[result];
  return uses;
}

/// The nodes that these are made from, and themselves.
NodeSet needed_for(const GraphFunction& function, std::span<const Node* const> results) {
  std::vector<const Node*> nodes;
  for (const Node* node = function.first; node != nullptr; node = node->next) nodes.push_back(node);
  NodeSet needed(results.begin(), results.end());
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (needed.contains(*node)) needed.insert((*node)->inputs.begin(), (*node)->inputs.end());
  }
  return needed;
}

void add_constants(const GraphFunction& function, const ConstantNames& wanted,
                   std::map<std::string_view, const Node*>& found) {
  for (const Node* node = function.first; node != nullptr; node = node->next) {
    if (node->kind == Node::Kind::repeat) add_constants(*node->callee, wanted, found);
    if (node->kind == Node::Kind::constant && wanted.contains(node->name)) {
      found.emplace(node->name, node);
    }
  }
}

/// Which of a loop's values gradients flow through.
struct Flow {
  /// For each carried value the update of a stack that it is, if the loop only writes a slice of it
  /// in each iteration, into a value that no parameter is behind: what `scan` returns. Its gradient
  /// is not carried: iterations read their slices of it.
  std::vector<const Node*> written;
  Flags read;                ///< of those, the ones that have a gradient
  Flags carried;             ///< values whose gradients are carried from iteration to iteration
  Flags initial;             ///< of those, the ones by whose first value there is a gradient
  bool may_not_run = false;  ///< what is carried in may be what comes out
  Flags captured;            ///< outer values that get a gradient
  std::map<std::string_view, const Node*> constants;
  std::vector<const Node*> outputs;  ///< what the function returns that has a gradient
  std::vector<const Node*> starts;   ///< what gets one, apart from constants

  Flow(const LoopCall& call, const LoopInputs& inputs, const ConstantNames& wanted);

 private:
  void find_written(const LoopCall& call, const LoopInputs& inputs);
  void find_carried(const LoopCall& call, const LoopInputs& inputs, const ConstantNames& wanted);
};

Flow::Flow(const LoopCall& call, const LoopInputs& inputs, const ConstantNames& wanted) {
  find_written(call, inputs);
  find_carried(call, inputs, wanted);
}

void Flow::find_written(const LoopCall& call, const LoopInputs& inputs) {
  const GraphFunction& loop = *call.repeat.callee;
  written.resize(inputs.carried.size());
  std::unordered_map<const Node*, int> uses = count_uses(loop);
  for (std::size_t k = 0; k < written.size(); ++k) {
    const Node* const update = loop.results[k];
    if (!call.depends[k] && update->kind == Node::Kind::op &&
        update->op == &op_def<UpdateSlice>() && update->inputs[0] == inputs.carried[k] &&
        uses[update] == 1 && uses[inputs.carried[k]] == 1 &&
        numbers_iterations(loop, update->inputs[1])) {
      written[k] = update;
    }
  }
}

void Flow::find_carried(const LoopCall& call, const LoopInputs& inputs,
                        const ConstantNames& wanted) {
  const GraphFunction& loop = *call.repeat.callee;
  const std::size_t count = inputs.carried.size();
  const Flags depends = carried_dependents(call.repeat, call.depends, wanted);
  const auto may_have = [&](std::size_t k) {
    const DType dtype = inputs.carried[k]->shape.dtype();
    return depends[k] && (is_floating(dtype) || is_complex(dtype));
  };
  Flags reached(count);
  for (std::size_t k = 0; k < count; ++k) reached[k] = !call.upstream[k].is_empty() && may_have(k);
  NodeSet needed;
  for (bool grows = true; grows;) {
    grows = false;
    outputs.clear();
    for (std::size_t k = 0; k < count; ++k) {
      if (!reached[k]) continue;
      outputs.push_back(written[k] != nullptr ? written[k]->inputs[2] : loop.results[k]);
    }
    needed = needed_for(loop, outputs);
    for (std::size_t k = 0; k < count; ++k) {
      if (reached[k] || !may_have(k) || !needed.contains(inputs.carried[k])) continue;
      reached[k] = grows = true;
    }
  }
  may_not_run = call.repeat.count == 0 || call.repeat.condition >= 0;
  for (std::size_t k = 0; k < count; ++k) {
    carried.push_back(reached[k] && written[k] == nullptr);
    initial.push_back(carried[k] && call.depends[k] &&
                      (may_not_run || needed.contains(inputs.carried[k])));
    read.push_back(reached[k] && written[k] != nullptr);
  }
  for (std::size_t e = 0; e < inputs.captured.size(); ++e) {
    captured.push_back(call.depends[count + e] && needed.contains(inputs.captured[e]));
  }
  add_constants(loop, wanted, constants);
  for (std::size_t k = 0; k < count; ++k) {
    if (carried[k]) starts.push_back(inputs.carried[k]);
  }
  for (std::size_t e = 0; e < captured.size(); ++e) {
    if (captured[e]) starts.push_back(inputs.captured[e]);
  }
}

/// A value of every iteration, and the item of the forward loop that has them. The item is in no
/// function before the forward loop is made.
struct Stack {
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
                  const Node* before, const Tensor& number, Tensor slot)
      : graph_(graph),
        call_(call),
        function_(*call.repeat.callee),
        forward_(forward),
        before_(before),
        slot_(std::move(slot)) {
    for (std::size_t e = 0; e < inputs.captured.size(); ++e) {
      captured_.emplace(inputs.captured[e], call.operands[inputs.carried.size() + e]);
    }
    known_[function_.index] = &GraphAccess::node(number);
    std::size_t position = 0;
    for (const Node* node = function_.first; node != nullptr; node = node->next) {
      positions_[node] = position++;
    }
  }

  bool is_outer(const Node* node) const override {
    return captured_.contains(node) || node->kind == Node::Kind::constant;
  }

  const Node* of(const Node* node) override {
    std::vector<const Node*> wanted{node}, missing;
    NodeSet seen;
    while (!wanted.empty()) {
      const Node* const next = wanted.back();
      wanted.pop_back();
      if (known_.contains(next) || !seen.insert(next).second) continue;
      missing.push_back(next);
      if (is_computed(*next)) wanted.insert(wanted.end(), next->inputs.begin(), next->inputs.end());
    }
    std::ranges::sort(missing, {}, [&](const Node* one) { return positions_.at(one); });
    for (const Node* one : missing) known_[one] = make(*one);
    return known_.at(node);
  }

  const std::vector<Stack>& stacks() const { return stacks_; }

 private:
  /// Whether an op is computed again: those that cost little, those of a checkpointed region, and
  /// those whose results cannot be stacked.
  bool is_computed(const Node& node) const {
    if (node.kind != Node::Kind::op && node.kind != Node::Kind::repeat &&
        node.kind != Node::Kind::item) {
      return false;
    }
    if (node.kind == Node::Kind::repeat || !can_stack(node.shape)) return true;
    if (node.kind == Node::Kind::item) return false;
    const OpTraits& traits = node.op->traits;
    if (traits.updates_input >= 0) return false;
    return node.region != 0 || traits.pointwise || traits.view || node.inputs.empty() ||
           (traits.selects && is_outer(node.inputs[0]));
  }

  bool can_stack(const Shape& shape) const {
    return shape.rank() < max_rank && !is_block(shape.dtype()) && !is_object(shape.dtype()) &&
           detail::has_known_sizes(*before_->function, before_, shape);
  }

  const Node* make(const Node& node) {
    const Attribution attribution(graph_, node.where);
    if (node.kind == Node::Kind::constant) {
      return graph_.constant(node.name, node.shape, node.where);
    }
    if (const auto outer = captured_.find(&node); outer != captured_.end()) {
      return graph_.import(outer->second, "grad");
    }
    if (!is_computed(node)) return stacked(node);
    Node copy = node;
    std::vector<Node*> inputs;
    for (const Node* input : node.inputs) inputs.push_back(const_cast<Node*>(known_.at(input)));
    copy.inputs = graph_.arena.copy(std::span<Node* const>(inputs));
    copy.region = 0;
    copy.next = nullptr;
    return graph_.append(copy);
  }

  const Node* stacked(const Node& node) {
    if (is_object(node.shape.dtype()) || node.shape.rank() == max_rank) {
      throw Error(Errc::unsupported, fmt::format("{}: grad", to_string(node.where)),
                  fmt::format("the gradient of a loop needs every iteration's {}, which cannot be "
                              "stacked",
                              to_string(node.shape)));
    }
    Node* const item =
        graph_.arena.make(Node{.kind = Node::Kind::item,
                               .shape = node.shape.without_tags().with_axis(0, call_.repeat.count),
                               .inputs = graph_.arena.copy(std::span<Node* const>(&forward_, 1)),
                               .where = call_.repeat.where});
    item->function = before_->function;
    stacks_.push_back({&node, item});
    return &GraphAccess::node(select(graph_.handle(item), slot_, node.where));
  }

  Graph::Impl& graph_;
  const LoopCall& call_;
  const GraphFunction& function_;
  Node* forward_;
  const Node* before_;
  Tensor slot_;
  std::unordered_map<const Node*, Tensor> captured_;
  std::unordered_map<const Node*, std::size_t> positions_;
  std::unordered_map<const Node*, const Node*> known_;
  std::vector<Stack> stacks_;
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
      : graph_(graph), outer_(graph.current), rest_(before->next), last_(graph.current->last) {
    before->next = nullptr;
    outer_->last = before;
  }
  ~RecordingIn() {
    graph_.current = outer_;
    if (rest_ == nullptr) return;
    outer_->last->next = rest_;
    outer_->last = last_;
  }
  RecordingIn(const RecordingIn&) = delete;
  RecordingIn& operator=(const RecordingIn&) = delete;

 private:
  Graph::Impl& graph_;
  GraphFunction* outer_;
  Node* rest_ = nullptr;
  Node* last_ = nullptr;
};

/// The forward loop of `call` that stacks values: its operands and its function.
class ForwardLoop {
 public:
  ForwardLoop(Graph::Impl& graph, const LoopCall& call, const LoopInputs& inputs)
      : graph_(graph), call_(call), inputs_(inputs), loop_(*call.repeat.callee) {}

  /// Records what stacks and the count of iterations begin with in the current function, then makes
  /// `forward` the loop. `counts`: whether it counts its iterations.
  void make(Node& forward, std::span<const Stack> stacks, bool counts) {
    std::vector<Node*> operands;
    const std::size_t carried = inputs_.carried.size();
    const auto node_of = [](const Tensor& tensor) {
      return const_cast<Node*>(&GraphAccess::node(tensor));
    };
    for (std::size_t k = 0; k < carried; ++k) operands.push_back(node_of(call_.operands[k]));
    if (counts) operands.push_back(node_of(index_constant(call_.operands[0], 0, where())));
    for (const Stack& stack : stacks) operands.push_back(node_of(start_of(stack)));
    for (std::size_t e = carried; e < call_.operands.size(); ++e) {
      operands.push_back(node_of(call_.operands[e]));
    }
    GraphFunction* const function = make_function(operands, stacks, counts);
    forward.inputs = graph_.arena.copy(std::span<Node* const>(operands));
    forward.callee = function;
  }

 private:
  const std::source_location& where() const { return call_.repeat.where; }

  /// Zeros of the stack's type.
  Tensor start_of(const Stack& stack) {
    const auto carried = std::ranges::find(inputs_.carried, stack.of);
    const std::int64_t count = call_.repeat.count;
    if (carried != inputs_.carried.end()) {
      const auto k = static_cast<std::size_t>(carried - inputs_.carried.begin());
      return detail::zeros_of_type(call_.operands[k], count, where());
    }
    return detail::zeros_of_shape(call_.operands[0], stack.of->shape, count, where());
  }

  GraphFunction* make_function(std::span<Node* const> operands, std::span<const Stack> stacks,
                               bool counts) {
    GraphFunction* const outer = graph_.current;
    auto* const function = graph_.arena.make(GraphFunction{.name = {}, .parent = outer});
    function->prefix = loop_.prefix;
    function->carry_count =
        static_cast<std::uint32_t>(inputs_.carried.size() + stacks.size() + (counts ? 1 : 0));
    const RecordingIn place(graph_, function);

    std::unordered_map<const Node*, Node*> now;
    std::vector<Tensor> stacked;
    for (const Node* carried : inputs_.carried) now[carried] = copied(*carried, now);
    const auto carry = [&](const Shape& shape) {
      return graph_.handle(graph_.append(
          {.kind = Node::Kind::input, .shape = shape, .name = "carry", .where = where()}));
    };
    Tensor count = counts ? carry(index_shape()) : Tensor();
    for (const Stack& stack : stacks) stacked.push_back(carry(stack.item->shape));
    now[loop_.index] = function->index = copied(*loop_.index, now);

    const Tensor slot = slot_of(graph_.handle(function->index));
    const auto keep = [&](const Node* node) {
      for (std::size_t i = 0; i < stacks.size(); ++i) {
        if (stacks[i].of != node) continue;
        Tensor value = graph_.handle(now.at(node));
        if (node->shape.has_tags()) value = value.with_tags({});
        stacked[i] = update_slice(stacked[i], slot, value, where());
      }
    };
    for (const Node* carried : inputs_.carried) keep(carried);
    std::size_t next_captured = function->carry_count;
    for (const Node* node = loop_.first; node != nullptr; node = node->next) {
      if (now.contains(node)) continue;
      Node* const copy = now[node] = copied(*node, now);
      if (node->captured != nullptr) copy->captured = operands[next_captured++];
      keep(node);
    }
    std::vector<Node*> results;
    for (const Node* result : loop_.results) results.push_back(now.at(result));
    if (counts) {
      count = add(count, index_constant(count, 1, where()), where());
      results.push_back(graph_.import(count, "grad"));
    }
    for (const Tensor& stack : stacked) results.push_back(graph_.import(stack, "grad"));
    function->results = graph_.arena.copy(std::span<Node* const>(results));
    return function;
  }

  /// Where stacks get the values of the iteration with this index: a loop that runs to its end
  /// fills them from behind, so that the backward loop reads them in the order of its own index,
  /// which makes each slice a view.
  Tensor slot_of(const Tensor& index) {
    const Node& repeat = call_.repeat;
    if (repeat.condition < 0) {
      return sub(index_constant(index, repeat.first + repeat.count - 1, where()), index, where());
    }
    if (repeat.first == 0) return index;
    return sub(index, index_constant(index, repeat.first, where()), where());
  }

  Node* copied(const Node& node, const std::unordered_map<const Node*, Node*>& now) {
    Node copy = node;
    std::vector<Node*> inputs;
    for (const Node* input : node.inputs) inputs.push_back(now.at(input));
    copy.inputs = graph_.arena.copy(std::span<Node* const>(inputs));
    copy.next = nullptr;
    return graph_.append(copy);
  }

  Graph::Impl& graph_;
  const LoopCall& call_;
  const LoopInputs& inputs_;
  const GraphFunction& loop_;
};

/// Unlinks captured values that no result needs, which gradients have asked only the sizes of.
void drop_unused_captures(GraphFunction& function, std::span<const Tensor> results) {
  std::vector<const Node*> ends;
  for (const Tensor& result : results) ends.push_back(&GraphAccess::node(result));
  const NodeSet needed = needed_for(function, ends);
  Node** link = &function.first;
  function.last = nullptr;
  for (Node* node = function.first; node != nullptr; node = node->next) {
    if (node->captured != nullptr && !needed.contains(node)) continue;
    *link = node;
    link = &node->next;
    function.last = node;
  }
  *link = nullptr;
}

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
  std::vector<Tensor> starts(Node* iterations);
  std::vector<Tensor> iteration(const RepeatRecorder::Frame& frame, IterationValues& values);
  Tensor with_slices(Tensor sum, bool is_alone, const std::function<bool(const Node*)>& is_wanted,
                     const BackwardPass& pass, IterationValues& values);
  void make_forward(Node* forward, Node* before, Node* iterations, std::span<const Stack> stacks);
  void link(Node* node);

  Graph::Impl& graph_;
  const LoopCall& call_;
  const std::source_location& where_;
  const PlaceOf& place_of_;
  LoopInputs inputs_;
  Flow flow_;
  Flags summed_;  ///< of outer values, then constants: whether iterations add to their sums
  GraphFunction* owner_;
  bool counts_;
};

LoopGradients Differentiator::run() {
  LoopGradients gradients;
  gradients.operands.resize(call_.operands.size());
  if (flow_.starts.empty() && flow_.constants.empty()) return gradients;

  const Node& repeat = call_.repeat;
  const std::source_location& line = repeat.where;
  Node* before = owner_->last;
  auto* forward = const_cast<Node*>(&repeat);  // a node of this graph: ours to change
  if (repeat.function == owner_) {
    before = owner_->first;  // the loop has operands: it is not the first node
    while (before->next != forward) before = before->next;
  } else {
    forward = graph_.arena.make(repeat);
    forward->function = owner_;
    forward->region = 0;
    forward->next = nullptr;
  }
  Node* iterations = nullptr;
  if (counts_) {
    iterations =
        graph_.arena.make(Node{.kind = Node::Kind::item,
                               .shape = index_shape(),
                               .inputs = graph_.arena.copy(std::span<Node* const>(&forward, 1)),
                               .count = static_cast<std::int64_t>(inputs_.carried.size()),
                               .where = line});
    iterations->function = owner_;
  }

  RepeatRecorder recorder(starts(iterations), line);
  const RepeatRecorder::Frame frame = recorder.begin({});
  GraphFunction* const backward = graph_.current;
  const Tensor slot = counts_ ? frame.carry[1] : frame.index;
  Tensor number = slot;
  if (!counts_) {
    number = sub(index_constant(slot, repeat.first + repeat.count - 1, line), slot, line);
  } else if (repeat.first != 0) {
    number = add(slot, index_constant(slot, repeat.first, line), line);
  }
  IterationValues values(graph_, call_, inputs_, forward, before, number, slot);
  const std::vector<Tensor> results = iteration(frame, values);
  drop_unused_captures(*backward, results);
  std::vector<Stack> stacks;
  std::int64_t next_item = static_cast<std::int64_t>(inputs_.carried.size()) + (counts_ ? 1 : 0);
  for (const Node* node = backward->first; node != nullptr; node = node->next) {
    const auto stack = std::ranges::find(values.stacks(), node->captured, &Stack::item);
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
  recorder.end(results, repeat.count, counts_ ? 0 : -1);
  make_forward(forward, before, iterations, stacks);
  const std::vector<Tensor> sums = recorder.finish();

  std::size_t next = counts_ ? 2 : 0;
  const std::size_t carried = inputs_.carried.size();
  for (std::size_t k = 0; k < carried; ++k) {
    if (!flow_.carried[k]) continue;
    if (flow_.initial[k]) gradients.operands[k] = sums[next];
    ++next;
  }
  auto is_summed = summed_.begin();
  for (std::size_t e = 0; e < inputs_.captured.size(); ++e) {
    if (!flow_.captured[e]) continue;
    if (*is_summed++) gradients.operands[carried + e] = sums[next];
    ++next;
  }
  for (const auto& [name, node] : flow_.constants) {
    if (*is_summed++) gradients.constants[name] = sums[next];
    ++next;
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
std::vector<Tensor> Differentiator::iteration(const RepeatRecorder::Frame& frame,
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
  const auto sum = [&](const Tensor& gradient, const std::function<bool(const Node*)>& is_it) {
    const Tensor& before = frame.carry[next++];
    Tensor total = before;
    if (!gradient.is_empty()) total = add(total, in_sizes_of(gradient, total), line);
    results.push_back(with_slices(total, gradient.is_empty(), is_it, pass, values));
    summed_.push_back(&GraphAccess::node(results.back()) != &GraphAccess::node(before));
  };
  for (std::size_t e = 0; e < inputs_.captured.size(); ++e) {
    const Node* const outer = inputs_.captured[e];
    if (flow_.captured[e]) sum(pass.of(outer), [&](const Node* node) { return node == outer; });
  }
  for (const auto& [name, constant] : flow_.constants) {
    sum(pass.of_constant(name),
        [&](const Node* node) { return node->kind == Node::Kind::constant && node->name == name; });
  }
  return results;
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
                                  std::span<const Stack> stacks) {
  const bool is_there = before->next == forward;
  {
    const RecordingIn place(graph_, before);
    ForwardLoop(graph_, call_, inputs_).make(*forward, stacks, counts_);
    if (!is_there) link(forward);
  }
  const RecordingIn place(graph_, forward);
  if (iterations != nullptr) link(iterations);
  for (const Stack& stack : stacks) link(stack.item);
}

}  // namespace

LoopGradients differentiate_loop(Graph::Impl& graph, const LoopCall& call,
                                 const ConstantNames& constants, const std::source_location& where,
                                 const PlaceOf& place_of) {
  return Differentiator(graph, call, constants, where, place_of).run();
}

bool has_scoped_constants(const GraphFunction& function) {
  for (const Node* node = function.first; node != nullptr; node = node->next) {
    if (node->kind == Node::Kind::constant && node->scoped) return true;
    if (node->kind == Node::Kind::repeat && has_scoped_constants(*node->callee)) return true;
  }
  return false;
}

std::vector<bool> carried_dependents(const Node& repeat, std::vector<bool> depends,
                                     const ConstantNames& constants) {
  const GraphFunction& loop = *repeat.callee;
  const LoopInputs inputs(loop);
  const std::size_t count = inputs.carried.size();
  for (bool grows = true; grows;) {
    grows = false;
    NodeSet nodes;
    for (std::size_t i = 0; i < depends.size(); ++i) {
      if (depends[i]) nodes.insert(i < count ? inputs.carried[i] : inputs.captured[i - count]);
    }
    add_dependents(loop, constants, nodes);
    for (std::size_t k = 0; k < count; ++k) {
      if (depends[k] || !nodes.contains(loop.results[k])) continue;
      depends[k] = grows = true;
    }
  }
  depends.resize(count);
  return depends;
}

}  // namespace tenon
