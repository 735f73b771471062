#pragma once

// Depthwise 3x3 convolution by dot products of four bytes. The three rows under a column of taps
// are interleaved into quads (row 0, row 1, row 2, zero), channel by channel: one dot product then
// sums a whole column of taps, and an interleaved column serves every output that reads it.
//
// Interleaving bytes keeps channels in their 128-bit lanes and spreads them over four vectors;
// packing the results undoes this, so only scales need the same order. Included after int8_simd.hpp.
#include "../convolution/window_taps.hpp"
#include "finish.hpp"
#include "int8_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

#if defined(__AVX512F__) || defined(__AVX2__)

constexpr int quad_channels = 4 * Simd::lanes;  // channels at once
constexpr int quads_pixels = Simd::lanes == 16 ? 4 : 2;

/// Four vectors of quads, or of sums, for `quad_channels` channels.
struct Interleaved {
  Sum at[4];
};

/// Per-channel numbers in the order of the sums: vector k has channels 16 l + 4 k + i of lane l.
TENON_INLINE Float spread(const float* values, int k) {
#if defined(__AVX512F__)
  const float* const at = values + 4 * k;
  __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(at));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(at + 16), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(at + 32), 2);
  return _mm512_insertf32x4(v, _mm_loadu_ps(at + 48), 3);
#else
  return _mm256_set_m128(_mm_loadu_ps(values + 16 + 4 * k), _mm_loadu_ps(values + 4 * k));
#endif
}

#if defined(__AVX512F__)

TENON_INLINE Sum load_bytes(const std::uint8_t* x, std::int64_t count) {
  if (count >= quad_channels) return _mm512_loadu_si512(x);
  return _mm512_maskz_loadu_epi8((std::uint64_t{1} << count) - 1, x);
}
TENON_INLINE Interleaved interleave(Sum r0, Sum r1, Sum r2) {
  const Sum none = _mm512_setzero_si512();
  const Sum low = _mm512_unpacklo_epi8(r0, r1), high = _mm512_unpackhi_epi8(r0, r1);
  const Sum low2 = _mm512_unpacklo_epi8(r2, none), high2 = _mm512_unpackhi_epi8(r2, none);
  return {{_mm512_unpacklo_epi16(low, low2), _mm512_unpackhi_epi16(low, low2),
           _mm512_unpacklo_epi16(high, high2), _mm512_unpackhi_epi16(high, high2)}};
}
/// Numbers from 0 to 255 in the sums' order, as codes in the channels'.
TENON_INLINE void store_interleaved(std::uint8_t* y, const Float* v, std::int64_t count) {
  const Sum even = _mm512_packs_epi32(_mm512_cvtps_epi32(v[0]), _mm512_cvtps_epi32(v[1]));
  const Sum odd = _mm512_packs_epi32(_mm512_cvtps_epi32(v[2]), _mm512_cvtps_epi32(v[3]));
  const Sum codes = _mm512_packus_epi16(even, odd);
  if (count >= quad_channels) return _mm512_storeu_si512(y, codes);
  _mm512_mask_storeu_epi8(y, (std::uint64_t{1} << count) - 1, codes);
}

#else

TENON_INLINE Sum load_bytes(const std::uint8_t* x, std::int64_t count) {
  if (count >= quad_channels) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  std::uint8_t pad[quad_channels] = {};
  for (std::int64_t i = 0; i < count; ++i) pad[i] = x[i];
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pad));
}
TENON_INLINE Interleaved interleave(Sum r0, Sum r1, Sum r2) {
  const Sum none = _mm256_setzero_si256();
  const Sum low = _mm256_unpacklo_epi8(r0, r1), high = _mm256_unpackhi_epi8(r0, r1);
  const Sum low2 = _mm256_unpacklo_epi8(r2, none), high2 = _mm256_unpackhi_epi8(r2, none);
  return {{_mm256_unpacklo_epi16(low, low2), _mm256_unpackhi_epi16(low, low2),
           _mm256_unpacklo_epi16(high, high2), _mm256_unpackhi_epi16(high, high2)}};
}
/// Numbers from 0 to 255 in the sums' order, as codes in the channels'.
TENON_INLINE void store_interleaved(std::uint8_t* y, const Float* v, std::int64_t count) {
  const Sum even = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
  const Sum odd = _mm256_packs_epi32(_mm256_cvtps_epi32(v[2]), _mm256_cvtps_epi32(v[3]));
  const Sum codes = _mm256_packus_epi16(even, odd);
  if (count >= quad_channels) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), codes);
  std::uint8_t pad[quad_channels];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(pad), codes);
  for (std::int64_t i = 0; i < count; ++i) y[i] = pad[i];
}

#endif

struct QuadsScaling {
  Float factor[4], offset[4], low, high;
};

