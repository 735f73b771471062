#pragma once

// Copies of images with their channels last. Included after a header of simd/.
#include "convolution_kernels.hpp"
#include "window_taps.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {
namespace {

/// Vector `part` of the pixels of three planes: first what two of them give, then the third.
template <int part, int... lane>
TENON_INLINE Float third_of_pixels(Float a, Float b, Float c, std::integer_sequence<int, lane...>) {
  constexpr int lanes = Simd::lanes;
  const auto of_two = [](int i) { return i % 3 == 1 ? lanes + i / 3 : i / 3; };
  const Float ab = __builtin_shufflevector(a, b, of_two(part * lanes + lane)...);
  const auto of_last = [](int i) { return i % 3 == 2 ? lanes + i / 3 : i % lanes; };
  return __builtin_shufflevector(ab, c, of_last(part * lanes + lane)...);
}

/// A row of three planes, as of colours.
inline void interleave_three(const PaddedCopy& job, const float* x, std::int64_t columns,
                             float* to) {
  constexpr std::int64_t lanes = Simd::lanes;
  constexpr auto all = std::make_integer_sequence<int, Simd::lanes>{};
  const std::int64_t plane = job.x.channel;
  std::int64_t j = 0;
  for (; j + lanes <= columns; j += lanes, to += 3 * lanes) {
    const Float a = Simd::load_float(x + j), b = Simd::load_float(x + plane + j),
                c = Simd::load_float(x + 2 * plane + j);
    Simd::store_float(to, third_of_pixels<0>(a, b, c, all));
    Simd::store_float(to + lanes, third_of_pixels<1>(a, b, c, all));
    Simd::store_float(to + 2 * lanes, third_of_pixels<2>(a, b, c, all));
  }
  for (; j < columns; ++j, to += 3) {
    for (std::int64_t c = 0; c < 3; ++c) to[c] = x[c * plane + j];
  }
}

/// A row of planes whose columns are adjacent, a square of vectors at a time.
inline void interleave_planes(const PaddedCopy& job, const float* x, std::int64_t columns,
                              float* to) {
  if (job.channels == 3) return interleave_three(job, x, columns, to);
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
        const float* const plane = x + (c + k) * job.x.channel + j;
        v[k] = k < count ? load_channels(plane, pixels) : Simd::zero_float();
        if (k < count) __builtin_prefetch(plane + lanes);  // more streams than hardware follows
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
