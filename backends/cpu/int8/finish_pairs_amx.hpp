#pragma once

// Sums of 32 outputs to dense codes in small portions, interleaved with tile multiplications.
// Included after finish.hpp, for AVX-512 only.
#include "finish.hpp"
#include "int8_kernels.hpp"

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
  bool is_even = false;  ///< the pixels lie at even steps, and their count is even
  Pixel at[32];
};

/// Factors and offsets of a band of outputs, as PairFinish has them for 32.
class BandScaling {
 public:
  static constexpr std::int64_t most = 1024;  ///< outputs of a band

  /// For outputs [first, last) of `outputs`.
  void prepare(const Int8Finish& finish, std::int64_t first, std::int64_t last,
               std::int64_t outputs) {
    __mmask16 is_large = finish.residual_factor < (1 << 20) ? 0 : 1;
    for (std::int64_t c = first; c < last; c += 16) {
      const Scaling scaling = scaling_of<true>(finish, c, outputs - c);
      Simd::store_float(factor_ + c - first, scaling.factor);
      Simd::store_float(offset_ + c - first, scaling.offset);
      is_large |= _mm512_cmp_ps_mask(scaling.factor, _mm512_set1_ps(0.25f), _CMP_NLE_UQ);
      is_large |= _mm512_cmp_ps_mask(scaling.offset, _mm512_set1_ps(1 << 29), _CMP_GT_OQ);
    }
    first_ = first;
    is_tame_ = is_large == 0;
  }
  /// Whether all results fit into integers, or are NaN or too small.
  bool is_tame() const { return is_tame_; }
  const float* factor(std::int64_t channel) const { return factor_ + channel - first_; }
  const float* offset(std::int64_t channel) const { return offset_ + channel - first_; }

 private:
  std::int64_t first_ = 0;
  bool is_tame_ = false;
  alignas(64) float factor_[most], offset_[most];
};

/// A block's sums [32][32] on their way to codes: 32 outputs from `channel` on, which all exist.
struct SummedBlock {
  const Int8Finish* finish;
  const BandScaling* scaling;  ///< tame
  const BlockPixels* pixels;   ///< null: there is none
  const std::int32_t* sums;
  std::int64_t channel;
};

/// From sums of two pixels and 32 outputs to dense codes, with as little as possible for the one
/// unit that converts, multiplies and compares beside tiles: codes are put into the bits of a
/// number, limits come last.
template <bool has_residual, bool has_limits>
class TileFinish {
 public:
  TENON_INLINE explicit TileFinish(const SummedBlock& block)
      : factor_{Simd::load_float(block.scaling->factor(block.channel)),
                Simd::load_float(block.scaling->factor(block.channel) + 16)},
        offset_{Simd::load_float(block.scaling->offset(block.channel)),
                Simd::load_float(block.scaling->offset(block.channel) + 16)},
        residual_factor_(Simd::broadcast(&block.finish->residual_factor)),
        low_(code_of(block.finish->low)),
        high_(code_of(block.finish->high)) {}

  TENON_INLINE void store(const PixelOutputs& first, const PixelOutputs& second) const {
    const auto words = [&](const PixelOutputs& pixel) {
      return _mm512_packs_epi32(integers(pixel, 0), integers(pixel, 1));
    };
    __m512i packed = _mm512_packus_epi16(words(first), words(second));
    if constexpr (has_limits) packed = _mm512_max_epu8(_mm512_min_epu8(packed, high_), low_);
    store_packed(packed, first, second);
  }

 private:
  TENON_INLINE static __m512i code_of(float limit) {
    return _mm512_set1_epi8(static_cast<char>(_mm_cvtss_si32(_mm_set_ss(limit))));
  }

  TENON_INLINE __m512i integers(const PixelOutputs& pixel, int half) const {
    Float v = Simd::fma(Int8Simd::to_float(Int8Simd::load_sum(pixel.sums + half * 16)),
                        factor_[half], offset_[half]);
    if constexpr (has_residual) {
      v = Simd::fma(from_codes(pixel.residual + half * 16), residual_factor_, v);
    }
    // A NaN becomes the least of integers.
    return _mm512_cvtps_epi32(v);
  }

  /// 16 codes as f32: in the bits of 2^15 + code, from which 2^15 is taken.
  TENON_INLINE static Float from_codes(const std::uint8_t* codes) {
    const __m512i quads =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    // Code 4 i + j of lane i becomes the second byte of the lane's number j.
    const __m512i order =
        _mm512_set_epi32(0x0f00, 0x0e00, 0x0d00, 0x0c00, 0x0b00, 0x0a00, 0x0900, 0x0800, 0x0700,
                         0x0600, 0x0500, 0x0400, 0x0300, 0x0200, 0x0100, 0x0000);
    const __m512i bits =
        _mm512_mask_shuffle_epi8(_mm512_set1_epi32(0x47000000), 0x2222222222222222, quads, order);
    return _mm512_sub_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(32768));
  }

  Float factor_[2], offset_[2], residual_factor_;
  __m512i low_, high_;
};

