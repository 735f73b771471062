#include "ops/broadcast.hpp"
#include "ops/checks.hpp"
#include "ops/pointwise.hpp"
#include "ops/support.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/predicate.hpp>
#include <tenon/ops/real_binary.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

#include <cmath>
#include <limits>

namespace tenon {

template <class Op>
Shape RealBinaryOp<Op>::infer(std::span<const Shape> in) const {
  require_same_dtype(Op::name, in);                      // C1
  require_floating(Op::name, in[0]);                     // C2
  return broadcast_shapes(Op::name, in, in[0].dtype());  // C3
}

template <class Op>
void RealBinaryOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  zip_reals(broadcast_view(in[0], out.shape), broadcast_view(in[1], out.shape), out,
            [](double x, double y) { return Op::of(x, y); });
}

#define TENON_DEFINE_REAL_BINARY(id, Struct)                                       \
  template struct RealBinaryOp<Struct>;                                            \
  TENON_DEFINE_OP(id, Struct);                                                     \
  Tensor id(const Tensor& a, const Tensor& b, const std::source_location& where) { \
    return record(Struct{}, {a, b}, where);                                        \
  }                                                                                \
  static_assert(true, "lets the use end in a semicolon")

double Atan2::of(double a, double b) noexcept { return std::atan2(a, b); }
namespace {

/// h, and 1 where it is 0, so that gradients at the origin, where there is none, are 0.
Tensor not_zero(const Tensor& h) {
  return tenon::where(eq(h, scalar_like(h, 0)), scalar_like(h, 1), h);
}

}  // namespace

// d = (b da - a db) / (a^2 + b^2), the sum of squares by hypot in two steps, so that neither over-
// nor underflows before the result does.
std::vector<Tensor> Atan2::gradient(const Backward& at) const {
  const Tensor &a = at.inputs[0], &b = at.inputs[1];
  const Tensor h = not_zero(hypot(a, b)), scaled = at.upstream / h;
  return {sum_to(scaled * (b / h), a.shape()), sum_to(-(scaled * (a / h)), b.shape())};
}
TENON_DEFINE_REAL_BINARY(atan2, Atan2);

double Hypot::of(double a, double b) noexcept { return std::hypot(a, b); }
std::vector<Tensor> Hypot::gradient(const Backward& at) const {
  const Tensor &a = at.inputs[0], &b = at.inputs[1];
  const Tensor h = not_zero(at.output);
  return {sum_to(at.upstream * (a / h), a.shape()), sum_to(at.upstream * (b / h), b.shape())};
}
TENON_DEFINE_REAL_BINARY(hypot, Hypot);

Tensor floor_div(const Tensor& a, const Tensor& b, const std::source_location& where) {
  if (is_floating(a.dtype(where))) {  // Python's way, right for infinite b too
    const Tensor rest = fmod(a, b, where), zero = scalar_like(rest, 0, where);
    const Tensor is_off =
        logical_and(ne(rest, zero, where),
                    logical_xor(lt(rest, zero, where), lt(b, zero, where), where), where);
    const Tensor whole = sub(round(div(sub(a, rest, where), b, where), where),
                             cast(is_off, a.dtype(where), where), where);
    const Tensor signed_zero = mul(div(a, b, where), zero, where);
    return tenon::where(eq(whole, zero, where), signed_zero, whole, where);
  }
  // One division, which takes longer than all the rest. It rounds towards zero, one too much where there is a rest of the
  // other sign than b's; divided by 0 it is 0.
  const Tensor quotient = div(a, b, where), rest = sub(a, mul(quotient, b, where), where);
  const Tensor zero = scalar_like(rest, 0, where);
  const Tensor signs_differ = logical_xor(lt(rest, zero, where), lt(b, zero, where), where);
  const Tensor has_rest = logical_and(ne(rest, zero, where), ne(b, zero, where), where);
  return sub(quotient, cast(logical_and(has_rest, signs_differ, where), a.dtype(where), where),
             where);
}

Tensor xlogy(const Tensor& a, const Tensor& b, const std::source_location& where) {
  const Tensor zero = scalar_like(a, 0, where), one = scalar_like(b, 1, where);
  // 0 times an infinite or undefined logarithm is 0; that of other b is kept, for the gradient by
  // a.
  const Tensor has_log = logical_and(
      gt(b, scalar_like(b, 0, where), where),
      lt(b, scalar_like(b, std::numeric_limits<double>::infinity(), where), where), where);
  const Tensor is_zero = logical_and(
      eq(a, zero, where), logical_not(logical_or(has_log, is_nan(b, where), where), where), where);
  return mul(a, log(tenon::where(is_zero, one, b, where), where), where);
}

Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight,
            const std::source_location& where) {
  return add(a, mul(weight, sub(b, a, where), where), where);
}
Tensor lerp(const Tensor& a, const Tensor& b, double weight, const std::source_location& where) {
  return lerp(a, b, scalar_like(a, weight, where), where);
}

Tensor isclose(const Tensor& a, const Tensor& b, double relative, double absolute, bool equal_nan,
               const std::source_location& where) {
  const Tensor allowed = add(mul(abs(b, where), scalar_like(b, relative, where), where),
                             scalar_like(b, absolute, where), where);
  // An infinite b would allow everything.
  Tensor close = logical_or(
      eq(a, b, where),
      logical_and(is_finite(b, where), le(abs(sub(a, b, where), where), allowed, where), where),
      where);
  if (!equal_nan) return close;
  return logical_or(close, logical_and(is_nan(a, where), is_nan(b, where), where), where);
}

Tensor nan_to_num(const Tensor& x, double nan, const std::source_location& where) {
  double largest = std::numeric_limits<float>::max();
  switch (x.dtype(where)) {
    case DType::f16:
      largest = 65504;
      break;
    case DType::bf16:
      largest = 0x1.FEp127;
      break;
    case DType::f64:
      largest = std::numeric_limits<double>::max();
      break;
    default:
      break;
  }
  return nan_to_num(x, nan, largest, -largest, where);
}

Tensor nan_to_num(const Tensor& x, double nan, double positive, double negative,
                  const std::source_location& where) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto is = [&](double value) { return eq(x, scalar_like(x, value, where), where); };
  Tensor y = tenon::where(is_nan(x, where), scalar_like(x, nan, where), x, where);
  y = tenon::where(is(infinity), scalar_like(x, positive, where), y, where);
  return tenon::where(is(-infinity), scalar_like(x, negative, where), y, where);
}

}  // namespace tenon
