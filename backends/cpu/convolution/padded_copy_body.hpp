#pragma once

// Copies of images with their channels last. Included after a header of simd/.
#include "convolution_kernels.hpp"
#include "window_taps.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// A row of planes whose columns are adjacent, a square of vectors at a time.
inline void interleave_planes(const PaddedCopy& job, const float* x, std::int64_t columns,
                              float* to) {
  constexpr std::int64_t lanes = Simd::lanes;
  const float* const end = to + columns * job.channels;
  const bool is_one_vector = job.channels <= lanes;
  for (std::int64_t j = 0; j < columns; j += lanes) {
    const std::int64_t pixels = columns - j;
    for (std::int64_t c = 0; c < job.channels; c += lanes) {
      const std::int64_t count = job.channels - c;
      Float v[Simd::lanes];
#pragma GCC unroll 16
      for (int k = 0; k < Simd::lanes; ++k) {
        v[k] =
            k < count ? load_channels(x + (c + k) * job.x.channel + j, pixels) : Simd::zero_float();
      }
      Simd::transpose(v);
#pragma GCC unroll 16
      for (int p = 0; p < Simd::lanes; ++p) {
        if (p >= pixels) break;
        float* const pixel = to + (j + p) * job.channels + c;
        // What this writes of later pixels is overwritten by them.
        const bool fits = is_one_vector && end - pixel >= lanes;
        store_channels(pixel, v[p], fits ? lanes : count);
      }
    }
  }
}

inline void gather_pixels(const PaddedCopy& job, const float* x, std::int64_t columns, float* to) {
  for (std::int64_t j = 0; j < columns; ++j, to += job.channels) {
    const float* from = x + j * job.x.column;
    for (std::int64_t c = 0; c < job.channels; ++c) to[c] = from[c * job.x.channel];
  }
}

void run_padded_copy(const PaddedCopy& job, std::int64_t first, std::int64_t last) noexcept {
  const std::int64_t space = job.width - job.before;
  const std::int64_t inner = job.columns < space ? job.columns : space;
  const auto fill = [&](float* to, std::int64_t pixels) {
    for (std::int64_t i = 0; i < pixels * job.channels; ++i) to[i] = 0.0f;
    return to + pixels * job.channels;
  };
  for (std::int64_t row = first; row < last; ++row) {
    const float* x = job.x.at + row * job.x.row;
    float* const to = fill(job.to + row * job.width * job.channels, job.before);
    job.x.column == 1 ? interleave_planes(job, x, inner, to) : gather_pixels(job, x, inner, to);
    fill(to + inner * job.channels, space - inner);
  }
}

}  // namespace
}  // namespace tenon::cpu