/// Stores a block whose pixels are even, in portions.
template <bool has_residual, bool has_limits>
class EvenStore {
 public:
  TENON_INLINE explicit EvenStore(const SummedBlock& block)
      : finish_(block),
        sums_(block.sums + block.pixels->at[0].sums),
        y_(block.finish->codes.at + block.channel + block.pixels->at[0].code),
        y_step_(block.finish->codes.column),
        left_(block.pixels->count / 2),
        fetches_(block.channel % 64 == 0) {
    if constexpr (has_residual) {
      residual_ = block.finish->residual_codes.at + block.channel + block.pixels->at[0].residual;
      residual_step_ = block.finish->residual_codes.column;
    }
  }

  /// Up to `pairs` more pairs of pixels.
  TENON_INLINE void store(std::int64_t pairs) {
    pairs = pairs < left_ ? pairs : left_;
    left_ -= pairs;
    for (std::int64_t i = 0; i < pairs; ++i) {
      if (fetches_) {
        // Prefetches the lines that the block after the next stores to.
        __builtin_prefetch(y_ + 64, 1, 3);
        __builtin_prefetch(y_ + y_step_ + 64, 1, 3);
        if constexpr (has_residual) {
          __builtin_prefetch(residual_ + 64, 0, 3);
          __builtin_prefetch(residual_ + residual_step_ + 64, 0, 3);
        }
      }
      finish_.store({sums_, residual_, y_}, {sums_ + 32, residual_ + residual_step_, y_ + y_step_});
      sums_ += 64;
      y_ += 2 * y_step_;
      residual_ += 2 * residual_step_;
    }
  }

 private:
  TileFinish<has_residual, has_limits> finish_;
  const std::int32_t* sums_;
  std::uint8_t* y_;
  std::int64_t y_step_;
  const std::uint8_t* residual_ = nullptr;
  std::int64_t residual_step_ = 0;
  std::int64_t left_;
  bool fetches_;
};

/// Stores a block of any pixels in portions.
class PairStore {
 public:
  TENON_INLINE explicit PairStore(const SummedBlock& block) : block_(block) {
    if (block.pixels != nullptr) count_ = block.pixels->count;
  }

  /// Up to `pairs` more pairs of pixels.
  TENON_INLINE void store(std::int64_t pairs) {
    if (next_ < count_) {
      block_.finish->residual_codes.at == nullptr ? store_some<false>(pairs)
                                                  : store_some<true>(pairs);
    }
  }

 private:
  /// Not inlined into the loops around it, which need the registers.
  template <bool has_residual>
  [[gnu::noinline]] void store_some(std::int64_t pairs) {
    const TileFinish<has_residual, true> finish(block_);
    const std::uint8_t* const residual =
        has_residual ? block_.finish->residual_codes.at + block_.channel : nullptr;
    std::uint8_t* const y = block_.finish->codes.at + block_.channel;
    const auto parts_of = [&](const BlockPixels::Pixel& pixel) {
      return PixelOutputs{block_.sums + pixel.sums,
                          has_residual ? residual + pixel.residual : nullptr, y + pixel.code};
    };
    const BlockPixels::Pixel* pixel = block_.pixels->at + next_;
    next_ = count_ - next_ < 2 * pairs ? count_ : next_ + 2 * pairs;
    const BlockPixels::Pixel* const end = block_.pixels->at + next_;
    while (pixel < end) {
      const BlockPixels::Pixel& first = *pixel++;
      const BlockPixels::Pixel& second = pixel < end ? *pixel++ : first;  // stored twice at the end
      finish.store(parts_of(first), parts_of(second));
    }
  }

  const SummedBlock block_;
  std::int64_t next_ = 0, count_ = 0;
};

/// The same at once, for any output type and layout. `outputs`: of all channels.
inline void store_block(const Int8Finish& finish, const BlockPixels& pixels,
                        const std::int32_t* sums, std::int64_t channel, std::int64_t outputs) {
  for (std::int64_t i = 0; i < pixels.count;) {
    const BlockPixels::Pixel& first = pixels.at[i];
    std::int64_t run = 1;
    const auto continues = [&](const BlockPixels::Pixel& next) {
      return next.row == first.row && next.sums == first.sums + run * 32 &&
             next.column == first.column + run;
    };
    while (i + run < pixels.count && continues(pixels.at[i + run])) ++run;
    store_sums(finish, first.row, first.column, channel, sums + first.sums, run, 32,
               outputs - channel);
    i += run;
  }
}

}  // namespace
}  // namespace tenon::cpu
