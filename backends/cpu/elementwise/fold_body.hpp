#pragma once

// Rows folded to a number each. Included by the sources of one instruction set each.
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

constexpr int wide_lanes = lanes / 2;         ///< of Doubles
constexpr int row_vectors = 16 / wide_lanes;  ///< of the 16 sums of total()

/// total() of several rows at once, but for its last steps: each element of a vector is the sum of
/// those 16 / wide_lanes apart.
template <std::size_t rows>
TENON_INLINE void begin_totals(const float* const* x, std::int64_t count, Doubles* sums) {
  Doubles partial[rows][row_vectors] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (std::size_t r = 0; r < rows; ++r) {
      for (int v = 0; v < row_vectors; ++v) {
        FewFloats part;
        __builtin_memcpy(&part, x[r] + i + v * wide_lanes, sizeof part);
        partial[r][v] += widened(part);
      }
    }
  }
  for (int v = 0; i < count; i += lanes, v += 2) {
    for (std::size_t r = 0; r < rows; ++r) {
      const Float last = load(x[r] + i, count - i);  // zeros change no sum
      FewFloats parts[2];
      __builtin_memcpy(parts, &last, sizeof last);
      partial[r][v] += widened(parts[0]);
      partial[r][v + 1] += widened(parts[1]);
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    for (int half = row_vectors / 2; half > 0; half /= 2) {
      for (int v = 0; v < half; ++v) partial[r][v] += partial[r][v + half];
    }
    sums[r] = partial[r][0];
  }
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
    for (int r = 0; r < wide_lanes; r += 2) begin_totals<2>(at + r, count, sums + r);
    fold_vectors<wide_lanes / 2, wide_lanes>(sums, [](Doubles a, Doubles b) { return b + a; });
    const std::int64_t some = rows - i < wide_lanes ? rows - i : wide_lanes;
    __builtin_memcpy(results + i, sums, static_cast<std::size_t>(some) * sizeof(double));
  });
}

/// Element i belongs to result i mod `few`; rows of less elements are folded in order.
template <int few, class T, class Sum, class F>
void fold_typed_rows_of(const void* x, std::int64_t step, std::int64_t rows, std::int64_t count,
                        Sum* sums, F f) {
  using Sums = typename SumsOf<Sum>::Type;
  constexpr int each = static_cast<int>(sizeof(Sums) / sizeof(Sum)), vectors = few / each;
  const auto* from = static_cast<const char*>(x);
  for (std::int64_t r = 0; r < rows; ++r, from += step) {
    const auto* const row = reinterpret_cast<const T*>(from);
    if (count < few) {
      auto sum = static_cast<Sum>(row[0]);
      for (std::int64_t i = 1; i < count; ++i) sum = f(sum, static_cast<Sum>(row[i]));
      sums[r] = sum;
      continue;
    }
    Sums part[static_cast<unsigned>(vectors)];
    for (int v = 0; v < vectors; ++v) part[v] = load_as_sums<T, Sum>(row + v * each);
    std::int64_t i = few;
    for (; i + few <= count; i += few) {
      for (int v = 0; v < vectors; ++v) {
        part[v] = f(part[v], load_as_sums<T, Sum>(row + i + v * each));
      }
    }
    Sum sum[static_cast<unsigned>(few)];
    if (i < count) {
      __builtin_memcpy(sum, part, sizeof sum);
      for (std::int64_t j = 0; i < count; ++i, ++j) sum[j] = f(sum[j], static_cast<Sum>(row[i]));
      __builtin_memcpy(part, sum, sizeof sum);
    }
    for (int half = vectors / 2; half > 0; half /= 2) {
      for (int v = 0; v < half; ++v) part[v] = f(part[v], part[v + half]);
    }
    __builtin_memcpy(sum, part, sizeof part[0]);
    for (int half = each / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) sum[j] = f(sum[j], sum[j + half]);
    }
    sums[r] = sum[0];
  }
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
