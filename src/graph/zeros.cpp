// What cond and scan begin with: zeros in the sizes of results, which may be symbolic.
#include "graph/graph_impl.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/where.hpp>
#include <tenon/repeat.hpp>

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

/// An input or constant of the current function that has this symbol.
std::optional<SizedAxis> find_symbol(const Graph::Impl& graph, std::int64_t size) {
  if (!is_symbol(size)) return std::nullopt;
  for (const Node* node = graph.current->first; node != nullptr; node = node->next) {
    if (node->kind != Node::Kind::input && node->kind != Node::Kind::constant) continue;
    for (int axis = 0; axis < node->shape.rank(); ++axis) {
      if (node->shape[axis] == size) return SizedAxis{graph.handle(node), axis};
    }
  }
  return std::nullopt;
}

}  // namespace

Tensor zeros_of_type(const Tensor& x, std::optional<std::int64_t> count,
                     const std::source_location& where) {
  const Shape& shape = x.shape(where);
  if (shape.is_static() && !count) return full_like(x, 0, where);
  std::vector<std::int64_t> sizes;
  if (count) sizes.push_back(*count);
  if (shape.is_static()) {
    sizes.insert(sizes.end(), shape.dims().begin(), shape.dims().end());
    const Full op{.value = 0, .dims = IntList(sizes), .dtype = shape.dtype()};
    return record_beside(x, op_def<Full>(), &op, where);
  }

  const Graph::Impl& graph = graph_of("zeros", {&x, 1}, where);
  Tensor open;  // of the symbolic sizes, with 1 in place of the others
  for (int i = 0; i < shape.rank(); ++i) {
    sizes.push_back(is_static(shape[i]) ? shape[i] : -1);
    if (is_static(shape[i])) continue;
    const SizedAxis from = find_symbol(graph, shape[i]).value_or(SizedAxis{x, i});
    Tensor along = iota(from.tensor, from.axis, i32, 0, 1, where).with_tags({});
    for (int behind = i + 1; behind < shape.rank(); ++behind)
      along = unsqueeze(along, -1, {}, where);
    open = open.is_empty() ? along : add(open, along, where);
  }
  // A value of its own, not a view, as steps of a scan update it: no place is below 0.
  const auto scalar = [&](double value) {
    const Full op{.value = value, .dims = {}, .dtype = shape.dtype()};
    return record_beside(x, op_def<Full>(), &op, where);
  };
  const Tensor places = broadcast_to(open, sizes, where);
  const Tensor never = lt(places, scalar_like(places, 0), where);
  const Tensor zeros = tenon::where(never, scalar(1), scalar(0), where);
  if (count || !shape.has_tags()) return zeros;
  std::vector<Name> tags;
  for (int i = 0; i < shape.rank(); ++i) tags.push_back(shape.tag(i));
  return zeros.with_tags(std::span<const Name>(tags));
}

}  // namespace tenon::detail
