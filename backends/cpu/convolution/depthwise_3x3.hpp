#pragma once

// Depthwise 3x3 convolution of f32 images, the usual case: two rows of outputs at a time, so that
// rows of the image are read twice in place of three times, and only a test for padding at either
// end. Included after a header of simd/.
//
// Outputs sum in the order of taps, as those of depthwise_body.hpp do.
#include "convolution_kernels.hpp"
#include "window_taps.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// Output rows of a block: with 7 pixels each, their sums and the taps fill the registers.
constexpr int block_rows = Simd::lanes == 16 ? 2 : 1;

/// Whether this kernel supports the job: adjacent channels everywhere, at most one column of
/// padding on either side.
TENON_INLINE bool is_3x3(const DepthwiseJob& job) {
  const WindowAxis &rows = job.rows, &columns = job.columns;
  const auto is_last = [](const auto& image) { return image.at == nullptr || image.channel == 1; };
  return rows.taps == 3 && columns.taps == 3 && rows.dilation == 1 && columns.dilation == 1 &&
         rows.stride == columns.stride && columns.stride <= 2 && columns.before <= 1 &&
         (columns.outputs - 1) * columns.stride - columns.before + 2 <= columns.inputs &&
         job.y.channel == 1 && is_last(job.finish.residual);
}

/// The first of a block's outputs.
struct DepthwiseBlock {
  std::int64_t row, column;
};

/// `edges`: some column may be outside; `whole`: the channels fill a vector.
template <int stride, int rows, int pixels, bool edges, bool whole>
TENON_INLINE void block_channels(const DepthwiseJob& job, const DepthwiseBlock& block,
                                 std::int64_t channel) {
  constexpr int width = (pixels - 1) * stride + 3, height = (rows - 1) * stride + 3;
  const std::int64_t count = whole ? Simd::lanes : job.channels - channel;
  const std::int64_t top = block.row * stride - job.rows.before;
  const std::int64_t left = block.column * stride - job.columns.before;
  const bool has_first = !edges || left >= 0;
  const bool has_last = !edges || left + width <= job.columns.inputs;
  const float* filter = job.filter + channel / 16 * 16 * 9 + channel % 16;
  Float taps[9], sums[static_cast<std::size_t>(rows)][static_cast<std::size_t>(pixels)];
#pragma GCC unroll 9
  for (int t = 0; t < 9; ++t) taps[t] = Simd::load_float(filter + t * 16);
  const Float bias = job.finish.bias == nullptr ? Simd::zero_float()
                                                : load_channels(job.finish.bias + channel, count);
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < pixels; ++p) sums[r][p] = bias;
  }
  const float* x = job.x.at + top * job.x.row + left * job.x.column + channel;
#pragma GCC unroll 8
  for (int i = 0; i < height; ++i, x += job.x.row) {
    if (top + i < 0 || top + i >= job.rows.inputs) continue;
#pragma GCC unroll 16
    for (int c = 0; c < width; ++c) {
      if (edges && c == 0 && !has_first) continue;
      if (edges && c == width - 1 && !has_last) continue;
      const Float value = load_channels(x + c * job.x.column, count);
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) {
        const int tap_row = i - r * stride;
        if (tap_row < 0 || tap_row > 2) continue;
#pragma GCC unroll 3
        for (int s = 0; s < 3; ++s) {
          if (c < s || (c - s) % stride != 0 || (c - s) / stride >= pixels) continue;
          Float& sum = sums[r][(c - s) / stride];
          sum = Simd::fma(value, taps[tap_row * 3 + s], sum);
        }
      }
    }
  }
  const Float low = Simd::broadcast(&job.finish.low), high = Simd::broadcast(&job.finish.high);
  const Image<const float>& residual = job.finish.residual;
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) {
    float* y = job.y.at + (block.row + r) * job.y.row + block.column * job.y.column + channel;
    if (residual.at != nullptr) {
      const float* from =
          residual.at + (block.row + r) * residual.row + block.column * residual.column + channel;
#pragma GCC unroll 8
      for (int p = 0; p < pixels; ++p) {
        sums[r][p] = Simd::add(sums[r][p], load_channels(from + p * residual.column, count));
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < pixels; ++p) {
      store_channels(y + p * job.y.column, limited(sums[r][p], low, high), count);
    }
  }
}

template <int stride, int rows, int pixels, bool edges>
void depthwise_block(const DepthwiseJob& job, const DepthwiseBlock& block, const Part& part) {
  std::int64_t channel = part.first_channel;
  for (; channel + Simd::lanes <= part.last_channel; channel += Simd::lanes) {
    block_channels<stride, rows, pixels, edges, true>(job, block, channel);
  }
  if (channel < part.last_channel) {
    block_channels<stride, rows, pixels, edges, false>(job, block, channel);
  }
}

template <int stride, int rows>
void depthwise_blocks(const DepthwiseJob& job, std::int64_t row, const Part& part) {
  std::int64_t column = part.first_column;
  const auto run = [&]<int pixels>() {
    for (; part.last_column - column >= pixels; column += pixels) {
      const std::int64_t left = column * stride - job.columns.before;
      const bool inside = left >= 0 && left + (pixels - 1) * stride + 3 <= job.columns.inputs;
      const DepthwiseBlock block{row, column};
      inside ? depthwise_block<stride, rows, pixels, false>(job, block, part)
             : depthwise_block<stride, rows, pixels, true>(job, block, part);
    }
  };
  run.template operator()<7>();
  run.template operator()<3>();
  run.template operator()<1>();
}

template <int stride>
void depthwise_3x3(const DepthwiseJob& job, const Part& part) {
  std::int64_t row = part.first_row;
  for (; part.last_row - row >= block_rows; row += block_rows) {
    depthwise_blocks<stride, block_rows>(job, row, part);
  }
  if (row < part.last_row) depthwise_blocks<stride, 1>(job, row, part);
}

}  // namespace
}  // namespace tenon::cpu
