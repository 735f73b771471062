#pragma once

// bf16 by integer arithmetic, which compilers turn into vectors, and f16 by the instructions of
// F16C. Included after a header of simd/, by the sources of one instruction set each.
#include "trigonometry_body.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {
namespace {

void run_bf16_to_f32(const std::uint16_t* x, float* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(x[i]) << 16);
  }
}

void run_f32_to_bf16(const float* x, std::uint16_t* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x[i]);
    const std::uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
    const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    y[i] = static_cast<std::uint16_t>((nan ? bits | 0x400000u : rounded) >> 16);
  }
}

/// The lower halves of a comparison's lanes.
template <int... i>
TENON_INLINE FewWords halved(Mask both, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(both, both, (2 * i)...);
}

/// To the f32 next to x towards zero with its last bit set, unless x is an f32.
TENON_INLINE FewFloats rounded_to_odd(Doubles x) {
  using Words64 = std::int64_t __attribute__((vector_size(sizeof(Doubles))));
  const auto halves = [](Words64 holds) {
    Mask both;
    __builtin_memcpy(&both, &holds, sizeof both);
    return halved(both, std::make_integer_sequence<int, Simd::lanes / 2>());
  };
  const FewFloats nearest = narrowed(x);
  const Doubles back = widened(nearest);
  FewWords bits;
  __builtin_memcpy(&bits, &nearest, sizeof bits);
  bits += halves((x < 0.0 ? -back : back) > (x < 0.0 ? -x : x));  // -1 where it is too large
  bits |= halves(back != x) & 1;
  FewFloats odd;
  __builtin_memcpy(&odd, &bits, sizeof odd);
  return odd;
}

void run_round_to_odd(const double* x, float* y, std::int64_t count) noexcept {
  constexpr std::int64_t wide = Simd::lanes / 2;
  for (std::int64_t i = 0; i < count; i += wide) {
    const std::int64_t some = count - i < wide ? count - i : wide;
    Doubles v{};
    FewFloats odd;
    if (some == wide) {
      __builtin_memcpy(&v, x + i, sizeof v);
      odd = rounded_to_odd(v);
      __builtin_memcpy(y + i, &odd, sizeof odd);
    } else {
      __builtin_memcpy(&v, x + i, static_cast<std::size_t>(some) * sizeof(double));
      odd = rounded_to_odd(v);
      __builtin_memcpy(y + i, &odd, static_cast<std::size_t>(some) * sizeof(float));
    }
  }
}

#if defined(__F16C__)

void run_f16_to_f32(const std::uint16_t* x, float* y, std::int64_t count) noexcept {
  std::int64_t i = 0;
  for (; i + Simd::lanes <= count; i += Simd::lanes) {
    Simd::store_float(y + i, Simd::load_f16(x + i));
  }
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(y + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
  for (; i < count; ++i) y[i] = _cvtsh_ss(x[i]);
}

void run_f32_to_f16(const float* x, std::uint16_t* y, std::int64_t count) noexcept {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  std::int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i),
                        _mm512_cvtps_ph(_mm512_loadu_ps(x + i), nearest));
  }
#endif
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), nearest));
  }
  for (; i < count; ++i) y[i] = _cvtss_sh(x[i], nearest);
}

#endif

}  // namespace
}  // namespace tenon::cpu
