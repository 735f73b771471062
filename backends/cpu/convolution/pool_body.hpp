#pragma once

// Pools of images with the channels last: a vector of channels at a time. Included after
// plane_pool_body.hpp, whose steps it shares.
#include "convolution_kernels.hpp"
#include "plane_pool_body.hpp"
#include "window_taps.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// `vectors` vectors of channels of one output; `count` channels are left.
template <PoolOp op, int vectors>
TENON_INLINE void pool_pixel(const PoolJob& job, const float* x, Taps rows, Taps columns, float* y,
                             std::int64_t count) {
  constexpr bool is_max = op == PoolOp::max;
  const float first = is_max ? -__builtin_inff() : 0.0f;
  Float sum[static_cast<std::size_t>(vectors)];
  for (int v = 0; v < vectors; ++v) sum[v] = Simd::broadcast(&first);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    for (std::int64_t s = columns.begin; s < columns.end; ++s) {
      const float* from =
          x + r * job.rows.dilation * job.x.row + s * job.columns.dilation * job.x.column;
      for (int v = 0; v < vectors; ++v) {
        const std::int64_t left = vectors == 1 ? count : Simd::lanes;
        sum[v] = take<op>(sum[v], load_channels(from + v * Simd::lanes, left));
      }
    }
  }
  const std::int64_t taps = op == PoolOp::padded_mean
                                ? job.rows.taps * job.columns.taps
                                : (rows.end - rows.begin) * (columns.end - columns.begin);
  const auto divisor = static_cast<float>(taps);
  for (int v = 0; v < vectors; ++v) {
    store_channels(y + v * Simd::lanes, is_max ? sum[v] : sum[v] / Simd::broadcast(&divisor),
                   vectors == 1 ? count : Simd::lanes);
  }
}

template <PoolOp op>
void pool_part(const PoolJob& job, const Part& part) {
  constexpr int wide = 4;
  for (std::int64_t i = part.first_row; i < part.last_row; ++i) {
    const Taps rows = taps_inside(job.rows, i);
    const float* line = job.x.at + (i * job.rows.stride - job.rows.before) * job.x.row;
    for (std::int64_t j = part.first_column; j < part.last_column; ++j) {
      const Taps columns = taps_inside(job.columns, j);
      const float* x = line + (j * job.columns.stride - job.columns.before) * job.x.column;
      float* y = job.y.at + i * job.y.row + j * job.y.column;
      std::int64_t c = part.first_channel;
      for (; part.last_channel - c >= wide * Simd::lanes; c += wide * Simd::lanes) {
        pool_pixel<op, wide>(job, x + c, rows, columns, y + c, job.channels - c);
      }
      for (; c < part.last_channel; c += Simd::lanes) {
        pool_pixel<op, 1>(job, x + c, rows, columns, y + c, job.channels - c);
      }
    }
  }
}

void run_pool(PoolOp op, const PoolJob& job, const Part& part) noexcept {
  switch (op) {
    case PoolOp::max:
      return pool_part<PoolOp::max>(job, part);
    case PoolOp::mean:
      return pool_part<PoolOp::mean>(job, part);
    case PoolOp::padded_mean:
      return pool_part<PoolOp::padded_mean>(job, part);
  }
}

}  // namespace
}  // namespace tenon::cpu
