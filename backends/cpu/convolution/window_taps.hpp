#pragma once

// Parts that the kernels of one instruction set share. Included after a header of simd/.
#include "convolution_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

using Float = Simd::Float;
constexpr int parts = 16 / Simd::lanes;  // vectors that hold 16 channels

struct Taps {
  std::int64_t begin, end;
};
/// The taps of an output that are inside of the image. A division takes longer than a small tile,
/// so most windows avoid it.
TENON_INLINE Taps taps_inside(const WindowAxis& axis, std::int64_t output) {
  const std::int64_t first = output * axis.stride - axis.before;
  const std::int64_t beyond = axis.inputs - first;  // elements from the first tap on
  if (beyond <= 0) return {0, 0};
  const bool is_dense = axis.dilation == 1;
  const std::int64_t begin = first >= 0 ? 0 : is_dense ? -first : (-first - 1) / axis.dilation + 1;
  std::int64_t end = is_dense ? beyond : (beyond - 1) / axis.dilation + 1;
  end = end < axis.taps ? end : axis.taps;
  return {begin, end < begin ? begin : end};
}

/// Up to a vector of channels; the rest are zeros.
TENON_INLINE Float load_channels(const float* x, std::int64_t count) {
  if (count >= Simd::lanes) return Simd::load_float(x);
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), x);
#else
  float pad[Simd::lanes] = {};
  for (std::int64_t i = 0; i < count; ++i) pad[i] = x[i];
  return Simd::load_float(pad);
#endif
}
TENON_INLINE void store_channels(float* y, Float v, std::int64_t count) {
  if (count >= Simd::lanes) return Simd::store_float(y, v);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(y, static_cast<__mmask16>((1u << count) - 1u), v);
#else
  float pad[Simd::lanes];
  Simd::store_float(pad, v);
  for (std::int64_t i = 0; i < count; ++i) y[i] = pad[i];
#endif
}

TENON_INLINE Float limited(Float v, Float low, Float high) {
  return Simd::min(high, Simd::max(low, v));
}

}  // namespace
}  // namespace tenon::cpu
