#pragma once

// Vectors of f32 rounded to f16 and bf16, to nearest even. Included after a header of simd/, by the sources of one
// instruction set each.
#include "math_body.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

using FloatBits = std::uint32_t __attribute__((vector_size(4 * Simd::lanes)));
TENON_INLINE FloatBits float_bits_of(Float v) {
  FloatBits bits;
  __builtin_memcpy(&bits, &v, sizeof bits);
  return bits;
}
/// The lower halves of its elements.
TENON_INLINE void store_lower_halves(std::uint16_t* y, FloatBits bits) {
#if defined(__AVX512F__)
  const __m256i halves = _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(bits));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), halves);
#elif defined(__AVX2__)
  const auto all = reinterpret_cast<__m256i>(bits);
  const __m128i halves =
      _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), halves);
#else
  for (int i = 0; i < Simd::lanes; ++i) y[i] = static_cast<std::uint16_t>(bits[i]);
#endif
}

TENON_INLINE void store_f16(std::uint16_t* y, Float v) {
#if defined(__F16C__)
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm512_cvtps_ph(v, nearest));
#else
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_cvtps_ph(v, nearest));
#endif
#else
  const FloatBits bits = float_bits_of(v), magnitude = bits & 0x7FFFFFFFu;
  const FloatBits normal = (magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
  // The last place of 1/2 is that of f16's subnormal numbers.
  const FloatBits small = float_bits_of(absolute(v) + set(0.5f)) - float_bits_of(set(0.5f));
  FloatBits half = magnitude < (113u << 23) ? small : normal;
  half = magnitude >= 0x477FF000u ? FloatBits{} + 0x7C00u : half;
  half = magnitude > 0x7F800000u ? (magnitude >> 13 & 0x3FFu) | 0x7E00u : half;
  store_lower_halves(y, half | (bits >> 16 & 0x8000u));
#endif
}

/// A NaN becomes quiet.
TENON_INLINE void store_bf16(std::uint16_t* y, Float v) {
  const FloatBits bits = float_bits_of(v);
  const FloatBits nearest = bits + 0x7FFFu + (bits >> 16 & 1u);
  const auto is_nan = reinterpret_cast<FloatBits>(v != v);
  store_lower_halves(y, ((is_nan & (bits | 0x400000u)) | (~is_nan & nearest)) >> 16);
}

}  // namespace
}  // namespace tenon::cpu
