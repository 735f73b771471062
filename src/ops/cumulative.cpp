#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/filled.hpp"
#include "ops/gradient.hpp"
#include "ops/pointwise.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/cumsum.hpp>
#include <tenon/ops/cumulative.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/scatter.hpp>
#include <tenon/ops/slice.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>

namespace tenon {
namespace {

template <class Op>
double taken(double sofar, double x) noexcept {
  if constexpr (std::same_as<Op, Cumprod>) return sofar * x;
  if (std::isnan(sofar) || std::isnan(x)) return std::isnan(sofar) ? sofar : x;
  return std::same_as<Op, Cummax> ? std::max(sofar, x) : std::min(sofar, x);
}

template <class Op>
std::int64_t taken(std::int64_t sofar, std::int64_t x) noexcept {
  if constexpr (std::same_as<Op, Cumprod>) return wrapping_multiply(sofar, x);
  return std::same_as<Op, Cummax> ? std::max(sofar, x) : std::min(sofar, x);
}

/// The sums of the elements from each one on.
Tensor sums_from(const Tensor& g, std::int64_t axis) {
  return flip(cumsum(flip(g, axis), axis), axis);
}

/// The elements `distance` places further on, 0 beyond the end of `size`.
Tensor later(const Tensor& x, std::int64_t axis, std::int64_t size, std::int64_t distance) {
  return pad(slice(x, axis, distance, size), axis, 0, distance);
}

/// g_i x_0 .. x_(i-1) + g_(i+1) x_0 .. x_(i-1) x_(i+1) + ..: what stands before x_i, times
/// s_i = g_i + x_(i+1) s_(i+1), which log2(size) rounds of s_i = sum_i + factor_i s_(i+distance) give
/// (Blelloch, Prefix Sums and Their Applications, 1990, section 1.4). Without a division, so that
/// gradients of it are exact at zeros, too.
Tensor cumprod_gradient(const Tensor& x, const Tensor& y, const Tensor& g, std::int64_t axis,
                        std::int64_t size) {
  if (size < 2) return g;
  Tensor sums = g, factor = later(x, axis, size, 1);
  for (std::int64_t distance = 1; distance < size; distance *= 2) {
    sums = sums + factor * later(sums, axis, size, distance);
    if (2 * distance < size) factor = factor * later(factor, axis, size, distance);
  }
  return pad(slice(y, axis, 0, size - 1), axis, 1, 0, 1.0) * sums;
}

}  // namespace

template <class Op>
Shape CumulativeOp<Op>::infer(std::span<const Shape> in) const {
  checked_axis(Op::name, axis, in[0]);  // C1
  if constexpr (std::same_as<Op, Cumprod>) {
    require_computed(Op::name, in[0]);  // C2
    return is_floating(in[0].dtype()) ? in[0] : in[0].with_dtype(i64);
  } else {
    require_number(Op::name, in[0]);  // C2
    return in[0];
  }
}

template <class Op>
void CumulativeOp<Op>::reference(std::span<const HostView> in, const HostView& out) const {
  const DType from = in[0].shape.dtype(), to = out.shape.dtype();
  const std::int64_t count = in[0].shape[static_cast<int>(axis)];
  for_each_lane(in[0], out, static_cast<int>(axis), [&](Lane x, Lane y) {
    const auto run = [&](auto sofar, auto&& load, auto&& store) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = load(x.base + i * x.step);
        sofar = i == 0 ? value : taken<Op>(sofar, value);
        store(y.base + i * y.step, sofar);
      }
    };
    if (is_floating(from)) {
      run(
          double{}, [&](const std::byte* element) { return load_as_double(from, element); },
          [&](std::byte* element, double value) { store_double(to, element, value); });
    } else {
      run(
          std::int64_t{}, [&](const std::byte* element) { return load_as_int64(from, element); },
          [&](std::byte* element, std::int64_t value) { store_int64(to, element, value); });
    }
  });
}

template <class Op>
std::vector<Tensor> CumulativeOp<Op>::gradient(const Backward& at) const {
  const Tensor &x = at.inputs[0], &g = at.upstream;
  if constexpr (std::same_as<Op, Cumprod>) {
    if (const std::int64_t size = x.dim(axis); is_static(size)) {
      return {cumprod_gradient(x, at.output, g, axis, size)};
    }
    // Before the first zero of a lane: the sum of what follows, divided by the element. At the first
    // zero: the sum of products without it. Behind it: nothing.
    const Tensor zero = scalar_like(x, 0), one = scalar_like(x, 1), is_zero = eq(x, zero);
    const Tensor zeros = cumsum(cast(is_zero, i64), axis);
    const Tensor is_before = eq(zeros, scalar_like(zeros, 0));
    const Tensor is_first = logical_and(is_zero, eq(zeros, scalar_like(zeros, 1)));
    const Tensor before = sums_from(g * at.output, axis) / where(is_zero, one, x);
    const Tensor products = cumprod(where(is_first, one, x), axis);
    // Only what stands from the first zero on, so that large sums before it cancel nothing.
    const Tensor first = sums_from(where(is_before, zero, g * products), axis);
    return {where(is_before, before, where(is_first, first, zero))};
  } else {
    // The place of the last element so far that equals the running extreme.
    Tensor place = iota(x, axis, i64);
    for (int i = static_cast<int>(axis) + 1; i < x.rank(); ++i) place = unsqueeze(place, -1);
    const Tensor places = where(eq(x, at.output), place, scalar_like(place, 0));
    return {scatter(filled_like(x, 0), cummax(places, axis), g, axis, "add")};
  }
}

#define TENON_DEFINE_CUMULATIVE(id, Struct)                                            \
  template struct CumulativeOp<Struct>;                                                \
  TENON_DEFINE_OP(id, Struct);                                                         \
  Tensor id(const Tensor& x, const AxisRef& axis, const std::source_location& where) { \
    Struct op;                                                                         \
    op.axis = axis_of(x, axis, Struct::name, where);                                   \
    return record(op, {x}, where);                                                     \
  }                                                                                    \
  static_assert(true, "lets the use end in a semicolon")

TENON_DEFINE_CUMULATIVE(cumprod, Cumprod);
TENON_DEFINE_CUMULATIVE(cummax, Cummax);
TENON_DEFINE_CUMULATIVE(cummin, Cummin);

#undef TENON_DEFINE_CUMULATIVE

}  // namespace tenon
