// What cond and scan begin with: zeros in the sizes of results, which may be symbolic.
#include "graph/zeros.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/where.hpp>
#include <tenon/repeat.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace tenon::detail {
namespace {

/// A tensor with an axis of this size.
struct SizedAxis {
  Tensor tensor;
  int axis;
};

/// An axis of an input or constant of a function.
struct NodeAxis {
  const Node* node;
  int axis;
};

/// One that has this symbol, among the nodes up to `last`.
std::optional<NodeAxis> find_symbol(const GraphFunction& function, const Node* last,
                                    std::int64_t size) {
  if (!is_symbol(size)) return std::nullopt;
  for (const Node* node = function.first; node != nullptr; node = node->next) {
    const bool may_have = node->kind == Node::Kind::input || node->kind == Node::Kind::constant;
    for (int axis = 0; may_have && axis < node->shape.rank(); ++axis) {
      if (node->shape[axis] == size) return NodeAxis{node, axis};
    }
    if (node == last) break;
  }
  return std::nullopt;
}

/// Numbers, i32, in the symbolic sizes, with 1 in place of the others: each axis has those of `axis_of`.
template <class AxisOf>
Tensor numbers_along(const Shape& shape, const AxisOf& axis_of, const std::source_location& where) {
  Tensor open;
  for (int i = 0; i < shape.rank(); ++i) {
    if (is_static(shape[i])) continue;
    const SizedAxis from = axis_of(i);
    Tensor along = iota(from.tensor, from.axis, i32, 0, 1, where).with_tags({});
    for (int behind = i + 1; behind < shape.rank(); ++behind)
      along = unsqueeze(along, -1, {}, where);
    open = open.is_empty() ? along : add(open, along, where);
  }
  return open;
}

/// The shape's sizes, -1 for symbolic ones: those of numbers_along().
std::vector<std::int64_t> sizes_beside(const Shape& shape) {
  std::vector<std::int64_t> sizes(shape.dims().begin(), shape.dims().end());
  std::ranges::replace_if(sizes, [](std::int64_t size) { return !is_static(size); }, -1);
  return sizes;
}

/// `x`: a value with the sizes, from which those are read that no symbol stands for; else null.
Tensor zeros(const Tensor& beside, const Shape& shape, std::optional<std::int64_t> count,
             const Tensor* x, const std::source_location& where) {
  std::vector<std::int64_t> sizes;
  if (count) sizes.push_back(*count);
  if (shape.is_static()) {
    sizes.insert(sizes.end(), shape.dims().begin(), shape.dims().end());
    const Full op{.value = 0, .dims = IntList(sizes), .dtype = shape.dtype()};
    return record_beside(beside, op_def<Full>(), &op, where);
  }

  const Graph::Impl& graph = graph_of("zeros", {&beside, 1}, where);
  const auto axis_of = [&](int axis) {
    const std::optional<NodeAxis> known =
        find_symbol(*graph.current, graph.current->last, shape[axis]);
    if (known) return SizedAxis{graph.handle(known->node), known->axis};
    if (x != nullptr) return SizedAxis{*x, axis};
    throw Error(Errc::internal, where, "zeros of a size that nothing has");
  };
  const Tensor open = numbers_along(shape, axis_of, where);
  for (const std::int64_t size : sizes_beside(shape)) sizes.push_back(size);
  // A value of its own, not a view, as steps of a scan update it: no place is below 0.
  const auto scalar = [&](double value) {
    const Full op{.value = value, .dims = {}, .dtype = shape.dtype()};
    return record_beside(beside, op_def<Full>(), &op, where);
  };
  const Tensor places = broadcast_to(open, sizes, where);
  const Tensor never = lt(places, scalar_like(places, 0), where);
  return tenon::where(never, scalar(1), scalar(0), where);
}

}  // namespace

bool has_known_sizes(const GraphFunction& function, const Node* last, const Shape& shape) {
  return std::ranges::all_of(shape.dims(), [&](std::int64_t size) {
    return is_static(size) || find_symbol(function, last, size).has_value();
  });
}

Tensor zeros_of_shape(const Tensor& beside, const Shape& shape, std::int64_t count,
                      const std::source_location& where) {
  return zeros(beside, shape, count, nullptr, where);
}

Tensor of_sizes(const Tensor& beside, const Shape& shape, const std::source_location& where) {
  const std::vector<std::int64_t> sizes = sizes_beside(shape);
  if (shape.is_static()) {
    const Full op{.value = 0, .dims = {}, .dtype = i32};
    return broadcast_to(record_beside(beside, op_def<Full>(), &op, where), sizes, where);
  }
  const Graph::Impl& graph = graph_of("random numbers", {&beside, 1}, where);
  std::vector<SizedAxis> axes;
  for (int i = 0; i < shape.rank(); ++i) {
    std::optional<NodeAxis> found;
    for (const GraphFunction* around = graph.current; around != nullptr && !found;
         around = around->parent) {
      found = find_symbol(*around, around->last, shape[i]);
    }
    if (!found && !is_static(shape[i])) return {};
    axes.push_back(found ? SizedAxis{graph.handle(found->node), found->axis} : SizedAxis{{}, 0});
  }
  const auto axis_of = [&](int axis) { return axes[static_cast<std::size_t>(axis)]; };
  return broadcast_to(numbers_along(shape, axis_of, where), sizes, where);
}

Tensor zeros_of_type(const Tensor& x, std::optional<std::int64_t> count,
                     const std::source_location& where) {
  const Shape& shape = x.shape(where);
  if (shape.is_static() && !count) return full_like(x, 0, where);
  const Tensor made = zeros(x, shape, count, &x, where);
  if (count || !shape.has_tags() || shape.is_static()) return made;
  std::vector<Name> tags;
  for (int i = 0; i < shape.rank(); ++i) tags.push_back(shape.tag(i));
  return made.with_tags(std::span<const Name>(tags));
}

}  // namespace tenon::detail
