#pragma once

// Int8Simd of 512 bits: included by int8_simd.hpp.
#include "../simd/avx512.hpp"

#include <cstdint>

#include <immintrin.h>

namespace tenon::cpu {
namespace {

struct Int8Simd {
  using Sum = __m512i;
  static constexpr int lanes = Simd::lanes;
#if defined(__AVX512VNNI__)
  static constexpr int weight_limit = 127;
#else
  static constexpr int weight_limit = 63;  // 2 * 255 * 63 fits in 16 bits
#endif

  TENON_INLINE static Sum zero() { return _mm512_setzero_si512(); }
  TENON_INLINE static Sum broadcast(const std::uint8_t* quad) {
    int word;
    __builtin_memcpy(&word, quad, 4);
    return _mm512_set1_epi32(word);
  }
  TENON_INLINE static Sum load(const std::int8_t* w) { return _mm512_loadu_si512(w); }
  /// In every lane, sum + four codes times four weights.
  TENON_INLINE static Sum dot(Sum sum, Sum codes, Sum w) {
#if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(sum, codes, w);
#else
    const __m512i pairs = _mm512_maddubs_epi16(codes, w);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#endif
  }
  /// The same for weights of any magnitude: even and odd bytes apart, as pairs of 16 bits.
  TENON_INLINE static Sum wide_dot(Sum sum, Sum codes, Sum w) {
#if defined(__AVX512VNNI__)
    return dot(sum, codes, w);
#else
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(255)),
                                           _mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(codes, 8), _mm512_srai_epi16(w, 8));
    return _mm512_add_epi32(_mm512_add_epi32(sum, even), odd);
#endif
  }
  TENON_INLINE static Sum add_sums(Sum a, Sum b) { return _mm512_add_epi32(a, b); }
  TENON_INLINE static Sum load_sum(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  TENON_INLINE static void store_sum(std::int32_t* p, Sum v) { _mm512_storeu_si512(p, v); }
  /// The first `count` of them.
  TENON_INLINE static void store_sum(std::int32_t* p, Sum v, std::int64_t count) {
    if (count >= lanes) return store_sum(p, v);
    _mm512_mask_storeu_epi32(p, static_cast<__mmask16>((1u << count) - 1u), v);
  }
  TENON_INLINE static Float to_float(Sum v) { return _mm512_cvtepi32_ps(v); }
  TENON_INLINE static Float load_codes(const std::uint8_t* x, std::int64_t count) {
    const auto mask = static_cast<__mmask16>((1u << (count & 15)) - 1u);
    if (count >= lanes) return Simd::load_u8(x);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, x)));
  }
  /// Numbers from 0 to 255, rounded to even.
  TENON_INLINE static void store_codes(std::uint8_t* y, Float v, std::int64_t count) {
    const auto mask = static_cast<__mmask16>((1u << (count & 15)) - 1u);
    const __m128i codes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
    if (count >= lanes) return _mm_storeu_si128(reinterpret_cast<__m128i*>(y), codes);
    _mm_mask_storeu_epi8(y, mask, codes);
  }
};

}  // namespace
}  // namespace tenon::cpu
