#include "graph/inline_repeats.hpp"

#include "graph/backward_pass.hpp"
#include "graph/loop_gradient.hpp"

#include <tenon/ops/fill.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/where.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

using Replaced = std::unordered_map<const Node*, Node*>;

/// Turns `item` into a view of all of `source`.
void make_view_of(Graph::Impl& graph, Node& item, Node* source) {
  Permute op;
  std::vector<std::int64_t> order;
  for (int i = 0; i < source->shape.rank(); ++i) order.push_back(i);
  op.order = IntList(order);
  item.kind = Node::Kind::op;
  item.op = &op_def<Permute>();
  item.attributes = graph.arena.make(op);
  item.inputs = graph.arena.copy(std::span<Node* const>(&source, 1));
  item.count = 0;
}

/// Whether gradients pass through the layers of a repeat one after another: each has weights of its
/// own, or they are to be computed again as part of a checkpointed region, or it is a single one (as
/// layers are whose weights are inputs: no two of them are the same loop). One with a condition
/// stays a loop in a region, too: what does not run may not be computed.
bool is_inlined(const Node& repeat, std::uint64_t region) {
  const bool always_runs = repeat.condition < 0;
  return (always_runs && (region != 0 || repeat.count <= 1)) ||
         has_scoped_constants(*repeat.callee);
}

class Inliner {
 public:
  explicit Inliner(Graph::Impl& graph) : graph_(graph) {}

  /// Appends the layers of `repeat`, whose inputs are `inputs`, to the current function. Returns
  /// what is carried out of the last one.
  std::vector<Node*> layers(const Node& repeat, std::vector<Node*> inputs) {
    const GraphFunction& callee = *repeat.callee;
    std::vector<Node*> carry(inputs.begin(), inputs.begin() + callee.carry_count);
    const std::span<Node* const> extras(inputs.data() + callee.carry_count,
                                        inputs.size() - callee.carry_count);
    for (std::int64_t i = 0; i < repeat.count; ++i) {
      std::vector<Node*> next = layer(repeat, repeat.first + i, carry, extras);
      if (repeat.condition >= 0) {
        Node* const goes_on = carry[static_cast<std::size_t>(repeat.condition)];
        for (std::size_t k = 0; k < next.size(); ++k) {
          next[k] = chosen(goes_on, next[k], carry[k], repeat.where);
        }
      }
      carry = std::move(next);
    }
    return carry;
  }

 private:
  std::vector<Node*> layer(const Node& repeat, std::int64_t number, const std::vector<Node*>& carry,
                           std::span<Node* const> extras) {
    const GraphFunction& callee = *repeat.callee;
    Replaced now;
    std::unordered_map<std::uint64_t, std::uint64_t> regions;  // each layer has its own
    const auto region_of = [&](const Node& node) {
      if (repeat.region != 0 || node.region == 0) return repeat.region;
      return regions.try_emplace(node.region, new_region()).first->second;
    };
    std::size_t next_carry = 0, next_extra = 0;
    for (const Node* node = callee.first; node != nullptr; node = node->next) {
      if (node == callee.index) {
        now[node] = index(number, node->where);
      } else if (node->captured != nullptr) {
        now[node] = extras[next_extra++];
      } else if (node->kind == Node::Kind::input) {
        now[node] = carry[next_carry++];
      } else if (node->kind == Node::Kind::constant) {
        const std::string full = node->scoped
                                     ? fmt::format("{}.{}.{}", repeat.name, number, node->name)
                                     : std::string(node->name);
        now[node] = graph_.constant(full, node->shape, node->where);
      } else if (node->kind == Node::Kind::repeat && is_inlined(*node, region_of(*node))) {
        Node inner = *node;
        inner.region = region_of(*node);
        inner_[node] = layers(inner, replaced(node->inputs, now));
      } else if (node->kind == Node::Kind::item && inner_.contains(node->inputs[0])) {
        now[node] = inner_.at(node->inputs[0])[static_cast<std::size_t>(node->count)];
      } else {
        now[node] = graph_.append_copy(*node, replaced(node->inputs, now), region_of(*node));
      }
    }
    return replaced(callee.results, now);
  }

  /// What an iteration leaves that may not run. Both are computed.
  Node* chosen(Node* condition, Node* next, Node* before, const std::source_location& where) {
    const std::array<Node*, 3> inputs{condition, next, before};
    return graph_.append({.kind = Node::Kind::op,
                          .shape = next->shape,
                          .op = &op_def<Where>(),
                          .attributes = graph_.arena.make(Where{}),
                          .inputs = graph_.arena.copy(std::span<Node* const>(inputs)),
                          .where = where});
  }

