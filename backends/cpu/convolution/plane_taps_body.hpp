#pragma once

// Included after a header of simd/, by the sources of one instruction set each.
#include "plane_taps.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

using Float = Simd::Float;

/// The first `count` elements, less than a vector has, and zeros behind them.
TENON_INLINE Float load_first(const float* x, std::int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), x);
#elif defined(__AVX2__)
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i few = _mm256_set1_epi32(static_cast<int>(count));
  return _mm256_maskload_ps(x, _mm256_cmpgt_epi32(few, numbers));
#else
  Float some = Simd::zero_float();
  for (std::int64_t i = 0; i < count; ++i) some[i] = x[i];
  return some;
#endif
}

/// `taps` taps, whose sums stay in registers: a vector of u meets as many of x.
template <int taps>
TENON_INLINE void sum_taps(const PlaneTaps& job, std::int64_t first) {
  const std::int64_t whole = job.columns / Simd::lanes * Simd::lanes, rest = job.columns - whole;
  const std::int64_t* const offsets = job.offsets + first;
  Float sums[static_cast<std::size_t>(taps)];
  for (Float& sum : sums) sum = Simd::zero_float();
  const float *u = job.u, *x = job.x;
  for (std::int64_t i = 0; i < job.rows; ++i, u += job.columns, x += job.x_row) {
    const float* at[static_cast<std::size_t>(taps)];
#pragma GCC unroll 9
    for (int t = 0; t < taps; ++t) at[t] = x + offsets[t];
    for (std::int64_t j = 0; j < whole; j += Simd::lanes) {
      const Float given = Simd::load_float(u + j);
#pragma GCC unroll 9
      for (int t = 0; t < taps; ++t) {
        sums[t] = Simd::fma(given, Simd::load_float(at[t] + j), sums[t]);
      }
    }
    if (rest == 0) continue;
    const Float given = load_first(u + whole, rest);
#pragma GCC unroll 9
    for (int t = 0; t < taps; ++t) {
      sums[t] = Simd::fma(given, load_first(at[t] + whole, rest), sums[t]);
    }
  }
  for (int t = 0; t < taps; ++t) job.sums[first + t] = Simd::sum(sums[t]);
}

void run_plane_taps(const PlaneTaps& job) noexcept {
  std::int64_t t = 0;
  for (; t + 9 <= job.taps; t += 9) sum_taps<9>(job, t);
  for (; t + 3 <= job.taps; t += 3) sum_taps<3>(job, t);
  for (; t < job.taps; ++t) sum_taps<1>(job, t);
}

}  // namespace
}  // namespace tenon::cpu
