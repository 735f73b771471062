#pragma once

// Results of adjacent pixels to an image whose columns are adjacent, not its channels. Included
// after a header of simd/.
#include "convolution_kernels.hpp"
#include "window_taps.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// Whether `store_planes` can store a job's results.
inline bool has_planes(const Image<float>& y, const Finish& finish) {
  return y.column == 1 && (finish.residual.at == nullptr || finish.residual.column == 1);
}

/// Stores the first `channels` channels of `pixels` adjacent pixels; at most a vector of either.
/// `sums`: by pixel, vectors of channels, with their bias; changed. `y` and `residual` (or null):
/// where the first of them lies.
TENON_INLINE void store_planes(const Finish& finish, Float (&sums)[Simd::lanes],
                               std::int64_t pixels, std::int64_t channels, float* y,
                               std::int64_t y_channel, const float* residual) {
  Simd::transpose(sums);
  const Float low = Simd::broadcast(&finish.low), high = Simd::broadcast(&finish.high);
#pragma GCC unroll 16
  for (int c = 0; c < Simd::lanes; ++c) {
    if (c >= channels) break;
    Float v = sums[c];
    if (residual != nullptr) {
      v = Simd::add(v, load_channels(residual + c * finish.residual.channel, pixels));
    }
    store_channels(y + c * y_channel, limited(v, low, high), pixels);
  }
}

}  // namespace
}  // namespace tenon::cpu
