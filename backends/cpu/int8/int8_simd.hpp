#pragma once

// What integer convolutions need of the vectors beyond Simd. Included after a header of simd/.
#include "../convolution/window_taps.hpp"
#if defined(__AVX512F__)
#include "int8_simd_avx512.hpp"
#endif

#include <cstdint>

namespace tenon::cpu {
namespace {

#if defined(__AVX2__) && !defined(__AVX512F__)

struct Int8Simd {
  using Sum = __m256i;
  static constexpr int lanes = Simd::lanes;
#if defined(__AVXVNNI__)
  static constexpr int weight_limit = 127;
#else
  static constexpr int weight_limit = 63;  // 2 * 255 * 63 fits in 16 bits
#endif

  TENON_INLINE static Sum zero() { return _mm256_setzero_si256(); }
  TENON_INLINE static Sum broadcast(const std::uint8_t* quad) {
    int word;
    __builtin_memcpy(&word, quad, 4);
    return _mm256_set1_epi32(word);
  }
  TENON_INLINE static Sum load(const std::int8_t* w) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  }
  /// In every lane, sum + four codes times four weights.
  TENON_INLINE static Sum dot(Sum sum, Sum codes, Sum w) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, codes, w);
#else
    const __m256i pairs = _mm256_maddubs_epi16(codes, w);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
  }
  /// The same for weights of any magnitude: even and odd bytes apart, as pairs of 16 bits.
  TENON_INLINE static Sum wide_dot(Sum sum, Sum codes, Sum w) {
#if defined(__AVXVNNI__)
    return dot(sum, codes, w);
#else
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(255)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(codes, 8), _mm256_srai_epi16(w, 8));
    return _mm256_add_epi32(_mm256_add_epi32(sum, even), odd);
#endif
  }
  TENON_INLINE static Sum add_sums(Sum a, Sum b) { return _mm256_add_epi32(a, b); }
  TENON_INLINE static Sum load_sum(const std::int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  TENON_INLINE static void store_sum(std::int32_t* p, Sum v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
  TENON_INLINE static void store_sum(std::int32_t* p, Sum v, std::int64_t count) {
    if (count >= lanes) return store_sum(p, v);
    std::int32_t pad[lanes];
    store_sum(pad, v);
    for (std::int64_t i = 0; i < count; ++i) p[i] = pad[i];
  }
  TENON_INLINE static Float to_float(Sum v) { return _mm256_cvtepi32_ps(v); }
  TENON_INLINE static Float load_codes(const std::uint8_t* x, std::int64_t count) {
    if (count >= lanes) return Simd::load_u8(x);
    std::uint8_t pad[lanes] = {};
    for (std::int64_t i = 0; i < count; ++i) pad[i] = x[i];
    return Simd::load_u8(pad);
  }
  /// Numbers from 0 to 255, rounded to even.
  TENON_INLINE static void store_codes(std::uint8_t* y, Float v, std::int64_t count) {
    const __m256i words = _mm256_cvtps_epi32(v);
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    const __m128i bytes = _mm_packus_epi16(halves, halves);
    if (count >= lanes) return _mm_storel_epi64(reinterpret_cast<__m128i*>(y), bytes);
    std::uint8_t pad[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(pad), bytes);
    for (std::int64_t i = 0; i < count; ++i) y[i] = pad[i];
  }
};

#elif !defined(__AVX512F__)

struct Int8Simd {
  using Sum = Words4;
  static constexpr int lanes = Simd::lanes;
  static constexpr int weight_limit = 127;

  TENON_INLINE static Sum zero() { return Sum{}; }
  TENON_INLINE static Sum broadcast(const std::uint8_t* quad) {
    return Sum{} + load_as<std::int32_t>(quad);
  }
  TENON_INLINE static Sum load(const std::int8_t* w) { return load_as<Sum>(w); }
  /// In every lane, sum + four codes times four weights.
  TENON_INLINE static Sum dot(Sum sum, Sum codes, Sum w) {
    const auto unsigned_codes = reinterpret_cast<UnsignedWords4>(codes);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto code = reinterpret_cast<Sum>(unsigned_codes >> (8 * i) & 255u);
      sum += code * ((w << (24 - 8 * i)) >> 24);
    }
    return sum;
  }
  TENON_INLINE static Sum wide_dot(Sum sum, Sum codes, Sum w) { return dot(sum, codes, w); }
  TENON_INLINE static Sum add_sums(Sum a, Sum b) {
    return reinterpret_cast<Sum>(reinterpret_cast<UnsignedWords4>(a) +
                                 reinterpret_cast<UnsignedWords4>(b));
  }
  TENON_INLINE static Sum load_sum(const std::int32_t* p) { return load_as<Sum>(p); }
  TENON_INLINE static void store_sum(std::int32_t* p, Sum v) { __builtin_memcpy(p, &v, sizeof v); }
  TENON_INLINE static void store_sum(std::int32_t* p, Sum v, std::int64_t count) {
    if (count >= lanes) return store_sum(p, v);
    std::int32_t pad[lanes];
    store_sum(pad, v);
    for (std::int64_t i = 0; i < count; ++i) p[i] = pad[i];
  }
  TENON_INLINE static Float to_float(Sum v) { return __builtin_convertvector(v, Float); }
  TENON_INLINE static Float load_codes(const std::uint8_t* x, std::int64_t count) {
    Float v{};
    for (int i = 0; i < lanes && i < count; ++i) v[i] = static_cast<float>(x[i]);
    return v;
  }
  /// Numbers from 0 to 255, rounded to even.
  TENON_INLINE static void store_codes(std::uint8_t* y, Float v, std::int64_t count) {
    // Behind 2^23 the sum's last bit is worth 1: adding rounds.
    const Float rounded = v + 8388608.0f;
    for (int i = 0; i < lanes && i < count; ++i) {
      y[i] = static_cast<std::uint8_t>(rounded[i] - 8388608.0f);
    }
  }
};

#endif

using Sum = Int8Simd::Sum;

}  // namespace
}  // namespace tenon::cpu
