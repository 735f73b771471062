#pragma once

// Sums of two pixels to codes at once: included by finish.hpp, in its middle.
#include "../simd/avx512.hpp"

#include <cstdint>

#include <immintrin.h>

namespace tenon::cpu {
namespace {

/// 32 outputs of a pixel, and where they go.
struct PixelOutputs {
  const std::int32_t* sums;
  const std::uint8_t* residual;
  std::uint8_t* codes;
};

/// Codes of two pixels, packed from integers half by half, in the order of outputs.
TENON_INLINE void store_packed(__m512i packed, const PixelOutputs& first,
                               const PixelOutputs& second) {
  const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  const __m512i codes = _mm512_permutexvar_epi32(order, packed);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(first.codes), _mm512_castsi512_si256(codes));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(second.codes),
                      _mm512_extracti64x4_epi64(codes, 1));
}

/// From sums of two pixels and 32 outputs to dense codes: fewer instructions on the way to bytes
/// than vector by vector.
class PairFinish {
 public:
  /// For outputs from `channel` on; all 32 exist.
  PairFinish(const Int8Finish& finish, std::int64_t channel)
      : scaling_{scaling_of<true>(finish, channel, 32), scaling_of<true>(finish, channel + 16, 16)},
        high_(Simd::broadcast(&finish.high)),
        residual_factor_(Simd::broadcast(&finish.residual_factor)),
        low_(_mm512_set1_epi8(static_cast<char>(_mm_cvtss_si32(_mm_set_ss(finish.low))))) {}

  template <bool has_residual>
  TENON_INLINE void store(const PixelOutputs& first, const PixelOutputs& second) const {
    const __m512i upper =
        _mm512_packs_epi32(words<has_residual>(first, 0), words<has_residual>(first, 1));
    const __m512i lower =
        _mm512_packs_epi32(words<has_residual>(second, 0), words<has_residual>(second, 1));
    store_packed(_mm512_max_epu8(_mm512_packus_epi16(upper, lower), low_), first, second);
  }

 private:
  template <bool has_residual>
  TENON_INLINE __m512i words(const PixelOutputs& pixel, int half) const {
    Float v = Simd::fma(Int8Simd::to_float(Int8Simd::load_sum(pixel.sums + half * 16)),
                        scaling_[half].factor, scaling_[half].offset);
    if constexpr (has_residual) {
      v = Simd::fma(Simd::load_u8(pixel.residual + half * 16), residual_factor_, v);
    }
    // A NaN passes, and becomes the least of integers.
    return _mm512_cvtps_epi32(Simd::min(high_, v));
  }

  Scaling scaling_[2];
  Float high_, residual_factor_;
  __m512i low_;
};

/// Sums [pixels][32] of neighbouring pixels and 32 outputs to dense codes.
template <bool has_residual>
TENON_INLINE void store_pairs_of(const PairFinish& finish, const std::int32_t* sums,
                                 std::int64_t pixels, std::uint8_t* y, std::int64_t y_step,
                                 const std::uint8_t* residual, std::int64_t residual_step) {
  for (std::int64_t p = 0; p < pixels; p += 2) {
    const std::int64_t next = p + 1 < pixels ? p + 1 : p;  // the last of an odd count twice
    finish.store<has_residual>(
        {sums + p * 32, residual + p * residual_step, y + p * y_step},
        {sums + next * 32, residual + next * residual_step, y + next * y_step});
  }
}

}  // namespace
}  // namespace tenon::cpu
