#pragma once

#include "../cpu_features.hpp"

#include <cstdint>

/// Convolutions and pools of f32 images as the files compiled for one instruction set provide them.
/// Those files see plain data only, for the reason that matmul/kernels.hpp gives.
namespace tenon::cpu {

/// One axis of a window: tap t of output o is input o * stride + t * dilation - before.
struct WindowAxis {
  std::int64_t inputs, outputs;
  std::int64_t taps, stride, dilation, before;
};

/// One image and group of a convolution: y[o][p] = bias[o] + sum over k of w[o][k] * patch[k][p],
/// with k over (channel, tap row, tap column) and p over the output's pixels.
struct ConvJob {
  const float* x;  ///< [channels][rows.inputs][columns.inputs], columns side by side
  std::int64_t channel_step, row_step;
  const float* w;     ///< [outputs][channels * taps], dense
  const float* bias;  ///< [outputs], or null
  float* y;           ///< [outputs][pixels], dense
  std::int64_t channels;
  WindowAxis rows, columns;
  std::int64_t pixels;  ///< rows.outputs * columns.outputs
  std::int64_t depth;   ///< channels * rows.taps * columns.taps
};

enum class WindowOp : std::uint8_t {
  weighted_sum,  ///< depthwise convolution
  max,
  mean,         ///< of the taps inside
  padded_mean,  ///< divided by all taps
};

/// One plane of an image under a window.
struct WindowJob {
  const float* x;
  std::int64_t row_step;
  const float* weights;  ///< [rows.taps][columns.taps] for weighted_sum
  float bias;
  float* y;  ///< [rows.outputs][columns.outputs], dense
  WindowAxis rows, columns;
};

struct ConvolutionKernels {
  /// Pixels [first_pixel, last_pixel) of outputs [first_output, last_output), at most
  /// max_block_rows of these.
  void (*conv)(const ConvJob&, std::int64_t first_pixel, std::int64_t last_pixel,
               std::int64_t first_output, std::int64_t last_output) noexcept;
  /// Output rows [first, last).
  void (*window)(WindowOp, const WindowJob&, std::int64_t first, std::int64_t last) noexcept;
};

/// Those of the active instruction set.
const ConvolutionKernels& convolution_kernels() noexcept;

namespace portable {
extern const ConvolutionKernels convolution;
}
namespace avx2 {
extern const ConvolutionKernels convolution;
}
namespace avx512 {
extern const ConvolutionKernels convolution;
}

}  // namespace tenon::cpu
