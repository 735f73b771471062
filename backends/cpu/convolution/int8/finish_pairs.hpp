#pragma once

// Sums of 32 outputs to dense codes in small portions, which fill the time that tiles take to
// multiply.
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
    finish_ = PairFinish(finish, channel);
    fetches_ = channel % 64 == 0;
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
    const PairFinish finish = finish_;
    const std::int32_t* const sums = sums_;
    const std::uint8_t* const residual = residual_;
    std::uint8_t* const y = y_;
    const auto parts_of = [&](const BlockPixels::Pixel& pixel) {
      return PairFinish::Pixel{sums + pixel.sums,
                               has_residual ? residual + pixel.residual : nullptr, y + pixel.code};
    };
    const BlockPixels::Pixel* pixel = next_;
    const BlockPixels::Pixel* const end = end_ - pixel < 2 * pairs ? end_ : pixel + 2 * pairs;
    while (pixel < end) {
      const BlockPixels::Pixel& first = *pixel++;
      const BlockPixels::Pixel& second = pixel < end ? *pixel++ : first;  // stored twice at the end
      if (fetches_) {
        fetch<has_residual>(first);
        fetch<has_residual>(second);
      }
      finish.store<has_residual>(parts_of(first), parts_of(second));
    }
    next_ = pixel;
  }

  /// Has the lines come near that the block after the next stores to.
  template <bool has_residual>
  TENON_INLINE void fetch(const BlockPixels::Pixel& pixel) const {
    __builtin_prefetch(y_ + pixel.code + 64, 1, 3);
    if constexpr (has_residual) __builtin_prefetch(residual_ + pixel.residual + 64, 0, 3);
  }

  const BlockPixels::Pixel* next_ = nullptr;
  const BlockPixels::Pixel* end_ = nullptr;
  const std::int32_t* sums_ = nullptr;
  std::uint8_t* y_ = nullptr;
  const std::uint8_t* residual_ = nullptr;
  bool fetches_ = false;  ///< the lines of the block after the next
  PairFinish finish_;
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
