#include "ops/broadcast.hpp"
#include "ops/checks.hpp"
#include "ops/pointwise.hpp"

#include <tenon/ops/logical.hpp>

#include <functional>

namespace tenon {
namespace {

/// What each op asks of two integers that are 0 or 1.
template <class Op>
struct Truth;
template <>
struct Truth<LogicalAnd> : std::bit_and<std::int64_t> {};
template <>
struct Truth<LogicalOr> : std::bit_or<std::int64_t> {};
template <>
struct Truth<LogicalXor> : std::bit_xor<std::int64_t> {};

}  // namespace

template <class Op>
Shape LogicalOp<Op>::infer(std::span<const Shape> in) const {
  for (const Shape& shape : in) require_bool(Op::name, shape);  // C1
  return broadcast_shapes(Op::name, in, boolean);               // C2
}

template <class Op>
void LogicalOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  zip_integers(broadcast_view(in[0], out.shape), broadcast_view(in[1], out.shape), out,
               Truth<Op>());
}

#define TENON_DEFINE_LOGICAL(id, Struct)                                           \
  template struct LogicalOp<Struct>;                                               \
  TENON_DEFINE_OP(id, Struct);                                                     \
  Tensor id(const Tensor& a, const Tensor& b, const std::source_location& where) { \
    return record(Struct{}, {a, b}, where);                                        \
  }                                                                                \
  static_assert(true, "lets the use end in a semicolon")

TENON_DEFINE_LOGICAL(logical_and, LogicalAnd);
TENON_DEFINE_LOGICAL(logical_or, LogicalOr);
TENON_DEFINE_LOGICAL(logical_xor, LogicalXor);

TENON_DEFINE_OP(logical_not, LogicalNot);

Shape LogicalNot::infer(std::span<const Shape> in) const {
  require_bool(name, in[0]);  // C1
  return in[0];
}

void LogicalNot::reference(std::span<const HostView> in, const HostView& out) const {
  map_integers(in[0], out, [](std::int64_t x) { return 1 - x; });
}

Tensor logical_not(const Tensor& x, const std::source_location& where) {
  return record(LogicalNot{}, {x}, where);
}

}  // namespace tenon
