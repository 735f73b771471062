#include "graph/loop_flow.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/select.hpp>

#include <algorithm>
#include <unordered_map>

namespace tenon {
namespace {

bool is_number(const Node* node) {
  return node->kind == Node::Kind::op && node->op == &op_def<Full>() && node->shape.rank() == 0;
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

void add_constants(const GraphFunction& function, const ConstantNames& wanted,
                   std::map<std::string_view, const Node*>& found) {
  for (const Node* node = function.first; node != nullptr; node = node->next) {
    if (node->kind == Node::Kind::repeat) add_constants(*node->callee, wanted, found);
    if (node->kind == Node::Kind::constant && wanted.contains(node->name)) {
      found.emplace(node->name, node);
    }
  }
}

}  // namespace

bool numbers_iterations(const GraphFunction& loop, const Node* node) {
  if (node == loop.index) return true;
  if (node->kind != Node::Kind::op || node->inputs.size() != 2) return false;
  if (node->op != &op_def<Add>() && node->op != &op_def<Sub>()) return false;
  const Node* const a = node->inputs[0];
  const Node* const b = node->inputs[1];
  return (a == loop.index && is_number(b)) || (b == loop.index && is_number(a));
}

LoopFlow::LoopFlow(const LoopCall& call, const LoopInputs& inputs, const ConstantNames& wanted) {
  find_written(call, inputs);
  find_carried(call, inputs, wanted);
}

void LoopFlow::find_written(const LoopCall& call, const LoopInputs& inputs) {
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

void LoopFlow::find_carried(const LoopCall& call, const LoopInputs& inputs,
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
