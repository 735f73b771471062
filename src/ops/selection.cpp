#include "array/size_text.hpp"
#include "ops/builder.hpp"
#include "ops/filled.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/cumsum.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/pad.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/scatter.hpp>
#include <tenon/ops/selection.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/where.hpp>

#include <algorithm>
#include <string_view>
#include <vector>

namespace tenon {
namespace {

/// Every element, in row-major order.
Tensor row_of(const Tensor& x, const std::source_location& where) {
  const Tensor plain = x.with_tags({});
  return plain.rank(where) == 0 ? unsqueeze(plain, 0, {}, where) : flatten(plain, 0, -1, where);
}

void require_rank(std::string_view op, const Tensor& x, int least,
                  const std::source_location& where) {
  if (x.rank(where) >= least) return;
  fail_at(where, Errc::bad_shape, op,
          fmt::format("needs rank {} or more, got {}", least, to_string(x.shape())));
}

void require_capacity(std::string_view op, std::int64_t capacity,
                      const std::source_location& where) {
  if (capacity < 0)
    fail_at(where, Errc::bad_argument, op, fmt::format("a size of {}", size_text(capacity)));
}

/// A vector of one value in x's graph.
Tensor vector_beside(const Tensor& x, std::int64_t size, double value, DType dtype,
                     std::string_view op, const std::source_location& where) {
  const Full made{.value = value, .dims = {size}, .dtype = dtype};
  return located(where, op, [&] { return record_beside(x, op_def<Full>(), &made, where); });
}

/// Numbers of columns, i64 [columns], and for each row the column where its element of the k-th diagonal stands,
/// i64 [rows, 1].
struct Diagonal {
  Tensor columns, of_rows;
};

Diagonal diagonal_at(const Tensor& rows, const Tensor& columns, std::int64_t k,
                     const std::source_location& where) {
  const Tensor shifted = add(rows, scalar_like(rows, static_cast<double>(k), where), where);
  return {columns, unsqueeze(shifted, -1, {}, where)};
}

Diagonal diagonal_of(std::string_view op, const Tensor& x, std::int64_t k,
                     const std::source_location& where) {
  require_rank(op, x, 2, where);
  return diagonal_at(iota(x, -2, i64, 0, 1, where), iota(x, -1, i64, 0, 1, where), k, where);
}

/// The first `capacity` elements of `row` that are chosen, and how many are.
MaskedSelectResult compact(const Tensor& row, const Tensor& chosen, std::int64_t capacity,
                           double fill, std::string_view op, const std::source_location& line) {
  const Tensor numbers = cast(chosen, i64, line);
  // All others go to one more place, which is cut off.
  const Tensor beyond = scalar_like(numbers, static_cast<double>(capacity), line);
  const Tensor one = scalar_like(numbers, 1, line);
  const Tensor place = sub(cumsum(numbers, 0, line), one, line);
  const Tensor places = where(chosen, minimum(place, beyond, line), beyond, line);
  const Tensor empty = vector_beside(row, capacity + 1, fill, row.dtype(line), op, line);
  return {slice(scatter(empty, places, row, 0, {}, line), 0, 0, capacity, 1, line),
          sum(numbers, {}, false, line)};
}

}  // namespace

Tensor bincount(const Tensor& ids, std::int64_t size, const Tensor& weights,
                const std::source_location& where) {
  constexpr std::string_view name = "bincount";
  require_capacity(name, size, where);
  const Shape& shape = ids.shape(where);
  if (shape.dtype() != i32 && shape.dtype() != i64) {
    fail_at(where, Errc::unsupported_dtype, name,
            fmt::format("needs i32 or i64, got {}", to_string(shape)));
  }
  const Tensor row = row_of(ids, where);
  if (weights.is_empty()) {
    return scatter(vector_beside(ids, size, 0, i64, name, where), row,
                   vector_beside(ids, 1, 1, i64, name, where), 0, "add", where);
  }
  const Shape& weighted = weights.shape(where);
  bool fits = shape.rank() == weighted.rank();
  for (int i = 0; fits && i < shape.rank(); ++i) fits = sizes_agree(shape[i], weighted[i]);
  if (!fits) {
    fail_at(where, Errc::shape_mismatch, name,
            fmt::format("ids {}, weights {}", to_string(shape), to_string(weighted)));
  }
  return scatter(vector_beside(ids, size, 0, weighted.dtype(), name, where), row,
                 row_of(weights, where), 0, "add", where);
}

Tensor one_hot(const Tensor& ids, std::int64_t classes, double on, double off, DType dtype,
               const std::source_location& line) {
  const Tensor chosen = one_hot(ids, classes, boolean, line);
  const auto constant = [&](double value) {
    const Full op{.value = value, .dims = {}, .dtype = dtype};
    return located(line, "one_hot", [&] { return record_beside(ids, op_def<Full>(), &op, line); });
  };
  return where(chosen, constant(on), constant(off), line);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value,
                   const std::source_location& line) {
  const Tensor y = where(mask, value, x, line);
  const Shape &got = y.shape(line), &want = x.shape(line);
  bool fits = got.rank() == want.rank();
  for (int i = 0; fits && i < got.rank(); ++i) fits = sizes_agree(got[i], want[i]);
  if (!fits) {
    fail_at(line, Errc::shape_mismatch, "masked_fill",
            fmt::format("mask {} or value {} larger than {}", to_string(mask.shape()),
                        to_string(value.shape()), to_string(want)));
  }
  return y;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value,
                   const std::source_location& where) {
  return masked_fill(x, mask, scalar_like(x, value, where), where);
}

Tensor tril(const Tensor& x, std::int64_t k, const std::source_location& line) {
  const auto [columns, diagonal] = diagonal_of("tril", x, k, line);
  return where(gt(columns, diagonal, line), scalar_like(x, 0, line), x, line);
}

Tensor triu(const Tensor& x, std::int64_t k, const std::source_location& line) {
  const auto [columns, diagonal] = diagonal_of("triu", x, k, line);
  return where(lt(columns, diagonal, line), scalar_like(x, 0, line), x, line);
}

Tensor diagonal_matrix(const Tensor& x, std::int64_t k, const std::source_location& line) {
  require_rank("diagonal_matrix", x, 1, line);
  const std::int64_t above = std::max<std::int64_t>(k, 0), below = above - k;
  // Element i stands in row i + below.
  const Tensor padded = pad(x.with_tags({}), -1, below, above, 0.0, line);
  const Tensor numbers = iota(padded, -1, i64, 0, 1, line);
  const auto [columns, diagonal] = diagonal_at(numbers, numbers, k, line);
  return where(eq(columns, diagonal, line), unsqueeze(padded, -1, {}, line),
               scalar_like(padded, 0, line), line);
}

Tensor eye(std::int64_t rows, std::int64_t columns, std::int64_t k, DType dtype,
           const std::source_location& where) {
  const auto [numbers, diagonal] =
      diagonal_at(iota(rows, i64, 0, 1, where), iota(columns, i64, 0, 1, where), k, where);
  return cast(eq(numbers, diagonal, where), dtype, where);
}

NonzeroResult nonzero(const Tensor& x, std::int64_t capacity, std::int64_t fill,
                      const std::source_location& line) {
  constexpr std::string_view name = "nonzero";
  require_capacity(name, capacity, line);
  require_rank(name, x, 1, line);
  const Shape& shape = x.shape(line);
  Tensor row = row_of(x, line);
  if (x.dtype() != boolean) row = ne(row, scalar_like(row, 0, line), line);
  const auto [places, count] =
      compact(iota(row, 0, i64, 0, 1, line), row, capacity, -1, name, line);
  const Tensor is_unused = lt(places, scalar_like(places, 0, line), line);
  std::vector<Tensor> columns(static_cast<std::size_t>(shape.rank()));
  Tensor rest = places;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    Tensor index = rest;
    if (axis > 0) {
      const Tensor one = scalar_like(rest, 1, line);
      const Tensor size = maximum(size_along(x, axis, i64), one, line);
      index = remainder(rest, size, line);
      rest = div(rest, size, line);
    }
    columns[static_cast<std::size_t>(axis)] =
        where(is_unused, scalar_like(index, static_cast<double>(fill), line), index, line);
  }
  return {stack(columns, 1, {}, line), count};
}

MaskedSelectResult masked_select(const Tensor& x, const Tensor& mask, std::int64_t capacity,
                                 double fill, const std::source_location& where) {
  constexpr std::string_view name = "masked_select";
  require_capacity(name, capacity, where);
  if (mask.dtype(where) != boolean) {
    fail_at(where, Errc::unsupported_dtype, name,
            fmt::format("needs a bool mask, got {}", to_string(mask.shape())));
  }
  const Tensor chosen = broadcast_like(mask.with_tags({}), x, where);
  return compact(row_of(x, where), row_of(chosen, where), capacity, fill, name, where);
}

}  // namespace tenon
