#pragma once

// Sums of 32 outputs to dense codes, two pixels at a time: fewer instructions on the way to bytes
// than vector by vector, and in small portions, which fill the time that tiles take to multiply.
// Included after finish.hpp, for AVX-512 only.
#include "finish.hpp"
#include "kernels.hpp"

#include <cstdint>

#include <immintrin.h>

namespace tenon::cpu {
namespace {

/// The pixels of a block of sums that exist, and where they go.
struct BlockPixels {
  struct Pixel {
    std::int64_t sums;            ///< where in the block its sums begin
    std::int64_t code, residual;  ///< where in the images its channels begin
    std::int64_t row, column;
  };
  std::int64_t count = 0;
  Pixel at[32];
};

/// Whether sums can be stored in pairs.
inline bool stores_dense_codes(const Int8Finish& finish) {
  return finish.codes.at != nullptr && finish.codes.channel == 1 &&
         finish.residual_values.at == nullptr &&
         (finish.residual_codes.at == nullptr || finish.residual_codes.channel == 1);
}

/// A block's sums [32][32] on their way to codes.
class PairStore {
 public:
  /// The block before must be done.
  TENON_INLINE void begin(const Int8Finish& finish, const BlockPixels& pixels,
                          const std::int32_t* sums, std::int64_t channel) {
    next_ = pixels.at;
    end_ = pixels.at + pixels.count;
    sums_ = sums;
    y_ = finish.codes.at + channel;
    residual_ = finish.residual_codes.at == nullptr ? nullptr : finish.residual_codes.at + channel;
    high_ = finish.high;
    residual_factor_ = finish.residual_factor;
    low_ = _mm_cvtss_si32(_mm_set_ss(finish.low));
    for (int half = 0; half < 2; ++half) {
      const Scaling scaling = scaling_of<true>(finish, channel + 16 * half, 16);
      Simd::store_float(factor_[half], scaling.factor);
      Simd::store_float(offset_[half], scaling.offset);
    }
  }

  /// Stores up to 2 * `pairs` more pixels.
  TENON_INLINE void store(std::int64_t pairs) {
    if (next_ == end_) return;
    residual_ == nullptr ? store_some<false>(pairs) : store_some<true>(pairs);
  }

 private:
  /// Not part of the loops around it, whose registers it would take.
  template <bool has_residual>
  [[gnu::noinline]] void store_some(std::int64_t pairs) {
    const Scaling scaling[] = {{Simd::load_float(factor_[0]), Simd::load_float(offset_[0])},
                               {Simd::load_float(factor_[1]), Simd::load_float(offset_[1])}};
    const Float high = Simd::broadcast(&high_), factor = Simd::broadcast(&residual_factor_);
    const __m512i low = _mm512_set1_epi8(static_cast<char>(low_));
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const std::int32_t* const sums = sums_;
    const std::uint8_t* const residual = residual_;
    std::uint8_t* const y = y_;
    const auto words_of = [&](const BlockPixels::Pixel& pixel, int half) {
      Float v = Simd::fma(Int8Simd::to_float(Int8Simd::load_sum(sums + pixel.sums + half * 16)),
                          scaling[half].factor, scaling[half].offset);
      if constexpr (has_residual) {
        v = Simd::fma(Simd::load_u8(residual + pixel.residual + half * 16), factor, v);
      }
      // A NaN passes, and becomes the least of integers.
      return _mm512_cvtps_epi32(Simd::min(high, v));
    };
    const BlockPixels::Pixel* pixel = next_;
    const BlockPixels::Pixel* const end = end_ - pixel < 2 * pairs ? end_ : pixel + 2 * pairs;
    while (pixel < end) {
      const BlockPixels::Pixel& first = *pixel++;
      const BlockPixels::Pixel& second = pixel < end ? *pixel++ : first;  // stored twice at the end
      const __m512i upper = _mm512_packs_epi32(words_of(first, 0), words_of(first, 1));
      const __m512i lower = _mm512_packs_epi32(words_of(second, 0), words_of(second, 1));
      const __m512i packed = _mm512_max_epu8(_mm512_packus_epi16(upper, lower), low);
      const __m512i codes = _mm512_permutexvar_epi32(order, packed);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + first.code),
                          _mm512_castsi512_si256(codes));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + second.code),
                          _mm512_extracti64x4_epi64(codes, 1));
    }
    next_ = pixel;
  }

  const BlockPixels::Pixel* next_ = nullptr;
  const BlockPixels::Pixel* end_ = nullptr;
  const std::int32_t* sums_ = nullptr;
  std::uint8_t* y_ = nullptr;
  const std::uint8_t* residual_ = nullptr;
  float high_ = 0, residual_factor_ = 0;
  int low_ = 0;
  alignas(64) float factor_[2][16];
  alignas(64) float offset_[2][16];
};

/// The same at once, for whatever is stored and however it lies. `outputs`: of all channels.
inline void store_block(const Int8Finish& finish, const BlockPixels& pixels,
                        const std::int32_t* sums, std::int64_t channel, std::int64_t outputs) {
  for (std::int64_t i = 0; i < pixels.count;) {
    const BlockPixels::Pixel& first = pixels.at[i];
    std::int64_t stretch = 1;
    const auto continues = [&](const BlockPixels::Pixel& next) {
      return next.row == first.row && next.sums == first.sums + stretch * 32 &&
             next.column == first.column + stretch;
    };
    while (i + stretch < pixels.count && continues(pixels.at[i + stretch])) ++stretch;
    store_sums(finish, first.row, first.column, channel, sums + first.sums, stretch, 32,
               outputs - channel);
    i += stretch;
  }
}

}  // namespace
}  // namespace tenon::cpu
