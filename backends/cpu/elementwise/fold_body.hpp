#pragma once

// Rows folded to a number each. Included by the sources of one instruction set each.
#include "gathering_body.hpp"
#include "row_body.hpp"
#include "typed_body.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// From groups of 2 half numbers of a and of b those of `half` numbers f(second, first) of what is
/// `half` apart.
template <int half, class V, class F, int... i>
TENON_INLINE V folded(const V& a, const V& b, F f, std::integer_sequence<int, i...>) {
  const V first = __builtin_shufflevector(a, b, (i / half * 2 * half + i % half)...);
  const V second = __builtin_shufflevector(a, b, (i / half * 2 * half + i % half + half)...);
  return f(second, first);
}
/// From 2 half vectors in `v` the vector of what each of them folds to, by halves.
template <int half, int size, class V, class F>
TENON_INLINE void fold_vectors(V* v, F f) {
  for (int i = 0; i < half; ++i) {
    v[i] = folded<half>(v[2 * i], v[2 * i + 1], f, std::make_integer_sequence<int, size>());
  }
  if constexpr (half > 1) fold_vectors<half / 2, size>(v, f);
}

/// Calls f with the addresses of `group` rows and the number of the first: of the last one again where
/// fewer are left.
template <std::size_t group, class F>
TENON_INLINE void for_each_group(const float* x, std::int64_t step, std::int64_t rows, F f) {
  const auto* const bytes = reinterpret_cast<const char*>(x);
  constexpr auto height = static_cast<std::int64_t>(group);
  for (std::int64_t i = 0; i < rows; i += height) {
    const float* at[group];
    for (std::int64_t r = 0; r < height; ++r) {
      const std::int64_t row = i + r < rows ? i + r : rows - 1;
      at[r] = reinterpret_cast<const float*>(bytes + row * step);
    }
    f(at, i);
  }
}

template <class Pick>
void pick_rows(const float* x, std::int64_t step, std::int64_t rows, std::int64_t count,
               float* results) {
  for_each_group<static_cast<std::size_t>(lanes)>(
      x, step, rows, [=](const float* const* at, std::int64_t i) {
        Float best[lanes];
        bool is_bad[lanes];
        for (int r = 0; r < lanes; ++r) {
          NotNumbers bad;
          best[r] = pick_lanes(at[r], count, Pick{}, bad);
          is_bad[r] = bad.any();
        }
        fold_vectors<lanes / 2, lanes>(best, Pick{});
        float values[lanes];
        Simd::store_float(values, best[0]);
        for (int r = 0; r < lanes && i + r < rows; ++r) {
          results[i + r] = is_bad[r] ? __builtin_nanf("") : values[r];
        }
      });
}

void sum_rows(const float* x, std::int64_t step, std::int64_t rows, std::int64_t count,
              double* results) {
  for_each_group<wide_lanes>(x, step, rows, [=](const float* const* at, std::int64_t i) {
    Doubles sums[wide_lanes];
#pragma GCC unroll 4
    for (int r = 0; r < wide_lanes; r += 2) begin_totals<2>(at + r, count, sums + r, Itself{});
    fold_vectors<wide_lanes / 2, wide_lanes>(sums, [](Doubles a, Doubles b) { return b + a; });
    const std::int64_t some = rows - i < wide_lanes ? rows - i : wide_lanes;
    __builtin_memcpy(results + i, sums, static_cast<std::size_t>(some) * sizeof(double));
  });
}

/// Extremes are the same in any order but for the sign of a zero, so that of long rows more are kept, which do not wait for each other.
template <class T>
void fold_typed_rows_by(Gathering op, const void* x, std::int64_t step, std::int64_t rows,
                        std::int64_t count, void* sums) {
  constexpr int few = 16, more = 32;
  const bool is_extreme = op == Gathering::max || op == Gathering::min;
  if (is_extreme && count >= more) {
    auto* const to = static_cast<T*>(sums);
    if (op == Gathering::max) {
      return fold_typed_rows_of<more, T>(x, step, rows, count, to, LargerSum{});
    }
    return fold_typed_rows_of<more, T>(x, step, rows, count, to, SmallerSum{});
  }
  with_gathering<T>(op, [=]<class Sum>(auto f, Kept<Sum>) {
    fold_typed_rows_of<few, T>(x, step, rows, count, static_cast<Sum*>(sums), f);
  });
}

void fold_typed_rows(Compute type, Gathering op, const void* x, std::int64_t step,
                     std::int64_t rows, std::int64_t count, void* sums) {
  switch (type) {
    case Compute::i32:
      return fold_typed_rows_by<std::int32_t>(op, x, step, rows, count, sums);
    case Compute::i64:
      return fold_typed_rows_by<std::int64_t>(op, x, step, rows, count, sums);
    case Compute::f32:
      return fold_typed_rows_of<16, float>(x, step, rows, count, static_cast<double*>(sums),
                                           MultiplySums{});
    case Compute::f64:
      return fold_typed_rows_by<double>(op, x, step, rows, count, sums);
  }
}

/// Groups of rows whose last one would be folded again and again, one by one.
template <class Result, class F>
TENON_INLINE bool are_few(const float* x, std::int64_t step, std::int64_t rows, Result* results,
                          F fold) {
  if (2 * rows > lanes / 2) return false;
  const auto* const bytes = reinterpret_cast<const char*>(x);
  for (std::int64_t r = 0; r < rows; ++r) {
    results[r] = fold(reinterpret_cast<const float*>(bytes + r * step));
  }
  return true;
}

void run_fold_rows(Compute type, Gathering op, const void* from, std::int64_t step,
                   std::int64_t rows, std::int64_t count, void* sums) noexcept {
  if (type != Compute::f32 || op == Gathering::product) {
    return fold_typed_rows(type, op, from, step, rows, count, sums);
  }
  const auto* const x = static_cast<const float*>(from);
  auto* const extremes = static_cast<float*>(sums);
  auto* const results = static_cast<double*>(sums);
  switch (op) {
    case Gathering::max:
      if (are_few(x, step, rows, extremes,
                  [=](const float* row) { return run_max_row(row, count); }))
        return;
      return pick_rows<Largest>(x, step, rows, count, extremes);
    case Gathering::min:
      if (are_few(x, step, rows, extremes,
                  [=](const float* row) { return run_min_row(row, count); }))
        return;
      return pick_rows<Smallest>(x, step, rows, count, extremes);
    default:
      if (are_few(x, step, rows, results,
                  [=](const float* row) { return run_sum_row(row, count); }))
        return;
      return sum_rows(x, step, rows, count, results);
  }
}

}  // namespace
}  // namespace tenon::cpu
