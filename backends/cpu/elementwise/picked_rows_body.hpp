#pragma once

// Sums of rows that lie anywhere. Included after a header of simd/, by the sources of one instruction set each.
#include "picked_rows.hpp"
#include "trigonometry_body.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

TENON_INLINE Doubles some_doubles(const float* x) {
  FewFloats some;
  __builtin_memcpy(&some, x, sizeof some);
  return widened(some);
}
TENON_INLINE Doubles some_doubles(const double* x) {
  Doubles some;
  __builtin_memcpy(&some, x, sizeof some);
  return some;
}

constexpr int few_doubles = Simd::lanes / 2;  ///< of Doubles

/// Columns of `vectors` vectors. Rows ahead are prefetched: the hardware does not know where they lie.
template <int vectors, class T>
TENON_INLINE void sum_columns(const char* x, const std::int64_t* places, std::int64_t rows,
                              std::int64_t known, double* sums) {
  constexpr std::int64_t ahead = 8, line = 64;
  constexpr std::int64_t bytes = std::int64_t{vectors} * few_doubles * std::int64_t{sizeof(T)};
  Doubles part[static_cast<unsigned>(vectors)] = {};
  for (std::int64_t r = 0; r < rows; ++r) {
    if (r + ahead < known) {
      for (std::int64_t i = 0; i < bytes; i += line) {
        __builtin_prefetch(x + places[r + ahead] + i);
      }
    }
    const auto* row = reinterpret_cast<const T*>(x + places[r]);
    for (int v = 0; v < vectors; ++v) part[v] += some_doubles(row + v * few_doubles);
  }
  __builtin_memcpy(sums, part, sizeof part);
}

template <class T>
void sum_rows_of(const void* from, const std::int64_t* places, std::int64_t rows,
                 std::int64_t known, std::int64_t columns, double* sums) {
  constexpr std::int64_t unit = sizeof(T), wide = 8 * few_doubles;
  const auto* x = static_cast<const char*>(from);
  std::int64_t c = 0;
  for (; c + wide <= columns; c += wide) {
    sum_columns<8, T>(x + c * unit, places, rows, known, sums + c);
  }
  for (; c + few_doubles <= columns; c += few_doubles) {
    sum_columns<1, T>(x + c * unit, places, rows, known, sums + c);
  }
  for (; c < columns; ++c) {
    double sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      sum += static_cast<double>(*reinterpret_cast<const T*>(x + places[r] + c * unit));
    }
    sums[c] = sum;
  }
}

void run_picked_rows(Compute type, const void* x, const std::int64_t* places, std::int64_t rows,
                     std::int64_t known, std::int64_t columns, double* sums) noexcept {
  if (type == Compute::f32) return sum_rows_of<float>(x, places, rows, known, columns, sums);
  sum_rows_of<double>(x, places, rows, known, columns, sums);
}

}  // namespace
}  // namespace tenon::cpu
