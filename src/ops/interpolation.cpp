#include "ops/builder.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/interpolation.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/predicate.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/selection.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/sort.hpp>
#include <tenon/ops/statistics.hpp>
#include <tenon/ops/where.hpp>

#include <span>
#include <string_view>

namespace tenon {
namespace {

void require_real(std::string_view op, const Tensor& x, const std::source_location& where) {
  if (x.dtype(where) == f32 || x.dtype() == f64) return;
  fail_at(where, Errc::unsupported_dtype, op,
          fmt::format("needs f32 or f64, got {}", to_string(x.shape())));
}

/// Element `i` of a vector, negative from its end, as a scalar.
Tensor element(const Tensor& x, std::int64_t i, const std::source_location& where) {
  return squeeze(slice(x, 0, i, i == -1 ? to_end : i + 1, 1, where), 0, where);
}

HistogramResult counted(const Tensor& array, const Tensor& edges, std::int64_t bins,
                        const HistogramOptions& options, const std::source_location& line) {
  const Tensor x = flatten(array.with_tags({}), 0, -1, line);
  const Tensor inside = logical_and(ge(x, element(edges, 0, line), line),
                                    le(x, element(edges, -1, line), line), line);
  const Tensor found = searchsorted(edges, x, true, line) - 1;
  const Tensor bin = clamp(found, 0, static_cast<double>(bins - 1), line);
  const Tensor outside = scalar_like(bin, static_cast<double>(bins), line);
  Tensor weights;
  if (!options.weights.is_empty()) {
    if (options.weights.rank(line) != array.rank()) {
      fail_at(line, Errc::shape_mismatch, "histogram",
              fmt::format("weights {} for {}", to_string(options.weights.shape()),
                          to_string(array.shape())));
    }
    weights = flatten(options.weights.with_tags({}), 0, -1, line);
  }
  Tensor counts = bincount(where(inside, bin, outside, line), bins + 1, weights, line);
  counts = slice(counts, 0, 0, bins, 1, line);
  if (options.density) {
    counts = cast(counts, x.dtype(), line);
    const Tensor widths =
        sub(slice(edges, 0, 1, to_end, 1, line), slice(edges, 0, 0, -1, 1, line), line);
    counts = div(div(counts, sum(counts, {}, false, line), line), widths, line);
  }
  return {counts, edges};
}

}  // namespace

Tensor interp(const Tensor& x, const Tensor& tagged_xs, const Tensor& tagged_ys,
              std::optional<double> left, std::optional<double> right,
              const std::source_location& line) {
  constexpr std::string_view name = "interp";
  require_real(name, x, line);
  const Shape &a = tagged_xs.shape(line), &b = tagged_ys.shape(line);
  if (a.dtype() != x.dtype() || b.dtype() != x.dtype()) {
    fail_at(line, Errc::unsupported_dtype, name,
            fmt::format("{}, {} and {}", to_string(x.shape()), to_string(a), to_string(b)));
  }
  if (a.rank() != 1 || b.rank() != 1 || a[0] != b[0] || !is_static(a[0]) || a[0] == 0) {
    fail_at(line, Errc::shape_mismatch, name,
            fmt::format("needs two vectors of one known size, got {} and {}", to_string(a),
                        to_string(b)));
  }
  const Tensor xs = tagged_xs.with_tags({}), ys = tagged_ys.with_tags({});
  const auto number = [&](const std::optional<double>& value, const Tensor& otherwise) {
    return value ? scalar_like(x, *value, line) : otherwise;
  };
  const Tensor first = element(xs, 0, line), last = element(xs, -1, line);
  const Tensor y_first = element(ys, 0, line), y_last = element(ys, -1, line);
  Tensor y = x;  // of a single sample only a NaN is left of it
  if (a[0] > 1) {
    const Tensor after =
        clamp(searchsorted(xs, x, true, line), 1, static_cast<double>(a[0] - 1), line);
    const Tensor x0 = gather(xs, after - 1, 0, line), x1 = gather(xs, after, 0, line);
    const Tensor y0 = gather(ys, after - 1, 0, line), y1 = gather(ys, after, 0, line);
    const Tensor is_jump = eq(x0, x1, line);
    const Tensor width = where(is_jump, scalar_like(x, 1, line), sub(x1, x0, line), line);
    y = add(y0, mul(sub(x, x0, line), div(sub(y1, y0, line), width, line), line), line);
  }
  y = where(ge(x, last, line), y_last, y, line);
  if (right) y = where(gt(x, last, line), scalar_like(x, *right, line), y, line);
  return where(lt(x, first, line), number(left, y_first), y, line);
}

Tensor trapezoid(const Tensor& y, const Tensor& x, double step, const AxisRef& along,
                 const std::source_location& line) {
  constexpr std::string_view name = "trapezoid";
  const int axis = axis_of(y, along, name, line);
  if (!is_floating(y.dtype())) {
    fail_at(line, Errc::unsupported_dtype, name,
            fmt::format("needs a floating type, got {}", to_string(y.shape())));
  }
  if (y.dim(axis) == 0) {
    fail_at(line, Errc::bad_shape, name,
            fmt::format("an axis of size 0: {}", to_string(y.shape())));
  }
  const auto both = [&](const Tensor& of, int at) {
    return std::pair(slice(of, at, 0, -1, 1, line), slice(of, at, 1, to_end, 1, line));
  };
  const auto [before, after] = both(y, axis);
  Tensor areas = 0.5 * add(before, after, line);
  if (x.is_empty()) {
    areas = areas * step;
  } else {
    const bool is_vector = x.rank(line) == 1 && y.rank() > 1;
    bool fits = is_vector ? x.dim(0) == y.dim(axis) : x.rank() == y.rank();
    for (int i = 0; fits && !is_vector && i < y.rank(); ++i) fits = x.dim(i) == y.dim(i);
    if (!fits) {
      fail_at(line, Errc::shape_mismatch, name,
              fmt::format("places {} of {}", to_string(x.shape()), to_string(y.shape())));
    }
    const auto [left, right] = both(x, is_vector ? 0 : axis);
    Tensor widths = sub(right, left, line);
    for (int i = axis + 1; is_vector && i < y.rank(); ++i) widths = unsqueeze(widths, -1, {}, line);
    areas = mul(areas, widths, line);
  }
  return sum(areas, axis, false, line);
}

HistogramResult histogram(const Tensor& x, std::int64_t bins, const HistogramOptions& options,
                          const std::source_location& line) {
  constexpr std::string_view name = "histogram";
  require_real(name, x, line);
  if (bins < 1 || !(options.low <= options.high)) {
    fail_at(line, Errc::bad_argument, name,
            fmt::format("{} bins from {} to {}", bins, options.low, options.high));
  }
  const bool is_stated = options.low != 0 || options.high != 0;
  Tensor low =
      is_stated ? scalar_like(x, options.low, line) : min(x.with_tags({}), {}, false, line);
  Tensor high =
      is_stated ? scalar_like(x, options.high, line) : max(x.with_tags({}), {}, false, line);
  const Tensor is_point = eq(low, high, line);
  low = where(is_point, low - 0.5, low, line);
  high = where(is_point, high + 0.5, high, line);
  const Iota numbers{.size = bins, .dtype = x.dtype()};
  const Tensor places = record_beside(x, op_def<Iota>(), &numbers, line);
  const Tensor width = sub(high, low, line) / static_cast<double>(bins);
  const Tensor edges =
      concat({add(low, mul(places, width, line), line), unsqueeze(high, 0, {}, line)}, 0, line);
  return counted(x, edges, bins, options, line);
}

HistogramResult histogram(const Tensor& x, const Tensor& edges, const HistogramOptions& options,
                          const std::source_location& line) {
  constexpr std::string_view name = "histogram";
  require_real(name, x, line);
  if (edges.rank(line) != 1 || edges.dtype() != x.dtype() || !is_static(edges.dim(0)) ||
      edges.dim(0) < 2) {
    fail_at(line, Errc::bad_argument, name,
            fmt::format("needs two edges or more of its type, got {} for {}",
                        to_string(edges.shape()), to_string(x.shape())));
  }
  return counted(x, edges.with_tags({}), edges.dim(0) - 1, options, line);
}

Tensor cdist(const Tensor& a, const Tensor& b, double p, const std::source_location& where) {
  if (a.rank(where) < 2 || b.rank(where) < 2) {
    fail_at(where, Errc::bad_shape, "cdist",
            fmt::format("needs [..., P, M] and [..., R, M], got {} and {}", to_string(a.shape()),
                        to_string(b.shape())));
  }
  const Tensor difference = sub(unsqueeze(a.with_tags({}), -2, {}, where),
                                unsqueeze(b.with_tags({}), -3, {}, where), where);
  return norm(difference, p, -1, false, where);
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, const AxisRef& axis, double eps,
                         const std::source_location& where) {
  const auto length = [&](const Tensor& x) {
    return maximum(norm(x, 2, axis, true, where), scalar_like(x, eps, where), where);
  };
  const Tensor products = mul(div(a, length(a), where), div(b, length(b), where), where);
  return sum(products, axis, false, where);
}

}  // namespace tenon
