#include "array/size_text.hpp"
#include "ops/builder.hpp"

#include <tenon/ops/attention_mask.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace {

/// 0 where `sees`, -inf elsewhere.
Tensor hiding(const Tensor& sees, const std::source_location& line) {
  const Shape number(std::span<const Axis>(), f32);
  return where(sees, full(0, number, line),
               full(-std::numeric_limits<double>::infinity(), number, line), line);
}

/// A number of every row, or of all, before the axes of queries and keys.
Tensor before_scores(const Tensor& x, const std::source_location& where) {
  const Tensor plain = x.with_tags({});
  return plain.rank(where) == 0 ? plain : split_axis(plain, 0, {plain.dim(0), 1, 1, 1}, where);
}

/// Positions of the queries: [S, 1], or [B, 1, S, 1].
Tensor places_of(std::int64_t queries, std::int64_t keys, const Tensor& position,
                 const std::source_location& where) {
  const bool has_position = !position.is_empty();
  const Tensor steps = iota(queries, i32, has_position ? 0 : keys - queries, 1, where);
  const Tensor column = unsqueeze(steps, 1, {}, where);
  return has_position ? add(column, before_scores(position, where), where) : column;
}

void require_sizes(std::string_view op, std::span<const std::int64_t> sizes,
                   const std::source_location& where) {
  for (const std::int64_t size : sizes) {
    if (size < 0)
      fail_at(where, Errc::bad_argument, op, fmt::format("a size of {}", size_text(size)));
  }
}

}  // namespace

Tensor alibi_slopes(std::int64_t heads, double max_bias, const std::source_location& where) {
  if (heads < 1 || !(max_bias > 0) || !std::isfinite(max_bias)) {
    fail_at(where, Errc::bad_argument, "alibi_slopes",
            fmt::format("{} heads, a bias of {}", heads, max_bias));
  }
  const auto whole = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const auto times = [&](const Tensor& x, double by) {
    return mul(x, scalar_like(x, by, where), where);
  };
  const double step = -max_bias / static_cast<double>(whole);
  const Tensor first = exp2(times(cast(iota(whole, i32, 1, 1, where), f32, where), step), where);
  if (whole == heads) return first;
  const Tensor odd = cast(iota(heads - whole, i32, 1, 2, where), f32, where);
  return concat({first, exp2(times(odd, step / 2), where)}, 0, where);
}

Tensor alibi_mask(const Tensor& slopes, std::int64_t queries, std::int64_t keys,
                  const Tensor& position, const std::source_location& where) {
  require_sizes("alibi_mask", std::vector{queries, keys}, where);
  const Tensor key = iota(keys, i32, 0, 1, where);
  const Tensor away = cast(sub(key, places_of(queries, keys, position, where), where), f32, where);
  const Tensor plain = slopes.with_tags({});
  const Tensor of_heads = split_axis(plain, 0, {plain.dim(0), 1, 1}, where);
  return neg(mul(of_heads, abs(away, where), where), where);
}

Tensor segment_mask(const Tensor& of_queries, const Tensor& of_keys,
                    const std::source_location& where) {
  const Tensor rows = unsqueeze(unsqueeze(of_queries.with_tags({}), 1, {}, where), 3, {}, where);
  const Tensor columns = unsqueeze(unsqueeze(of_keys.with_tags({}), 1, {}, where), 1, {}, where);
  return hiding(eq(rows, columns, where), where);
}

Tensor segments_of(std::span<const std::int64_t> sizes, const std::source_location& where) {
  require_sizes("segments_of", sizes, where);
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    parts.push_back(full(static_cast<double>(i), Shape({sizes[i]}, i32), where));
  }
  if (parts.empty()) return full(0, Shape({0}, i32), where);
  return parts.size() == 1 ? parts[0] : concat(std::span<const Tensor>(parts), 0, where);
}

Tensor prefix_mask(const Tensor& prefix, std::int64_t queries, std::int64_t keys,
                   const Tensor& position, const std::source_location& where) {
  require_sizes("prefix_mask", std::vector{queries, keys}, where);
  const Tensor key = iota(keys, i32, 0, 1, where);
  const Tensor causal = le(key, places_of(queries, keys, position, where), where);
  return hiding(logical_or(causal, lt(key, before_scores(prefix, where), where), where), where);
}

Tensor streaming_mask(std::int64_t window, std::int64_t first_keys, std::int64_t queries,
                      std::int64_t keys, const Tensor& position,
                      const std::source_location& where) {
  require_sizes("streaming_mask", std::vector{window, first_keys, queries, keys}, where);
  const Tensor key = iota(keys, i32, 0, 1, where);
  const Tensor place = places_of(queries, keys, position, where);
  const Tensor causal = le(key, place, where);
  // As many as there are positions at most: sums stay within i32.
  const auto number = [&](std::int64_t size) {
    return scalar_like(key, static_cast<double>(std::min<std::int64_t>(size, 1 << 30)), where);
  };
  const Tensor near = gt(add(key, number(window), where), place, where);
  const Tensor kept = logical_or(near, lt(key, number(first_keys), where), where);
  return hiding(logical_and(causal, kept, where), where);
}

}  // namespace tenon
