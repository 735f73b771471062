#pragma once

// Where AMX tiles read an image: the rows of a tile are pixels a fixed step apart, so that one load
// reads a tap's input of 16 adjacent pixels. Included after int8_simd.hpp, by AMX sources only.
#include "../integer_math.hpp"
#include "int8_kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace tenon::cpu {
namespace {

/// The offset of a tap's input from a pixel's first byte, along one axis. A padded copy has a plane
/// for each remainder modulo the stride.
struct TapSteps {
  std::int64_t dilation, stride;
  std::int64_t plane, step;  ///< bytes

  TENON_INLINE std::int64_t operator[](std::int64_t tap) const {
    const std::int64_t place = tap * dilation;
    return stride == 1 ? place * step : place % stride * plane + place / stride * step;
  }
};

/// The input of some rows and columns of outputs.
struct TilePixels {
  const std::uint8_t* at;  ///< the first pixel's first tap
  std::int64_t step;       ///< bytes from a pixel to the next
  std::int64_t row;        ///< bytes from a row of outputs to the next
  TapSteps rows, columns;
  bool is_copied;  ///< with the padding of the image

  /// Pixels per row including unused ones at the end, where all rows are one line; or 0.
  std::int64_t line_width() const { return row % step == 0 ? row / step : 0; }
};

/// Whether no column of outputs reaches outside of the image.
inline bool columns_are_inside(const WindowAxis& columns) {
  const std::int64_t reach = (columns.taps - 1) * columns.dilation;
  return columns.before == 0 && (columns.outputs - 1) * columns.stride + reach < columns.inputs;
}

/// The image in place, without padding columns.
inline TilePixels pixels_in_place(const Int8ProductJob& job, const Part& part) {
  const Image<const std::uint8_t>& x = job.x;
  const std::int64_t row = part.first_row * job.rows.stride - job.rows.before;
  return {x.at + row * x.row + part.first_column * job.columns.stride * x.column,
          job.columns.stride * x.column,
          job.rows.stride * x.row,
          {job.rows.dilation, 1, 0, x.row},
          {job.columns.dilation, 1, 0, x.column},
          false};
}

/// One axis of a padded copy: planes of `size` places for `outputs` outputs.
struct PaddedAxis {
  std::int64_t planes, size;

  PaddedAxis(const WindowAxis& axis, std::int64_t outputs) {
    const std::int64_t reach = (axis.taps - 1) * axis.dilation;
    planes = axis.stride <= reach ? axis.stride : reach + 1;
    size = outputs + reach / axis.stride;
  }
};

/// Bytes behind a padded copy that tiles may read, of unused pixels.
TENON_INLINE std::int64_t padded_overread(const Int8ProductJob& job) { return 16 * job.quads * 4; }

TENON_INLINE std::int64_t padded_bytes(const Int8ProductJob& job, std::int64_t rows,
                                       std::int64_t columns) {
  const PaddedAxis down(job.rows, rows), across(job.columns, columns);
  return down.planes * across.planes * down.size * across.size * job.quads * 4 +
         padded_overread(job);
}

TENON_INLINE void copy_codes(std::uint8_t* to, const std::uint8_t* from, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 64 <= count; i += 64) _mm512_storeu_si512(to + i, _mm512_loadu_si512(from + i));
  if (i == count) return;
  const __mmask64 mask = (std::uint64_t{1} << (count - i)) - 1;
  _mm512_mask_storeu_epi8(to + i, mask, _mm512_maskz_loadu_epi8(mask, from + i));
}

/// `count` places of a row of the image from column `first` on, every `stride`-th.
inline void copy_row(const Int8ProductJob& job, const std::uint8_t* row, std::int64_t first,
                     std::int64_t stride, std::int64_t count, std::uint8_t* to) {
  const std::int64_t channels = job.quads * 4, inputs = job.columns.inputs;
  const auto zeros = [&](std::int64_t places) {
    std::memset(to, job.outside[0], static_cast<std::size_t>(places * channels));
    to += places * channels;
  };
  // Places [begin, end) are inside.
  std::int64_t begin = first >= 0 ? 0 : ceil_div(-first, stride);
  std::int64_t end = inputs > first ? (inputs - first - 1) / stride + 1 : 0;
  end = end < count ? end : count;
  begin = begin < end ? begin : end;
  if (row == nullptr) begin = end = 0;
  zeros(begin);
  if (begin < end) {
    const std::uint8_t* from = row + (first + begin * stride) * job.x.column;
    if (stride == 1 && job.x.column == channels) {
      const std::int64_t bytes = (end - begin) * channels;
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
      to += bytes;
    } else {
      for (std::int64_t p = begin; p < end; ++p, to += channels) {
        copy_codes(to, from, channels);
        from += stride * job.x.column;
      }
    }
  }
  zeros(count - end);
}

/// Copies the image with its padding, for a run of channels per tap: [plane of rows][plane of
/// columns][row][column][channel].
inline TilePixels copy_pixels(const Int8ProductJob& job, const Part& part, std::uint8_t* to) {
  const PaddedAxis down(job.rows, part.last_row - part.first_row);
  const PaddedAxis across(job.columns, part.last_column - part.first_column);
  const std::int64_t channels = job.quads * 4, row_bytes = across.size * channels;
  const std::int64_t plane = down.size * row_bytes;
  const std::int64_t top = part.first_row * job.rows.stride - job.rows.before;
  const std::int64_t left = part.first_column * job.columns.stride - job.columns.before;
  for (std::int64_t p = 0; p < down.planes; ++p) {
    for (std::int64_t q = 0; q < across.planes; ++q) {
      std::uint8_t* at = to + (p * across.planes + q) * plane;
      for (std::int64_t i = 0; i < down.size; ++i, at += row_bytes) {
        const std::int64_t row = top + p + i * job.rows.stride;
        const bool is_inside = row >= 0 && row < job.rows.inputs;
        copy_row(job, is_inside ? job.x.at + row * job.x.row : nullptr, left + q,
                 job.columns.stride, across.size, at);
      }
    }
  }
  return {to,
          channels,
          row_bytes,
          {job.rows.dilation, job.rows.stride, across.planes * plane, row_bytes},
          {job.columns.dilation, job.columns.stride, plane, channels},
          true};
}

}  // namespace
}  // namespace tenon::cpu
