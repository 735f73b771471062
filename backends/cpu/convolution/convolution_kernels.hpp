#pragma once

#include "../cpu_features.hpp"

#include <cstdint>

/// Convolutions and pools of f32 images as the files compiled for one instruction set provide them.
/// Those files see plain data only, for the reason that matmul/matmul_kernels.hpp gives.
///
/// "Channels last" is the order [row][column][channel]: a pixel's channels side by side.
namespace tenon::cpu {

/// One axis of a window: tap t of output o is input o * stride + t * dilation - before.
struct WindowAxis {
  std::int64_t inputs, outputs;
  std::int64_t taps, stride, dilation, before;
};

/// The layout of an image, in elements: channel c of pixel (i, j) is at[i * row + j * column + c *
/// channel].
template <class T>
struct Image {
  T* at;
  std::int64_t row, column, channel;
};

/// The epilogue of a sum before it is stored: plus bias, plus residual, clamped to [low, high]. A
/// NaN stays.
struct Finish {
  const float* bias;            ///< one per output channel, or null
  Image<const float> residual;  ///< of the output's sizes; `at` may be null
  float low, high;              ///< infinities where there is no limit
};

/// One group of a convolution, of one image or all: y[o] = the sum over (tap row, tap column,
/// channel).
struct ProductJob {
  Image<const float> x;  ///< channels last
  const float* filter;   ///< panels of 16 outputs: [tap row][tap column][channel][16]
  std::int64_t panel;    ///< elements from one panel to the next
  std::int64_t channels, outputs;
  WindowAxis rows, columns;
  Finish finish;
  Image<float> y;
  /// Of all images, `x_image` apart in x: a pixel of several images is what a row's pixels are
  /// otherwise. Rows of `y`, of the residual and of parts are the pixels of the output, row by row,
  /// and columns are images.
  bool has_images = false;
  std::int64_t x_image = 0;
};

/// One image of a convolution with one input and one output channel in every group.
struct DepthwiseJob {
  Image<const float> x;  ///< channels last
  const float* filter;   ///< panels of 16 channels: [tap row][tap column][16]
  std::int64_t channels;
  WindowAxis rows, columns;
  Finish finish;
  Image<float> y;
};

enum class PoolOp : std::uint8_t {
  max,
  mean,         ///< of the taps inside
  padded_mean,  ///< divided by all taps
};

/// One image under a sliding window, channels last.
struct PoolJob {
  Image<const float> x;
  Image<float> y;
  std::int64_t channels;
  WindowAxis rows, columns;
};

/// One plane of an image under a sliding window.
struct PlaneJob {
  const float* x;
  std::int64_t row_step;
  float* y;  ///< [rows.outputs][columns.outputs], dense
  WindowAxis rows, columns;
};

/// A tile of the gradient of a filter: c[i][j] = the sum over k of a[k][i] * b[k][j], added to what
/// c holds if `adds`.
struct FilterTile {
  static constexpr int rows = 6, columns = 16;
  const float* a;  ///< [depth][rows], `a_step` apart
  std::int64_t a_step;
  const float* b;  ///< panels [depth][columns], `panel` apart
  std::int64_t panel, depth;
  float* c;  ///< [rows][panels * columns]
  std::int64_t c_step;
  bool adds;
};

/// Outputs of one call: rows, columns and channels, the last a multiple of 16 where it begins.
struct Part {
  std::int64_t first_row, last_row;
  std::int64_t first_column, last_column;
  std::int64_t first_channel, last_channel;
};

/// An image copied to [rows][before + columns + after][channels], zeros on both sides.
struct PaddedCopy {
  Image<const float> x;
  std::int64_t columns, channels;
  std::int64_t before, width;  ///< `width`: of a row of the copy
  float* to;
};

struct ConvolutionKernels {
  /// Requires columns for which `reaches_out_at_ends_only` holds, and, where some reach outside, at
  /// most max_zero_channels channels; neither with has_images.
  void (*product)(const ProductJob&, const Part&) noexcept;
  void (*depthwise)(const DepthwiseJob&, const Part&) noexcept;
  void (*pool)(PoolOp, const PoolJob&, const Part&) noexcept;
  /// Output rows [first, last).
  void (*plane_pool)(PoolOp, const PlaneJob&, std::int64_t first, std::int64_t last) noexcept;
  /// `panels` adjacent tiles of one block of rows.
  void (*filter_tiles)(const FilterTile&, std::int64_t panels) noexcept;
  /// Rows [first, last).
  void (*copy_padded)(const PaddedCopy&, std::int64_t first, std::int64_t last) noexcept;
};

/// The most channels that a convolution reads from a tap outside of the image: the size of the zero
/// pixel.
inline constexpr std::int64_t max_zero_channels = 4096;

/// Whether the kernel can handle padding along this axis itself: in a row of outputs only the first
/// and the last reach outside of the image.
inline bool reaches_out_at_ends_only(const WindowAxis& columns) noexcept {
  const std::int64_t reach = (columns.taps - 1) * columns.dilation - columns.before;
  return columns.before <= columns.stride &&
         (columns.outputs - 2) * columns.stride + reach < columns.inputs;
}

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
