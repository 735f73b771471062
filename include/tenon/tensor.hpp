#pragma once

#include <tenon/op.hpp>
#include <tenon/shape.hpp>

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

class Graph;
struct Node;

/// A value of a graph: its shape and the op that computes it. A handle of 24 bytes without data. A
/// handle that outlives its graph becomes stale. Every call on a stale or empty handle, except
/// is_empty(), throws Errc::stale_handle, naming the caller's line.
class Tensor {
 public:
  Tensor() = default;  ///< no value

  bool is_empty() const noexcept { return node_ == nullptr; }
  const Shape& shape(const std::source_location& asked = std::source_location::current()) const;
  DType dtype(const std::source_location& asked = std::source_location::current()) const {
    return shape(asked).dtype();
  }
  int rank(const std::source_location& asked = std::source_location::current()) const {
    return shape(asked).rank();
  }
  std::int64_t dim(const AxisRef& axis,
                   const std::source_location& asked = std::source_location::current()) const {
    return shape(asked).dim(axis);
  }

  /// The name of the op that computes it, or "input", "constant", "item".
  std::string_view op(const std::source_location& asked = std::source_location::current()) const;
  /// Name of an input or constant; empty for the result of an op.
  std::string_view name(const std::source_location& asked = std::source_location::current()) const;
  /// The source line that recorded it.
  const std::source_location& where(
      const std::source_location& asked = std::source_location::current()) const;

  /// The same value with other axis tags, one per axis (empty: none).
  Tensor with_tags(std::initializer_list<Name> tags,
                   const std::source_location& asked = std::source_location::current()) const;
  Tensor with_tags(std::span<const Name> tags,
                   const std::source_location& asked = std::source_location::current()) const;
  /// The same value with one axis tag changed.
  Tensor rename(const AxisRef& axis, Name tag,
                const std::source_location& asked = std::source_location::current()) const;

 private:
  friend class Graph;
  friend struct GraphAccess;
  Tensor(const Node* node, std::uint32_t graph_id, const Shape* retagged = nullptr)
      : node_(node), retagged_(retagged), graph_id_(graph_id) {}
  const Node& node(const std::source_location& asked, std::string_view what) const;

  const Node* node_ = nullptr;
  const Shape* retagged_ = nullptr;  ///< in the graph's arena; replaces the node's own tags
  std::uint32_t graph_id_ = 0;
};

/// Records an op in the graph of its inputs; weights declared by a file are added to that graph.
/// Calls `infer`, and adds the user's line and the inputs' types to its errors.
/// Errc::context_mismatch for inputs of two graphs; Errc::call_order when no input belongs to a
/// graph and no `Graph::Recording` is active.
Tensor record(const OpDef& op, const void* attributes, std::span<const Tensor> inputs,
              const std::source_location& where);

/// Records an op without inputs in the graph in which an op on `neighbour` would be recorded: used
/// for the 1 of `x + 1`. Errors as for record().
Tensor record_beside(const Tensor& neighbour, const OpDef& op, const void* attributes,
                     const std::source_location& where);

template <OpStruct Op>
Tensor record(const Op& op, std::initializer_list<Tensor> inputs,
              const std::source_location& where) {
  return record(op_def<Op>(), &op, std::span<const Tensor>(inputs.begin(), inputs.size()), where);
}
template <OpStruct Op>
Tensor record(const Op& op, std::span<const Tensor> inputs, const std::source_location& where) {
  return record(op_def<Op>(), &op, inputs, where);
}

/// A tensor operand with the source line of its use, which errors of operators name.
struct Located {
  Located(const Tensor& operand, const std::source_location& line = std::source_location::current())
      : tensor(operand), where(line) {}  // NOLINT(google-explicit-constructor)
  const Tensor& tensor;
  std::source_location where;
};

}  // namespace tenon
