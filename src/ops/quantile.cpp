#include "ops/builder.hpp"
#include "ops/computed_type.hpp"
#include "ops/filled.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/predicate.hpp>
#include <tenon/ops/quantile.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/sort.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace {

/// Rows of elements in ascending order, and how many of each row count.
struct SortedRows {
  Tensor values;  ///< [..., n]
  Tensor count;   ///< f64 [..., 1]; none where it is n, a known size
};

/// The reduced axes as a last one, sorted.
SortedRows sorted_rows(std::string_view op, const Tensor& array, const IntList& axes,
                       bool ignore_nan, const std::source_location& where) {
  Tensor x = at_least_f32(op, array, where).with_tags({});
  const int rank = x.rank(), reduced = static_cast<int>(axes.size());
  if (reduced == 0) {
    x = unsqueeze(x, -1, {}, where);
  } else {
    std::vector<AxisRef> order;
    const auto is_reduced = [&](int i) { return std::ranges::find(axes, i) != axes.end(); };
    for (int i = 0; i < rank; ++i) {
      if (!is_reduced(i)) order.emplace_back(i);
    }
    for (int i = 0; i < rank; ++i) {
      if (is_reduced(i)) order.emplace_back(i);
    }
    x = permute(x, std::span<const AxisRef>(order), where);
    if (reduced > 1) x = merge_axes(x, rank - reduced, rank - 1, {}, where);
  }
  if (x.dim(-1) == 0) {
    fail_at(where, Errc::bad_shape, op,
            fmt::format("no elements along the axes of {}", to_string(array.shape())));
  }
  SortedRows rows{sort(x, -1, false, where), {}};
  if (ignore_nan) {
    rows.count = sum(logical_not(is_nan(rows.values, where), where), -1, true, where);
  } else if (!is_static(x.dim(-1))) {
    rows.count = sum(filled_like(x, 1, i64, where), -1, true, where);
  }
  if (!rows.count.is_empty()) rows.count = cast(rows.count, f64, where);
  return rows;
}

/// Between two elements by a share, of x's type; where they are equal, which may be infinite, that. Not by their difference, which
/// may be beyond the type.
Tensor between(const Tensor& a, const Tensor& b, const Tensor& share,
               const std::source_location& line) {
  const Tensor made = add(mul(a, 1 - share, line), mul(b, share, line), line);
  return where(eq(a, b, line), a, made, line);
}

/// The quantile of each row: [..., 1].
Tensor quantile_of(const SortedRows& rows, double q, QuantileMethod method,
                   const std::source_location& line) {
  const Tensor& x = rows.values;
  if (rows.count.is_empty()) {
    const double place = q * static_cast<double>(x.dim(-1) - 1);
    double low = std::floor(place), high = std::ceil(place), share = place - low;
    if (method == QuantileMethod::lower) high = low;
    if (method == QuantileMethod::higher) low = high;
    if (method == QuantileMethod::nearest) low = high = std::nearbyint(place);
    if (method == QuantileMethod::midpoint) share = 0.5;
    const auto at = [&](double place_of) {
      const auto i = static_cast<std::int64_t>(place_of);
      return slice(x, -1, i, i + 1, 1, line);
    };
    const Tensor a = at(low);
    return low == high ? a : between(a, at(high), scalar_like(x, share, line), line);
  }
  const Tensor zero = scalar_like(rows.count, 0, line);
  const Tensor place = q * maximum(rows.count - 1, zero, line);
  Tensor low = floor(place, line), high = ceil(place, line), share = sub(place, low, line);
  if (method == QuantileMethod::lower) high = low;
  if (method == QuantileMethod::higher) low = high;
  if (method == QuantileMethod::nearest) low = high = round(place, line);
  if (method == QuantileMethod::midpoint) share = scalar_like(place, 0.5, line);
  const auto at = [&](const Tensor& place_of) {
    return take_along(x, cast(place_of, i64, line), -1, line);
  };
  const bool is_between = method == QuantileMethod::linear || method == QuantileMethod::midpoint;
  return is_between ? between(at(low), at(high), cast(share, x.dtype(), line), line) : at(low);
}

/// With `is_one`, without the axis of several.
Tensor quantiles(std::string_view op, const Tensor& array, std::span<const double> q, bool is_one,
                 const AxisList& reduced, const QuantileOptions& options,
                 const std::source_location& line) {
  for (const double each : q) {
    if (each >= 0 && each <= 1) continue;
    fail_at(line, Errc::bad_argument, op, fmt::format("a q of {} is outside [0, 1]", each));
  }
  if (q.empty()) fail_at(line, Errc::bad_argument, op, "no q");
  IntList axes = axes_of(array, reduced, op, line);
  const SortedRows rows = sorted_rows(op, array, axes, options.ignore_nan, line);
  const Tensor last = slice(rows.values, -1, -1, to_end, 1, line);
  const Tensor is_unknown = is_nan(last, line);
  std::vector<std::int64_t> kept(axes.begin(), axes.end());
  std::ranges::sort(kept);
  std::vector<Tensor> made;
  for (const double each : q) {
    Tensor y = quantile_of(rows, each, options.method, line);
    if (!options.ignore_nan) y = where(is_unknown, last, y, line);
    y = squeeze(y, -1, line);
    if (options.keep_dims) {
      for (const std::int64_t axis : kept) y = unsqueeze(y, axis, {}, line);
    }
    made.push_back(rounded(y, array.dtype(), line));
  }
  return is_one ? made[0] : stack(std::span<const Tensor>(made), 0, {}, line);
}

}  // namespace

Tensor quantile(const Tensor& x, double q, const AxisList& axes, const QuantileOptions& options,
                const std::source_location& where) {
  return quantiles("quantile", x, {&q, 1}, true, axes, options, where);
}

Tensor quantile(const Tensor& x, std::span<const double> q, const AxisList& axes,
                const QuantileOptions& options, const std::source_location& where) {
  return quantiles("quantile", x, q, false, axes, options, where);
}

Tensor median(const Tensor& x, const AxisList& axes, const QuantileOptions& options,
              const std::source_location& where) {
  const double half = 0.5;
  return quantiles("median", x, {&half, 1}, true, axes, options, where);
}

}  // namespace tenon
