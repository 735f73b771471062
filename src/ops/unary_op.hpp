// Completes an op of one operand from its formula: UnaryOp's members, its descriptor and its
// builder.
#pragma once

#include "ops/checks.hpp"
#include "ops/gradient.hpp"
#include "ops/pointwise.hpp"
#include "ops/support.hpp"

#include <tenon/ops/unary.hpp>

namespace tenon {

template <class Op>
concept TakesIntegers = requires(const Op& op, std::int64_t x) { op.of_integer(x); };

template <class Op>
Shape UnaryOp<Op>::infer(std::span<const Shape> in) const {
  if constexpr (TakesIntegers<Op>) {
    require_number(Op::name, in[0]);  // C1
  } else {
    require_floating(Op::name, in[0]);  // C1
  }
  return in[0];
}

template <class Op>
void UnaryOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  const Op& op = static_cast<const Op&>(*this);
  if constexpr (TakesIntegers<Op>) {
    if (is_integer(in[0].shape.dtype())) {
      return map_integers(in[0], out, [&op](std::int64_t x) { return op.of_integer(x); });
    }
  }
  map_reals(in[0], out, [&op](double x) { return op.of(x); });
}

/// dL/dx = dL/dy * dy/dx: `derivative(op, x, y)`, declared beside the formula, records dy/dx; an
/// empty tensor stands for 0 everywhere.
template <class Op>
std::vector<Tensor> UnaryOp<Op>::gradient(const Backward& at) const {
  const Tensor slope = derivative(static_cast<const Op&>(*this), at.inputs[0], at.output);
  return {slope.is_empty() ? slope : at.upstream * slope};
}

}  // namespace tenon

/// Inside namespace tenon, after the formula: an op without attributes, with its builder.
#define TENON_DEFINE_UNARY(id, Struct)                            \
  template struct UnaryOp<Struct>;                                \
  TENON_DEFINE_OP(id, Struct);                                    \
  Tensor id(const Tensor& x, const std::source_location& where) { \
    return record(Struct{}, {x}, where);                          \
  }                                                               \
  static_assert(true, "lets the use end in a semicolon")