/// The scales of `quad_channels` channels from `channel` on.
QuadsScaling quads_scaling(const Int8DepthwiseJob& job, std::int64_t channel) {
  alignas(64) float factor[quad_channels] = {}, offset[quad_channels] = {};
  for (int c = 0; c < quad_channels && channel + c < job.channels; c += Simd::lanes) {
    const Scaling scaling = scaling_of<true>(job.finish, channel + c, job.channels - channel - c);
    Simd::store_float(factor + c, scaling.factor);
    Simd::store_float(offset + c, scaling.offset);
  }
  QuadsScaling result{};
  for (int k = 0; k < 4; ++k) {
    result.factor[k] = spread(factor, k);
    result.offset[k] = spread(offset, k);
  }
  result.low = Simd::broadcast(&job.finish.low);
  result.high = Simd::broadcast(&job.finish.high);
  return result;
}

/// Adjacent outputs of one row. `rows`: where the three rows of taps begin, at column 0; null for
/// those outside.
template <int pixels, int stride>
TENON_INLINE void quads_tile(const Int8DepthwiseJob& job, const std::uint8_t* const* rows,
                             std::int64_t column, const std::int8_t* w, const QuadsScaling& scaling,
                             std::uint8_t* y, std::int64_t count) {
  Interleaved sums[static_cast<std::size_t>(pixels)];
#pragma GCC unroll 4
  for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) sums[p].at[k] = Int8Simd::zero();
  }
  const std::int64_t left = column * stride - job.columns.before;
  constexpr int width = (pixels - 1) * stride + 3;
#pragma GCC unroll 16
  for (int c = 0; c < width; ++c) {
    const bool is_inside = left + c >= 0 && left + c < job.columns.inputs;
    const auto codes = [&](int r) {
      const std::uint8_t* x =
          is_inside && rows[r] != nullptr ? rows[r] + (left + c) * job.x.column : job.outside;
      return load_bytes(x, count);
    };
    const Interleaved quads = interleave(codes(0), codes(1), codes(2));
#pragma GCC unroll 4
    for (int s = 0; s < 3; ++s) {
      if (c < s || (c - s) % stride != 0 || (c - s) / stride >= pixels) continue;
      Interleaved& sum = sums[(c - s) / stride];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        sum.at[k] = Int8Simd::dot(sum.at[k], quads.at[k], Int8Simd::load(w + (s * 4 + k) * 64));
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < pixels; ++p) {
    Float v[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      v[k] = Simd::fma(Int8Simd::to_float(sums[p].at[k]), scaling.factor[k], scaling.offset[k]);
      v[k] = Simd::min(Simd::max(v[k], scaling.low), scaling.high);
    }
    store_interleaved(y + p * job.finish.codes.column, v, count);
  }
}

template <int stride>
void quads_part(const Int8DepthwiseJob& job, const Part& part) {
  std::int64_t next = 0;
  for (std::int64_t c = part.first_channel; c < part.last_channel; c = next) {
    // A part may begin inside a block of weights: values loaded behind the block are not used.
    next = c + quad_channels - c % quad_channels;
    const std::int64_t count = (part.last_channel < next ? part.last_channel : next) - c;
    const std::int8_t* w = job.quads + c / 64 * 768 + c % 64;
    const QuadsScaling scaling = quads_scaling(job, c);
    for (std::int64_t i = part.first_row; i < part.last_row; ++i) {
      const std::uint8_t* rows[3];
      for (int r = 0; r < 3; ++r) {
        const std::int64_t row = i * job.rows.stride + r - job.rows.before;
        rows[r] = row >= 0 && row < job.rows.inputs ? job.x.at + row * job.x.row + c : nullptr;
      }
      std::uint8_t* y = job.finish.codes.at + i * job.finish.codes.row + c;
      std::int64_t j = part.first_column;
      const auto run = [&]<int pixels>() {
        for (; part.last_column - j >= pixels; j += pixels) {
          quads_tile<pixels, stride>(job, rows, j, w, scaling, y + j * job.finish.codes.column,
                                     count);
        }
      };
      run.template operator()<quads_pixels>();
      if constexpr (quads_pixels > 2) run.template operator()<2>();
      run.template operator()<1>();
    }
  }
}

/// Whether this kernel supports the job.
TENON_INLINE bool takes_quads(const Int8DepthwiseJob& job) {
  const Int8Finish& finish = job.finish;
  return job.quads != nullptr && finish.codes.at != nullptr && finish.codes.channel == 1 &&
         finish.residual_codes.at == nullptr && finish.residual_values.at == nullptr &&
         job.rows.dilation == 1 && job.columns.dilation == 1 &&
         (job.columns.stride == 1 || job.columns.stride == 2);
}

#endif

}  // namespace
}  // namespace tenon::cpu
