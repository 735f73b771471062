// What tasks on images [N, C, H, W] share: the layout of operands and the division of work.
#pragma once

#include "../convolution/convolution_kernels.hpp"
#include "../integer_math.hpp"
#include "../thread_pool.hpp"

#include <tenon/lowered.hpp>

#include <algorithm>
#include <cstdint>

namespace tenon::cpu {

/// Image 0 of an operand of f32 whose first byte is at `bytes`.
template <class T>
Image<T> image_of(const Operand& operand, T* bytes) noexcept {
  const std::int64_t channel = operand.shape[1] == 1 ? 1 : operand.strides[1] / 4;
  return {bytes, operand.strides[2] / 4, operand.strides[3] / 4, channel};
}
template <class T>
Image<T> moved(Image<T> image, std::int64_t elements) noexcept {
  if (image.at != nullptr) image.at += elements;
  return image;
}

/// The work of a task on images as a grid of parts, channels outermost.
struct ImageGrid {
  std::int64_t images = 1, rows = 1, columns = 1, channels = 1;  ///< of the output
  std::int64_t row_parts = 1, column_parts = 1, channel_parts = 1;

  std::int64_t size() const noexcept { return channel_parts * images * row_parts * column_parts; }
  std::int64_t image(std::int64_t item) const noexcept {
    return item / (row_parts * column_parts) % images;
  }
  /// Channels by 32: whole bands of the kernels.
  Part part(std::int64_t item) const noexcept {
    const auto at = [](std::int64_t count, std::int64_t i, std::int64_t of) {
      return split(count, static_cast<int>(i), static_cast<int>(of));
    };
    const Range column = at(columns, item % column_parts, column_parts);
    const Range row = at(rows, item / column_parts % row_parts, row_parts);
    const Range band =
        at(ceil_div(channels, 32), item / (column_parts * row_parts * images), channel_parts);
    return {row.begin,  row.end,         column.begin,
            column.end, band.begin * 32, std::min(band.end * 32, channels)};
  }
};

/// Load imbalance: the largest share of `threads` threads over an even share of `count` items.
inline double imbalance(std::int64_t count, std::int64_t threads) noexcept {
  if (count <= 0) return 1e9;
  const std::int64_t even = round_up(count, threads);
  return static_cast<double>(even) / static_cast<double>(count);
}

}  // namespace tenon::cpu
