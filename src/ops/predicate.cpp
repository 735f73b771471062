#include "ops/pointwise.hpp"
#include "ops/support.hpp"

#include <tenon/ops/predicate.hpp>

#include <cmath>

namespace tenon {
namespace {

template <class Op>
bool holds(double x) noexcept;
template <>
bool holds<IsNan>(double x) noexcept {
  return std::isnan(x);
}
template <>
bool holds<IsInf>(double x) noexcept {
  return std::isinf(x);
}
template <>
bool holds<IsFinite>(double x) noexcept {
  return std::isfinite(x);
}

}  // namespace

template <class Op>
Shape PredicateOp<Op>::infer(std::span<const Shape> in) const {
  require_floating(Op::name, in[0]);  // C1
  return in[0].with_dtype(boolean);
}

template <class Op>
void PredicateOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  map_reals(in[0], out, [](double x) { return holds<Op>(x) ? 1.0 : 0.0; });
}

#define TENON_DEFINE_PREDICATE(id, Struct)                        \
  template struct PredicateOp<Struct>;                            \
  TENON_DEFINE_OP(id, Struct);                                    \
  Tensor id(const Tensor& x, const std::source_location& where) { \
    return record(Struct{}, {x}, where);                          \
  }                                                               \
  static_assert(true, "lets the use end in a semicolon")

TENON_DEFINE_PREDICATE(is_nan, IsNan);
TENON_DEFINE_PREDICATE(is_inf, IsInf);
TENON_DEFINE_PREDICATE(is_finite, IsFinite);

}  // namespace tenon