  static std::vector<Node*> replaced(std::span<Node* const> nodes, const Replaced& now) {
    std::vector<Node*> result;
    for (const Node* node : nodes) result.push_back(now.at(node));
    return result;
  }

  Node* index(std::int64_t number, const std::source_location& where) {
    const Shape shape(std::span<const Axis>(), i64);
    const Full op{.value = static_cast<double>(number), .dims = {}, .dtype = i64};
    return graph_.append({.kind = Node::Kind::op,
                          .shape = shape,
                          .op = &op_def<Full>(),
                          .attributes = graph_.arena.make(op),
                          .where = where});
  }

  Graph::Impl& graph_;
  std::unordered_map<const Node*, std::vector<Node*>> inner_;  ///< what inner repeats return
};

/// Whether a repeated function or its callees may use the constant `name`; `prefix` is the scope of
/// the layers' weights.
bool uses_constant(const GraphFunction& function, std::string_view prefix, std::string_view name) {
  for (const Node* node = function.first; node != nullptr; node = node->next) {
    if (node->kind == Node::Kind::repeat && uses_constant(*node->callee, node->name, name)) {
      return true;
    }
    if (node->kind != Node::Kind::constant) continue;
    const bool is_it =
        node->scoped ? name.starts_with(prefix) && name.ends_with(node->name) : name == node->name;
    if (is_it) return true;
  }
  return false;
}

/// The repeats that the outputs need and that depend on an input, in recording order.
std::vector<Node*> repeats_between(const GraphFunction& function,
                                   std::span<const Node* const> inputs,
                                   std::span<const Node* const> outputs) {
  std::vector<Node*> repeats;
  const NodeSet needed = needed_for(function, outputs);
  NodeSet depends(inputs.begin(), inputs.end());
  for (Node* node = function.first; node != nullptr; node = node->next) {
    bool is_between = std::ranges::any_of(
        node->inputs, [&](const Node* input) { return depends.contains(input); });
    if (node->kind == Node::Kind::repeat && !is_between) {
      is_between = std::ranges::any_of(inputs, [&](const Node* input) {
        return input->kind == Node::Kind::constant &&
               uses_constant(*node->callee, node->name, input->name);
      });
    }
    if (!is_between) continue;
    depends.insert(node);
    if (node->kind == Node::Kind::repeat && needed.contains(node) &&
        is_inlined(*node, node->region)) {
      repeats.push_back(node);
    }
  }
  return repeats;
}

/// Moves constants to the front, where layers find those that were recorded behind their repeat.
void hoist_constants(GraphFunction& function) {
  std::vector<Node*> constants, others;
  for (Node* node = function.first; node != nullptr; node = node->next) {
    (node->kind == Node::Kind::constant ? constants : others).push_back(node);
  }
  Node** link = &function.first;
  for (const std::vector<Node*>& part : {constants, others}) {
    for (Node* node : part) {
      *link = node;
      link = &node->next;
      function.last = node;
    }
  }
  *link = nullptr;
}

}  // namespace

void inline_repeats(Graph::Impl& graph, std::span<const Node* const> inputs,
                    std::span<const Node* const> outputs) {
  GraphFunction& function = *graph.current;
  const std::vector<Node*> repeats = repeats_between(function, inputs, outputs);
  if (repeats.empty()) return;
  hoist_constants(function);
  for (Node* repeat : repeats) {
    // Appends behind the repeat, then links the rest of the function again.
    Node* const rest = repeat->next;
    Node* const last = function.last;
    repeat->next = nullptr;
    function.last = repeat;
    const std::vector<Node*> operands(repeat->inputs.begin(), repeat->inputs.end());
    std::vector<Node*> carry;
    try {
      carry = Inliner(graph).layers(*repeat, operands);
    } catch (...) {
      function.last->next = rest;
      function.last = last;
      throw;
    }
    function.last->next = rest;
    if (rest != nullptr) function.last = last;
    for (Node* node = rest; node != nullptr; node = node->next) {
      if (node->kind != Node::Kind::item || node->inputs[0] != repeat) continue;
      make_view_of(graph, *node, carry[static_cast<std::size_t>(node->count)]);
    }
  }
}

}  // namespace tenon
