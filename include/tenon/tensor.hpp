#pragma once

#include <tenon/attributes.hpp>
#include <tenon/axis_list.hpp>
#include <tenon/op.hpp>
#include <tenon/shape.hpp>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

class Graph;
struct Node;

/// `end` of a slice that reaches to the end of the axis; with a negative step, to its first element.
inline constexpr std::int64_t to_end = std::numeric_limits<std::int64_t>::max();

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
  /// An axis's size; of a symbolic axis its symbol, which is negative (is_static() in tenon/shape.hpp).
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

  // The functions of the same names with this tensor as their first argument; their contracts are
  // in tenon/ops.

  // Shape
  Tensor reshape(std::initializer_list<Axis> dims,
                 const std::source_location& asked = std::source_location::current()) const;
  Tensor reshape(std::span<const std::int64_t> dims,
                 const std::source_location& asked = std::source_location::current()) const;
  Tensor flatten(const AxisRef& first = 0, const AxisRef& last = -1,
                 const std::source_location& asked = std::source_location::current()) const;
  Tensor permute(std::initializer_list<AxisRef> order,
                 const std::source_location& asked = std::source_location::current()) const;
  Tensor transpose(const AxisRef& a = -2, const AxisRef& b = -1,
                   const std::source_location& asked = std::source_location::current()) const;
  Tensor squeeze(const AxisRef& axis,
                 const std::source_location& asked = std::source_location::current()) const;
  Tensor unsqueeze(std::int64_t axis, Name tag = {},
                   const std::source_location& asked = std::source_location::current()) const;
  Tensor broadcast_to(std::initializer_list<Axis> dims,
                      const std::source_location& asked = std::source_location::current()) const;
  Tensor flip(const AxisList& axes = {},
              const std::source_location& asked = std::source_location::current()) const;
  Tensor slice(const AxisRef& axis, std::int64_t begin, std::int64_t end = to_end,
               std::int64_t step = 1,
               const std::source_location& asked = std::source_location::current()) const;
  std::vector<Tensor> split(
      std::initializer_list<std::int64_t> sizes, const AxisRef& axis,
      const std::source_location& asked = std::source_location::current()) const;
  std::vector<Tensor> chunk(
      std::int64_t parts, const AxisRef& axis,
      const std::source_location& asked = std::source_location::current()) const;
  Tensor select(const Tensor& index,
                const std::source_location& asked = std::source_location::current()) const;
  Tensor gather(const Tensor& index, const AxisRef& axis = 0,
                const std::source_location& asked = std::source_location::current()) const;
  Tensor take_along(const Tensor& index, const AxisRef& axis = -1,
                    const std::source_location& asked = std::source_location::current()) const;
  Tensor masked_fill(const Tensor& mask, double value,
                     const std::source_location& asked = std::source_location::current()) const;

  // Types and arithmetic
  Tensor cast(DType dtype,
              const std::source_location& asked = std::source_location::current()) const;
  Tensor matmul(const Tensor& b,
                const std::source_location& asked = std::source_location::current()) const;
  Tensor pow(const Tensor& exponent,
             const std::source_location& asked = std::source_location::current()) const;
  Tensor minimum(const Tensor& b,
                 const std::source_location& asked = std::source_location::current()) const;
  Tensor maximum(const Tensor& b,
                 const std::source_location& asked = std::source_location::current()) const;
  Tensor clamp(double min, double max,
               const std::source_location& asked = std::source_location::current()) const;

  // Complex numbers
  Tensor real(const std::source_location& asked = std::source_location::current()) const;
  Tensor imag(const std::source_location& asked = std::source_location::current()) const;
  Tensor conj(const std::source_location& asked = std::source_location::current()) const;

  // Functions
  Tensor abs(const std::source_location& asked = std::source_location::current()) const;
  Tensor neg(const std::source_location& asked = std::source_location::current()) const;
  Tensor sign(const std::source_location& asked = std::source_location::current()) const;
  Tensor square(const std::source_location& asked = std::source_location::current()) const;
  Tensor sqrt(const std::source_location& asked = std::source_location::current()) const;
  Tensor rsqrt(const std::source_location& asked = std::source_location::current()) const;
  Tensor reciprocal(const std::source_location& asked = std::source_location::current()) const;
  Tensor exp(const std::source_location& asked = std::source_location::current()) const;
  Tensor log(const std::source_location& asked = std::source_location::current()) const;
  Tensor sin(const std::source_location& asked = std::source_location::current()) const;
  Tensor cos(const std::source_location& asked = std::source_location::current()) const;
  Tensor tanh(const std::source_location& asked = std::source_location::current()) const;
  Tensor sigmoid(const std::source_location& asked = std::source_location::current()) const;
  Tensor relu(const std::source_location& asked = std::source_location::current()) const;
  Tensor gelu(const std::source_location& asked = std::source_location::current()) const;
  Tensor silu(const std::source_location& asked = std::source_location::current()) const;
  Tensor floor(const std::source_location& asked = std::source_location::current()) const;
  Tensor ceil(const std::source_location& asked = std::source_location::current()) const;
  Tensor round(const std::source_location& asked = std::source_location::current()) const;

  // Reductions
  Tensor sum(const AxisList& axes = {}, bool keep_dims = false,
             const std::source_location& asked = std::source_location::current()) const;
  Tensor mean(const AxisList& axes = {}, bool keep_dims = false,
              const std::source_location& asked = std::source_location::current()) const;
  Tensor prod(const AxisList& axes = {}, bool keep_dims = false,
              const std::source_location& asked = std::source_location::current()) const;
  Tensor max(const AxisList& axes = {}, bool keep_dims = false,
             const std::source_location& asked = std::source_location::current()) const;
  Tensor min(const AxisList& axes = {}, bool keep_dims = false,
             const std::source_location& asked = std::source_location::current()) const;
  Tensor any(const AxisList& axes = {}, bool keep_dims = false,
             const std::source_location& asked = std::source_location::current()) const;
  Tensor all(const AxisList& axes = {}, bool keep_dims = false,
             const std::source_location& asked = std::source_location::current()) const;
  Tensor logsumexp(const AxisList& axes = {}, bool keep_dims = false,
                   const std::source_location& asked = std::source_location::current()) const;
  Tensor variance(const AxisList& axes = {}, double correction = 1, bool keep_dims = false,
                  const std::source_location& asked = std::source_location::current()) const;
  Tensor norm(double p = 2, const AxisList& axes = {}, bool keep_dims = false,
              const std::source_location& asked = std::source_location::current()) const;
  Tensor argmax(const AxisRef& axis = -1, bool keep_dims = false, DType dtype = i32,
                const std::source_location& asked = std::source_location::current()) const;
  Tensor argmin(const AxisRef& axis = -1, bool keep_dims = false, DType dtype = i32,
                const std::source_location& asked = std::source_location::current()) const;

  // Along an axis
  Tensor softmax(const AxisRef& axis = -1,
                 const std::source_location& asked = std::source_location::current()) const;
  Tensor log_softmax(const AxisRef& axis = -1,
                     const std::source_location& asked = std::source_location::current()) const;
  Tensor cumsum(const AxisRef& axis = -1,
                const std::source_location& asked = std::source_location::current()) const;
  Tensor sort(const AxisRef& axis = -1, bool descending = false,
              const std::source_location& asked = std::source_location::current()) const;
  Tensor argsort(const AxisRef& axis = -1, bool descending = false,
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
