#pragma once

// Convolution as a matrix product whose right operand, the patches, is never written out: tiles of
// 16 pixels are gathered for a stretch of k and multiplied with all output channels while they lie
// in the level-one cache. Included after a simd_*.hpp.
//
// Each output is one chain of multiply-adds in the order of k, so its bits do not depend on the
// tile it falls into.
#include "../matmul/dense_tile.hpp"
#include "../matmul/kernels.hpp"
#include "kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

constexpr std::int64_t patch_stretch = 256;  // elements of k
constexpr std::int64_t tile_pixels = 16;

struct ConvScratch {
  alignas(64) float patches[dense_panels * patch_stretch * tile_pixels];
  alignas(64) float sums[max_block_rows * dense_width];
};

/// Where 16 neighbouring outputs find their inputs: the first tap's row and column. Pixels past the
/// last have a row far outside.
struct PixelTile {
  std::int64_t first, count;
  std::int64_t row[tile_pixels], column[tile_pixels];

  PixelTile(const ConvJob& job, std::int64_t first_pixel, std::int64_t pixels)
      : first(first_pixel), count(pixels) {
    std::int64_t i = first_pixel / job.columns.outputs, j = first_pixel % job.columns.outputs;
    for (std::int64_t p = 0; p < tile_pixels; ++p) {
      row[p] = p < pixels ? i * job.rows.stride - job.rows.before : std::int64_t{-1} << 40;
      column[p] = j * job.columns.stride - job.columns.before;
      if (++j == job.columns.outputs) {
        j = 0;
        ++i;
      }
    }
  }
};

/// Calls body(out, from) for the channels whose k of this tap lies in [first, last): where a tile's
/// 16 values go, and the channel's plane.
template <class Body>
TENON_INLINE void each_channel(const ConvJob& job, std::int64_t tap, std::int64_t first,
                               std::int64_t last, float* out, Body body) {
  const std::int64_t taps = job.rows.taps * job.columns.taps;
  std::int64_t channel = first <= tap ? 0 : (first - tap + taps - 1) / taps;
  std::int64_t k = channel * taps + tap;
  const float* from = job.x + channel * job.channel_step;
  for (; k < last; k += taps, from += job.channel_step) body(out + (k - first) * tile_pixels, from);
}

/// One tap's values of a tile for the channels of a stretch of k.
TENON_INLINE void gather_tap(const ConvJob& job, const PixelTile& tile, std::int64_t r,
                             std::int64_t s, std::int64_t first, std::int64_t last, float* out) {
  const std::int64_t tap = r * job.columns.taps + s;
  const std::int64_t down = r * job.rows.dilation, right = s * job.columns.dilation;
  std::int64_t offset[tile_pixels];
  alignas(64) std::uint32_t inside[tile_pixels];  // all bits, or none
  bool contiguous = true, complete = true;
  // Pixels that lie inside are neighbours in memory wherever they do: rows may follow one another.
  const std::int64_t start = (tile.row[0] + down) * job.row_step + tile.column[0] + right;
  for (std::int64_t p = 0; p < tile_pixels; ++p) {
    const std::int64_t row = tile.row[p] + down, column = tile.column[p] + right;
    const bool is_inside =
        row >= 0 && row < job.rows.inputs && column >= 0 && column < job.columns.inputs;
    offset[p] = is_inside ? row * job.row_step + column : -1;
    inside[p] = is_inside ? ~std::uint32_t{0} : 0;
    complete &= is_inside;
    contiguous &= !is_inside || offset[p] == start + p;
  }
  const std::int64_t plane = (job.rows.inputs - 1) * job.row_step + job.columns.inputs;
  if (contiguous && complete) {
    each_channel(job, tap, first, last, out, [=](float* to, const float* from) {
      __builtin_memcpy(to, from + start, tile_pixels * sizeof(float));
    });
  } else if (contiguous && start >= 0 && start + tile_pixels <= plane) {
    each_channel(job, tap, first, last, out, [&](float* to, const float* from) {
      std::uint32_t bits[tile_pixels];
      __builtin_memcpy(bits, from + start, sizeof bits);
      for (std::int64_t p = 0; p < tile_pixels; ++p) bits[p] &= inside[p];
      __builtin_memcpy(to, bits, sizeof bits);
    });
  } else if (complete && offset[tile_pixels - 1] == offset[0] + 2 * (tile_pixels - 1) &&
             job.columns.stride == 2 && tile.row[0] == tile.row[tile_pixels - 1]) {
    each_channel(job, tap, first, last, out, [&](float* to, const float* from) {
      const float* line = from + offset[0];
      for (std::int64_t p = 0; p < tile_pixels; ++p) to[p] = line[2 * p];
    });
  } else {
    each_channel(job, tap, first, last, out, [&](float* to, const float* from) {
      for (std::int64_t p = 0; p < tile_pixels; ++p) {
        to[p] = offset[p] >= 0 ? from[offset[p]] : 0.0f;
      }
    });
  }
}

void gather_patches(const ConvJob& job, const PixelTile& tile, std::int64_t first,
                    std::int64_t last, float* out) {
  for (std::int64_t r = 0; r < job.rows.taps; ++r) {
    for (std::int64_t s = 0; s < job.columns.taps; ++s) {
      gather_tap(job, tile, r, s, first, last, out);
    }
  }
}

/// Sums of one tile's worth of columns to the image, with the bias.
TENON_INLINE void write_pixels(const ConvJob& job, std::int64_t output, std::int64_t pixel,
                               std::int64_t count, const float* sums) {
  const float bias = job.bias == nullptr ? 0.0f : job.bias[output];
  float* y = job.y + output * job.pixels + pixel;
  for (std::int64_t p = 0; p < count; ++p) y[p] = sums[p] + bias;
}

void run_conv(const ConvJob& job, std::int64_t first_pixel, std::int64_t last_pixel,
              std::int64_t first_output, std::int64_t last_output) noexcept {
  ConvScratch scratch;
  const std::int64_t depth = job.depth, outputs = last_output - first_output;
  for (std::int64_t pixel = first_pixel; pixel < last_pixel; pixel += dense_width) {
    const std::int64_t width =
        last_pixel - pixel < dense_width ? last_pixel - pixel : std::int64_t{dense_width};
    for (std::int64_t k = 0; k == 0 || k < depth; k += patch_stretch) {
      const std::int64_t end = k + patch_stretch < depth ? k + patch_stretch : depth;
      for (int panel = 0; panel < dense_panels; ++panel) {
        const std::int64_t left = width - tile_pixels * panel;
        const PixelTile tile(job, pixel + tile_pixels * panel,
                             left < 0             ? 0
                             : left < tile_pixels ? left
                                                  : tile_pixels);
        gather_patches(job, tile, k, end, scratch.patches + panel * patch_stretch * tile_pixels);
      }
      const Left w{job.w + first_output * depth + k, depth, 1};
      dense_tiles<dense_panels, F32Weights>(
          w, outputs, scratch.patches, patch_stretch * tile_pixels, end - k, k != 0, scratch.sums);
    }
    for (std::int64_t o = 0; o < outputs; ++o) {
      write_pixels(job, first_output + o, pixel, width, scratch.sums + o * dense_width);
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
