#include "ops/builder.hpp"
#include "ops/filled.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/predicate.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/statistics.hpp>
#include <tenon/ops/stop_gradient.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace {

/// x in the type that it is computed in.
Tensor at_least_f32(std::string_view op, const Tensor& x, const std::source_location& where) {
  const DType dtype = x.dtype(where);
  if (!is_floating(dtype)) {
    fail_at(where, Errc::unsupported_dtype, op,
            fmt::format("needs a floating type, got {}", to_string(x.shape())));
  }
  return dtype == f32 || dtype == f64 ? x : cast(x, f32, where);
}

Tensor rounded(const Tensor& y, DType dtype, const std::source_location& where) {
  return y.dtype(where) == dtype ? y : cast(y, dtype, where);
}

/// f(x) where x is not 0, elsewhere 0, with a gradient of 0.
template <class Function>
Tensor beside_zero(const Tensor& x, const std::source_location& line, Function&& f) {
  const Tensor zero = scalar_like(x, 0, line), is_zero = eq(x, zero, line);
  return where(is_zero, zero, f(where(is_zero, scalar_like(x, 1, line), x, line)), line);
}

/// The variance in the type that it is computed in.
Tensor computed_variance(std::string_view op, const Tensor& array, const AxisList& axes,
                         double correction, bool keep_dims, const std::source_location& where) {
  const Tensor x = at_least_f32(op, array, where);
  const Tensor squares = square(sub(x, mean(x, axes, true, where), where), where);
  if (correction == 0) return mean(squares, axes, keep_dims, where);
  const Tensor total = sum(squares, axes, keep_dims, where);
  const Shape& shape = x.shape(where);
  double count = 1;
  bool is_known = true;
  for (const std::int64_t axis : axes_of(x, axes, op, where)) {
    const std::int64_t size = shape[static_cast<int>(axis)];
    is_known = is_known && is_static(size);
    count *= static_cast<double>(size);
  }
  if (is_known) return div(total, scalar_like(x, std::max(count - correction, 0.0), where), where);
  // By index: the array of ones has no tags.
  std::vector<AxisRef> indices;
  for (const std::int64_t axis : axes_of(x, axes, op, where)) indices.emplace_back(axis);
  const AxisList resolved{std::span<const AxisRef>(indices)};
  const Tensor counted = sub(sum(filled_like(x, 1, x.dtype(), where), resolved, keep_dims, where),
                             scalar_like(x, correction, where), where);
  return div(total, maximum(counted, scalar_like(x, 0, where), where), where);
}

}  // namespace

Tensor logsumexp(const Tensor& array, const AxisList& axes, bool keep_dims,
                 const std::source_location& line) {
  const Tensor x = at_least_f32("logsumexp", array, line);
  const Tensor largest = stop_gradient(max(x, axes, true, line), line);
  const Tensor offset = where(is_finite(largest, line), largest, scalar_like(x, 0, line), line);
  const Tensor total = sum(exp(sub(x, offset, line), line), axes, keep_dims, line);
  // The sum over axes of size 1 takes them away.
  const Tensor added = keep_dims ? offset : sum(offset, axes, false, line);
  return rounded(add(log(total, line), added, line), array.dtype(), line);
}

Tensor variance(const Tensor& x, const AxisList& axes, double correction, bool keep_dims,
                const std::source_location& where) {
  const Tensor y = computed_variance("variance", x, axes, correction, keep_dims, where);
  return rounded(y, x.dtype(), where);
}

Tensor standard_deviation(const Tensor& x, const AxisList& axes, double correction, bool keep_dims,
                          const std::source_location& where) {
  const Tensor squared =
      computed_variance("standard_deviation", x, axes, correction, keep_dims, where);
  const Tensor y = beside_zero(squared, where, [&](const Tensor& v) { return sqrt(v, where); });
  return rounded(y, x.dtype(), where);
}

Tensor norm(const Tensor& array, double p, const AxisList& axes, bool keep_dims,
            const std::source_location& line) {
  constexpr std::string_view name = "norm";
  const Tensor x = at_least_f32(name, array, line);
  if (std::isnan(p)) fail_at(line, Errc::bad_argument, name, "p is a NaN");
  const auto compute = [&]() -> Tensor {
    if (p == 0) return cast(count_nonzero(x, axes, keep_dims, line), x.dtype(), line);
    if (p == 1) return sum(abs(x, line), axes, keep_dims, line);
    if (p == 2) {
      return beside_zero(sum(square(x, line), axes, keep_dims, line), line,
                         [&](const Tensor& s) { return sqrt(s, line); });
    }
    if (std::isinf(p)) {
      return p > 0 ? max(abs(x, line), axes, keep_dims, line)
                   : min(abs(x, line), axes, keep_dims, line);
    }
    const auto power = [&](const Tensor& base, double exponent) {
      const Tensor to = scalar_like(x, exponent, line);
      if (exponent < 0) return pow(base, to, line);  // inf at 0
      return beside_zero(base, line, [&](const Tensor& b) { return pow(b, to, line); });
    };
    return power(sum(power(abs(x, line), p), axes, keep_dims, line), 1 / p);
  };
  return rounded(compute(), array.dtype(), line);
}

Tensor count_nonzero(const Tensor& x, const AxisList& axes, bool keep_dims,
                     const std::source_location& where) {
  if (x.dtype(where) == boolean) return sum(x, axes, keep_dims, where);
  return sum(ne(x, scalar_like(x, 0, where), where), axes, keep_dims, where);
}

}  // namespace tenon
