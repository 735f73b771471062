#include "ops/builder.hpp"
#include "ops/computed_type.hpp"
#include "ops/filled.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/permute.hpp>
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
  const auto numbers = axes_of(x, axes, op, where);
  const Tensor squares = square(sub(x, mean(x, axes, true, where), where), where);
  if (correction == 0) return mean(squares, axes, keep_dims, where);
  const Tensor total = sum(squares, axes, keep_dims, where);
  const Shape& shape = x.shape(where);
  double count = 1;
  bool is_known = true;
  for (const std::int64_t axis : numbers) {
    const std::int64_t size = shape[static_cast<int>(axis)];
    is_known = is_known && is_static(size);
    count *= static_cast<double>(size);
  }
  if (is_known) return div(total, scalar_like(x, std::max(count - correction, 0.0), where), where);
  // By index: the array of ones has no tags.
  std::vector<AxisRef> indices;
  for (const std::int64_t axis : numbers) indices.emplace_back(axis);
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

Tensor nansum(const Tensor& array, const AxisList& axes, bool keep_dims,
              const std::source_location& line) {
  const Tensor x = at_least_f32("nansum", array, line);
  const Tensor numbers = where(is_nan(x, line), scalar_like(x, 0, line), x, line);
  return rounded(sum(numbers, axes, keep_dims, line), array.dtype(), line);
}

Tensor nanmean(const Tensor& array, const AxisList& axes, bool keep_dims,
               const std::source_location& line) {
  const Tensor x = at_least_f32("nanmean", array, line);
  const Tensor unknown = is_nan(x, line);
  const Tensor total = sum(where(unknown, scalar_like(x, 0, line), x, line), axes, keep_dims, line);
  const Tensor count = sum(logical_not(unknown, line), axes, keep_dims, line);
  return rounded(div(total, cast(count, x.dtype(), line), line), array.dtype(), line);
}

Tensor cov(const Tensor& array, double correction, const std::source_location& where) {
  Tensor x = at_least_f32("cov", array, where).with_tags({});
  const int rank = x.rank();
  if (rank != 1 && rank != 2) {
    fail_at(where, Errc::bad_shape, "cov",
            fmt::format("needs a vector or a matrix, got {}", to_string(array.shape())));
  }
  if (rank == 1) x = unsqueeze(x, 0, {}, where);
  const Tensor centred = sub(x, mean(x, -1, true, where), where);
  const Tensor products = matmul(centred, transpose(centred, -2, -1, where), where);
  const Tensor count = size_along(x, 1, x.dtype()) - correction;
  Tensor y = div(products, maximum(count, scalar_like(count, 0, where), where), where);
  if (rank == 1) y = squeeze(squeeze(y, 0, where), 0, where);
  return rounded(y, array.dtype(), where);
}

Tensor corrcoef(const Tensor& array, const std::source_location& where) {
  const Tensor x = at_least_f32("corrcoef", array, where).with_tags({}), c = cov(x, 1, where);
  if (c.rank() == 0) return rounded(div(c, c, where), array.dtype(), where);
  const Tensor deviations = standard_deviation(x, -1, 1, true, where);  // [V, 1]
  const Tensor products = mul(deviations, transpose(deviations, -2, -1, where), where);
  return rounded(clamp(div(c, products, where), -1, 1, where), array.dtype(), where);
}

Tensor count_nonzero(const Tensor& x, const AxisList& axes, bool keep_dims,
                     const std::source_location& where) {
  if (x.dtype(where) == boolean) return sum(x, axes, keep_dims, where);
  return sum(ne(x, scalar_like(x, 0, where), where), axes, keep_dims, where);
}

}  // namespace tenon
