#include "graph/backward_pass.hpp"

#include "graph/loop_gradient.hpp"
#include "ops/support.hpp"

#include <tenon/ops/after.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/select.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace tenon {
namespace {

/// The same dtype and rank, and sizes that may be equal.
bool agrees(const Shape& a, const Shape& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.dims(), b.dims(), sizes_agree);
}

/// A tensor's value without axis tags: ops' gradients count axes.
Tensor plain(const Graph::Impl& graph, const Node* node) {
  const Tensor tensor = graph.handle(node);
  return node->shape.has_tags() ? tensor.with_tags({}) : tensor;
}

bool is_differentiable(const Shape& shape) {
  return is_floating(shape.dtype()) || is_complex(shape.dtype());
}

/// What the op's gradient records. Where sizes are not known, an error in it means that it needs
/// one of them.
std::vector<Tensor> gradients_of(const Node& node, const Backward& at, const std::string& place) {
  try {
    return node.op->gradient(node.attributes, at);
  } catch (const Error& error) {
    const bool is_open =
        !at.output.shape().is_static() || std::ranges::any_of(at.inputs, [](const Tensor& input) {
          return !input.shape().is_static();
        });
    const ErrorClass kind = error_class(error.code());
    if (!is_open || kind == ErrorClass::machine || kind == ErrorClass::internal) throw;
    throw Error(Errc::unsupported, place,
                fmt::format("its gradient needs sizes that are not known: {}", error.message()));
  }
}

}  // namespace

NodeSet needed_for(const GraphFunction& function, std::span<const Node* const> results) {
  std::vector<const Node*> nodes;
  for (const Node* node = function.first; node != nullptr; node = node->next) nodes.push_back(node);
  NodeSet needed(results.begin(), results.end());
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (needed.contains(*node)) needed.insert((*node)->inputs.begin(), (*node)->inputs.end());
  }
  return needed;
}

Tensor in_sizes_of(const Tensor& gradient, const Tensor& like) {
  return gradient.shape() == like.shape() ? gradient : broadcast_like(gradient, like);
}

void add_dependents(const GraphFunction& function, const ConstantNames& constants,
                    NodeSet& depends) {
  std::unordered_map<const Node*, std::vector<bool>> carried;
  for (const Node* node = function.first; node != nullptr; node = node->next) {
    switch (node->kind) {
      case Node::Kind::input:
        break;
      case Node::Kind::constant:
        if (!node->scoped && constants.contains(node->name)) depends.insert(node);
        break;
      case Node::Kind::op:
        if (std::ranges::any_of(node->inputs,
                                [&](const Node* input) { return depends.contains(input); })) {
          depends.insert(node);
        }
        break;
      case Node::Kind::repeat: {
        std::vector<bool> operands;
        for (const Node* input : node->inputs) operands.push_back(depends.contains(input));
        std::vector<bool>& flags = carried[node];
        flags = carried_dependents(*node, std::move(operands), constants);
        if (std::ranges::find(flags, true) != flags.end()) depends.insert(node);
        break;
      }
      case Node::Kind::item:
        if (const auto found = carried.find(node->inputs[0]);
            found != carried.end() && found->second[static_cast<std::size_t>(node->count)]) {
          depends.insert(node);
        }
        break;
    }
  }
}

void BackwardPass::find_path(std::span<const Node* const> outputs,
                             std::span<const Node* const> parameters) {
  const NodeSet needed = needed_for(function_, outputs);
  depends_.insert(parameters.begin(), parameters.end());
  add_dependents(function_, constants_, depends_);
  // A parameter may be an op's result, which does not lie behind itself.
  const auto lies_behind = [&](const Node* node) {
    return std::ranges::any_of(node->inputs,
                               [&](const Node* input) { return depends_.contains(input); });
  };
  for (const Node* node = function_.first; node != nullptr; node = node->next) {
    if (node->region != 0 && node->kind == Node::Kind::op) regions_[node->region].push_back(node);
    if (!depends_.contains(node) || !needed.contains(node)) continue;
    if (node->kind == Node::Kind::repeat || lies_behind(node)) path_.push_back(node);
  }
}

void BackwardPass::add(const Node* node, const Tensor& gradient) {
  const bool is_named = node->kind == Node::Kind::constant && !node->scoped;
  add_to(is_named ? constant_gradients_[node->name] : gradients_[node], gradient);
}

void BackwardPass::add_to(Tensor& sum, const Tensor& gradient) const {
  sum = sum.is_empty() ? gradient : tenon::add(sum, gradient, where_);
}

Tensor BackwardPass::of(const Node* node) const {
  if (node->kind == Node::Kind::constant && !node->scoped) return of_constant(node->name);
  const auto known = gradients_.find(node);
  return known == gradients_.end() ? Tensor() : known->second;
}

Tensor BackwardPass::of_constant(std::string_view name) const {
  const auto known = constant_gradients_.find(name);
  return known == constant_gradients_.end() ? Tensor() : known->second;
}

void BackwardPass::run() {
  for (auto it = path_.rbegin(); it != path_.rend(); ++it) {
    const Node& node = **it;
    if (node.kind == Node::Kind::repeat) {
      const auto items = item_gradients_.find(&node);
      if (items != item_gradients_.end()) differentiate_loop(node, std::move(items->second));
      continue;
    }
    const Tensor upstream = of(&node);
    if (upstream.is_empty()) continue;
    if (node.kind == Node::Kind::op) {
      differentiate(node, upstream);
      continue;
    }
    std::vector<Tensor>& items = item_gradients_[node.inputs[0]];
    items.resize(node.inputs[0]->callee->carry_count);
    add_to(items[static_cast<std::size_t>(node.count)], upstream);
  }
}

