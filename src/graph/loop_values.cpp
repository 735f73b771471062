#include "graph/loop_values.hpp"

#include "graph/zeros.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/repeat.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace tenon {

Shape index_shape() { return Shape(std::span<const Axis>(), i64); }

Tensor index_constant(const Tensor& beside, std::int64_t value, const std::source_location& where) {
  const Full op{.value = static_cast<double>(value), .dims = {}, .dtype = i64};
  return record_beside(beside, op_def<Full>(), &op, where);
}

IterationValues::IterationValues(Graph::Impl& graph, const LoopCall& call, const LoopInputs& inputs,
                                 Node* forward, const Node* before, const Tensor& number,
                                 Tensor slot)
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

bool IterationValues::is_outer(const Node* node) const {
  return captured_.contains(node) || node->kind == Node::Kind::constant;
}

const Node* IterationValues::of(const Node* node) {
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

/// Whether an op is computed again: those that cost little, those of a checkpointed region, and
/// those whose results cannot be stacked.
bool IterationValues::is_computed(const Node& node) const {
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

bool IterationValues::can_stack(const Shape& shape) const {
  return shape.rank() < max_rank && !is_block(shape.dtype()) && !is_object(shape.dtype()) &&
         detail::has_known_sizes(*before_->function, before_, shape);
}

const Node* IterationValues::make(const Node& node) {
  const Attribution attribution(graph_, node.where);
  if (node.kind == Node::Kind::constant) {
    return graph_.constant(node.name, node.shape, node.where);
  }
  if (const auto outer = captured_.find(&node); outer != captured_.end()) {
    return graph_.import(outer->second, "grad");
  }
  if (!is_computed(node)) return stacked(node);
  std::vector<Node*> inputs;
  for (const Node* input : node.inputs) inputs.push_back(const_cast<Node*>(known_.at(input)));
  return graph_.append_copy(node, inputs, 0);
}

const Node* IterationValues::stacked(const Node& node) {
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

void ForwardLoop::make(Node& forward, std::span<const LoopStack> stacks, bool counts) {
  std::vector<Node*> operands;
  const std::size_t carried = inputs_.carried.size();
  const auto node_of = [](const Tensor& tensor) {
    return const_cast<Node*>(&GraphAccess::node(tensor));
  };
  for (std::size_t k = 0; k < carried; ++k) operands.push_back(node_of(call_.operands[k]));
  if (counts) operands.push_back(node_of(index_constant(call_.operands[0], 0, where())));
  for (const LoopStack& stack : stacks) operands.push_back(node_of(start_of(stack)));
  for (std::size_t e = carried; e < call_.operands.size(); ++e) {
    operands.push_back(node_of(call_.operands[e]));
  }
  GraphFunction* const function = make_function(operands, stacks, counts);
  forward.inputs = graph_.arena.copy(std::span<Node* const>(operands));
  forward.callee = function;
}

/// Zeros of the stack's type.
Tensor ForwardLoop::start_of(const LoopStack& stack) {
  const auto carried = std::ranges::find(inputs_.carried, stack.of);
  const std::int64_t count = call_.repeat.count;
  if (carried != inputs_.carried.end()) {
    const auto k = static_cast<std::size_t>(carried - inputs_.carried.begin());
    return detail::zeros_of_type(call_.operands[k], count, where());
  }
  return detail::zeros_of_shape(call_.operands[0], stack.of->shape, count, where());
}

GraphFunction* ForwardLoop::make_function(std::span<Node* const> operands,
                                          std::span<const LoopStack> stacks, bool counts) {
  GraphFunction* const function = graph_.make_function(graph_.current);
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
  for (const LoopStack& stack : stacks) stacked.push_back(carry(stack.item->shape));
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
    Node source = *node;
    if (node->captured != nullptr) source.captured = operands[next_captured++];
    now[node] = copied(source, now);
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
Tensor ForwardLoop::slot_of(const Tensor& index) {
  const Node& repeat = call_.repeat;
  if (repeat.condition < 0) {
    return sub(index_constant(index, repeat.first + repeat.count - 1, where()), index, where());
  }
  if (repeat.first == 0) return index;
  return sub(index, index_constant(index, repeat.first, where()), where());
}

Node* ForwardLoop::copied(const Node& node, const std::unordered_map<const Node*, Node*>& now) {
  std::vector<Node*> inputs;
  for (const Node* input : node.inputs) inputs.push_back(now.at(input));
  return graph_.append_copy(node, inputs, node.region);
}

}  // namespace tenon