void BackwardPass::differentiate(const Node& node, const Tensor& upstream) {
  const Attribution attribution(graph_, node.where);
  const std::string place = fmt::format("{}: {}", place_of_(node), node.op->name);
  if (node.op->gradient == nullptr) {
    throw Error(Errc::unsupported, place,
                "the op has no gradient, and the loss depends on a parameter through it; "
                "stop_gradient(x) ends the dependence");
  }
  if (values_ != nullptr && node.op == &op_def<Select>() && values_->is_outer(node.inputs[0])) {
    add_slice(node, upstream);
    return;
  }
  if (node.region != 0 && values_ == nullptr) compute_again(node.region, upstream);
  std::vector<Tensor> inputs;
  for (const Node* input : node.inputs) {
    inputs.push_back(plain(graph_, kept(input, node.region, upstream)));
  }
  const Tensor output = plain(graph_, kept(&node, node.region, upstream));
  const std::vector<Tensor> gradients = gradients_of(node, {inputs, output, upstream}, place);
  if (gradients.size() != inputs.size()) {
    throw Error(Errc::shape_mismatch, place,
                fmt::format("its gradient gave {} tensors for {} operands", gradients.size(),
                            inputs.size()));
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].is_empty() || !depends_.contains(node.inputs[i])) continue;
    const Shape& want = inputs[i].shape();
    const Shape& got = gradients[i].shape();
    if (!agrees(got, want)) {
      throw Error(Errc::shape_mismatch, place,
                  fmt::format("its gradient gave {} for operand {}, which is {}", to_string(got), i,
                              to_string(want)));
    }
    // Sizes that turn out to differ, as an operand's 1 that has been broadcast, are refused then.
    const Tensor gradient = got.has_tags() ? gradients[i].with_tags({}) : gradients[i];
    add(node.inputs[i], in_sizes_of(gradient, inputs[i]));
  }
}

void BackwardPass::differentiate_loop(const Node& repeat, std::vector<Tensor> upstream) {
  const Attribution attribution(graph_, repeat.where);
  LoopCall call{repeat, {}, {}, std::move(upstream)};
  const std::span<Node* const> operands = repeat.inputs;  // the loop may get more
  for (const Node* input : operands) {
    call.operands.push_back(graph_.handle(kept(input, 0, {})));
    call.depends.push_back(depends_.contains(input) && is_differentiable(input->shape));
  }
  const LoopGradients gradients =
      tenon::differentiate_loop(graph_, call, constants_, where_, place_of_);
  for (std::size_t i = 0; i < gradients.operands.size(); ++i) {
    if (!gradients.operands[i].is_empty()) add(operands[i], gradients.operands[i]);
  }
  for (const auto& [name, gradient] : gradients.constants) {
    add_to(constant_gradients_[name], gradient);
  }
}

void BackwardPass::add_slice(const Node& select, const Tensor& gradient) {
  const Node* const of = select.inputs[0];
  if (!depends_.contains(of)) return;
  const auto known = std::ranges::find_if(slices_, [&](const SliceGradient& slice) {
    return slice.of == of && slice.index == select.inputs[1];
  });
  if (known == slices_.end()) {
    slices_.push_back({of, select.inputs[1], gradient});
  } else {
    add_to(known->gradient, gradient);
  }
}

/// Copies the ops of a checkpointed region behind `event`. What nobody uses is not in a program.
void BackwardPass::compute_again(std::uint64_t region, const Tensor& event) {
  const auto found = regions_.find(region);
  if (found == regions_.end()) return;
  const std::vector<const Node*> nodes = std::move(found->second);
  regions_.erase(found);
  for (const Node* node : nodes) {
    const Attribution attribution(graph_, node->where);
    const int updated = node->op->traits.updates_input;
    if (updated >= 0 && !again_.contains(node->inputs[static_cast<std::size_t>(updated)])) {
      throw Error(Errc::unsupported, fmt::format("{}: {}", place_of_(*node), node->op->name),
                  "a gradient through a checkpointed body that updates a value from outside of it");
    }
    std::vector<Node*> inputs;
    for (const Node* input : node->inputs) {
      inputs.push_back(const_cast<Node*>(kept(input, region, event)));
    }
    again_[node] = graph_.append_copy(*node, inputs, 0);
  }
}

/// What stands for a value in the backward pass: in another function, what `values_` knows; of a
/// checkpointed region, its copy; of what comes from outside of one, a value behind `event`.
/// Constants, which are there anyway, stand for themselves.
const Node* BackwardPass::kept(const Node* node, std::uint64_t region, const Tensor& event) {
  if (values_ != nullptr) return values_->of(node);
  if (region == 0 || node->kind == Node::Kind::constant) return node;
  if (const auto copy = again_.find(node); copy != again_.end() && node->region == region) {
    return copy->second;
  }
  const Node*& outer = outer_[{region, node}];
  if (outer == nullptr) {
    outer = &GraphAccess::node(after(graph_.handle(node), event, node->where));
  }
  return outer;
}

}  // namespace tenon
