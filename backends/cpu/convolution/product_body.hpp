#pragma once

// Convolution as an implicit GEMM: the patches (im2col) are never stored. A tile of adjacent pixels
// stays in registers for the whole sum and reads the image in place, since with channels last each
// tap is a contiguous run. Included after a header of simd/.
//
// Each output is one chain of multiply-adds in the order of the filter's panels, so its bits do not
// depend on its tile.
#include "../integer_math.hpp"
#include "convolution_kernels.hpp"
#include "store_planes.hpp"
#include "tile_table.hpp"
#include "window_taps.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

// A tile of 14 by 2 vectors (6 by 2, 3 by 4) fills the registers. The rows of common networks'
// images are multiples of 14 or 7.
constexpr int tile_pixels = Simd::lanes == 16 ? 14 : Simd::lanes == 8 ? 6 : 3;
constexpr int tile_vectors = Simd::lanes == 16 ? 2 : parts;
constexpr int lone_vectors = 8;  // for a single pixel: enough independent chains of additions

alignas(64) constinit const float zero_pixel[max_zero_channels] = {};

template <int pixels, int vectors>
struct Sums {
  Float at[static_cast<std::size_t>(pixels)][static_cast<std::size_t>(vectors)];
};

/// Prefetches memory to L2: what is needed after the current tile.
TENON_INLINE void fetch(const float* at) { __builtin_prefetch(at, 0, 2); }

/// Adds `count` products to the sums of a tile, and prefetches a line at `ahead` for every four.
/// The pixels between the first and the last are `step` apart behind `middle`, the first's regular
/// place; the first and the last may be elsewhere.
template <int pixels, int vectors>
TENON_INLINE void add_run(Sums<pixels, vectors>& sums, const float* first, const float* middle,
                          const float* last, std::int64_t step, const float* filter,
                          std::int64_t panel, std::int64_t count, const float* ahead) {
  // x86 addresses base, base + s and base + 2 s from two registers: one base for three pixels.
  constexpr int inner = pixels > 2 ? pixels - 2 : 0;
  constexpr int bases = ceil_div(inner, 3);
  const float* base[static_cast<std::size_t>(bases > 0 ? bases : 1)];
#pragma GCC unroll 8
  for (int b = 0; b < bases; ++b) base[b] = middle + (3 * b + 1) * step;
  const auto add = [&] {
    Float w[static_cast<std::size_t>(vectors)];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      w[static_cast<std::size_t>(v)] =
          Simd::load_float(filter + v / parts * panel + v % parts * Simd::lanes);
    }
#pragma GCC unroll 16
    for (int p = 0; p < pixels; ++p) {
      const float* from = p == 0            ? first
                          : p == pixels - 1 ? last
                                            : base[(p - 1) / 3] + (p - 1) % 3 * step;
      const Float x = Simd::broadcast(from);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums.at[p][v] = Simd::fma(x, w[v], sums.at[p][v]);
    }
    filter += 16;
    ++first;
    ++last;
#pragma GCC unroll 8
    for (int b = 0; b < bases; ++b) ++base[b];
  };
  std::int64_t k = 0;
  for (; k + 4 <= count; k += 4) {
    fetch(ahead);
    ahead += 16;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) add();
  }
  for (; k < count; ++k) add();
}

/// The place of a tile, and what to prefetch while it is computed.
struct Tile {
  std::int64_t row, column, channel;
  const float* ahead;
};

template <int pixels, int vectors>
TENON_INLINE void add_taps(const ProductJob& job, const Tile& tile, Sums<pixels, vectors>& sums) {
  const WindowAxis& columns = job.columns;
  const bool has_images = job.has_images;
  const std::int64_t line = has_images ? tile.row / columns.outputs : tile.row;
  const std::int64_t column = has_images ? tile.row % columns.outputs : tile.column;
  const Taps taps = taps_inside(job.rows, line);
  const Taps across = has_images ? taps_inside(columns, column) : Taps{0, columns.taps};
  const std::int64_t left = column * columns.stride - columns.before;
  const std::int64_t right = has_images ? left : left + (pixels - 1) * columns.stride;
  const std::int64_t reach = (columns.taps - 1) * columns.dilation;
  const bool inside = has_images || (left >= 0 && right + reach < columns.inputs);
  const bool one_run = inside && columns.dilation == 1 && job.x.column == job.channels;
  const std::int64_t count = across.end - across.begin;
  const std::int64_t last = one_run ? across.begin + 1 : across.end;
  const std::int64_t run = one_run ? count * job.channels : job.channels;
  const std::int64_t step = has_images ? job.x_image : columns.stride * job.x.column;
  const float* const image = job.x.at + (has_images ? tile.column * job.x_image : 0);
  const float* ahead = tile.ahead;
  const float* filter = job.filter + tile.channel / 16 * job.panel + tile.channel % 16;
  for (std::int64_t r = taps.begin; r < taps.end; ++r) {
    const std::int64_t row = line * job.rows.stride + r * job.rows.dilation - job.rows.before;
    const float* x = image + row * job.x.row + left * job.x.column;
    const float* w = filter + r * columns.taps * job.channels * 16;
    for (std::int64_t s = across.begin; s < last; ++s) {
      const std::int64_t shift = s * columns.dilation;
      const float* from = x + shift * job.x.column;
      const bool first_inside = left + shift >= 0 && left + shift < columns.inputs;
      const bool last_inside = right + shift >= 0 && right + shift < columns.inputs;
      add_run<pixels, vectors>(sums, first_inside ? from : zero_pixel, from,
                               last_inside ? from + (pixels - 1) * step : zero_pixel, step,
                               w + s * job.channels * 16, job.panel, run, ahead);
      ahead += run / 4 * 16;
    }
  }
}

/// Sums [pixels][width] of a tile where channels are not adjacent. Not inlined into the tiles: there
/// GCC would spill sums to memory in the loop of products.
[[gnu::noinline]] void store_apart(const ProductJob& job, const Tile& tile, const float* values,
                                   std::int64_t pixels, std::int64_t width) {
  const Finish& finish = job.finish;
  const std::int64_t left = job.outputs - tile.channel, channels = left < width ? left : width;
  const auto place = [&](const auto& image, std::int64_t pixel, std::int64_t channel) {
    return image.at + tile.row * image.row + (tile.column + pixel) * image.column +
           (tile.channel + channel) * image.channel;
  };
  if (has_planes(job.y, finish)) {
    for (std::int64_t c = 0; c < channels; c += Simd::lanes) {
      Float lines[Simd::lanes];
#pragma GCC unroll 16
      for (int p = 0; p < Simd::lanes; ++p) {
        lines[p] = p < pixels ? Simd::load_float(values + p * width + c) : Simd::zero_float();
      }
      store_planes(finish, lines, pixels, channels - c, place(job.y, 0, c), job.y.channel,
                   finish.residual.at == nullptr ? nullptr : place(finish.residual, 0, c));
    }
    return;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t p = 0; p < pixels; ++p) {
      float value = values[p * width + c];
      if (finish.residual.at != nullptr) value += *place(finish.residual, p, c);
      value = value < finish.low ? finish.low : value;
      *place(job.y, p, c) = value > finish.high ? finish.high : value;
    }
  }
}

template <int pixels, int vectors>
TENON_INLINE void store_tile(const ProductJob& job, const Tile& tile, const Float& low,
                             const Float& high, const Sums<pixels, vectors>& sums) {
  const Image<const float>& residual = job.finish.residual;
  const std::int64_t channels = job.outputs - tile.channel;
  const bool is_last = job.y.channel == 1 && (residual.at == nullptr || residual.channel == 1);
  if (is_last) {
    const auto place = [&](const auto& image) {
      return tile.row * image.row + tile.column * image.column + tile.channel;
    };
    float* y = job.y.at + place(job.y);
    const float* r = residual.at == nullptr ? nullptr : residual.at + place(residual);
    const bool is_whole = channels >= vectors * Simd::lanes;
#pragma GCC unroll 16
    for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        const std::int64_t count = is_whole ? Simd::lanes : channels - v * Simd::lanes;
        Float sum = sums.at[p][v];
        if (r != nullptr) {
          sum = sum + load_channels(r + p * residual.column + v * Simd::lanes, count);
        }
        store_channels(y + p * job.y.column + v * Simd::lanes, limited(sum, low, high), count);
      }
    }
    return;
  }
  constexpr int width = vectors * Simd::lanes;
  alignas(64) float values[static_cast<std::size_t>(pixels * width)];
#pragma GCC unroll 16
  for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      Simd::store_float(values + (p * vectors + v) * Simd::lanes, sums.at[p][v]);
    }
  }
  store_apart(job, tile, values, pixels, width);
}

template <int pixels, int vectors>
void product_tile(const ProductJob& job, const Tile& tile) {
  Sums<pixels, vectors> sums;
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) {
    const std::int64_t channel = tile.channel + v * Simd::lanes;
    const Float start = job.finish.bias == nullptr
                            ? Simd::zero_float()
                            : load_channels(job.finish.bias + channel, job.outputs - channel);
#pragma GCC unroll 16
    for (int p = 0; p < pixels; ++p) sums.at[p][v] = start;
  }
  constexpr std::int64_t lines = ceil_div(vectors, parts);
  const auto fetch_lines = [&](const auto& image) {
    if (image.at == nullptr || image.channel != 1) return;
    const float* at = image.at + tile.row * image.row + tile.column * image.column + tile.channel;
#pragma GCC unroll 16
    for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 8
      for (int line = 0; line < lines; ++line) {
        fetch(at + p * image.column + line * 16);
      }
    }
  };
  fetch_lines(job.finish.residual);
  fetch_lines(job.y);
  add_taps<pixels, vectors>(job, tile, sums);
  store_tile<pixels, vectors>(job, tile, Simd::broadcast(&job.finish.low),
                              Simd::broadcast(&job.finish.high), sums);
}

using TileFunction = void (*)(const ProductJob& job, const Tile& tile);

template <int vectors>
constexpr auto product_tiles = tiles_by_width<tile_pixels>(
    []<int pixels>() -> TileFunction { return product_tile<pixels, vectors>; });

/// The widest tile for a job. Pixels whose distance is a multiple of 4 KiB share one set of L1: of
/// these no more than its ways.
TENON_INLINE std::int64_t widest_tile(const ProductJob& job) {
  const std::int64_t step = job.has_images ? job.x_image : job.columns.stride * job.x.column;
  const bool competes = step % 1024 == 0;
  return competes && tile_pixels > 8 ? 8 : tile_pixels;
}

/// All pixels of a part for `vectors` vectors of channels from `channel` on.
template <int vectors>
void product_band(const ProductJob& job, const Part& part, std::int64_t channel) {
  // Tiles of two widths that differ by one: none so narrow that the latency of additions shows.
  const std::int64_t width = part.last_column - part.first_column, widest = widest_tile(job);
  const std::int64_t tiles = ceil_div(width, widest);
  const std::int64_t narrow = width / tiles, wider = width % tiles;
  const TileFunction narrow_tile = product_tiles<vectors>[narrow];
  const TileFunction wide_tile = wider > 0 ? product_tiles<vectors>[narrow + 1] : nullptr;
  // The next band's part of the filter is prefetched meanwhile, an eighth per tile.
  const float* const here = job.filter + channel / 16 * job.panel;
  const float* const next = here + vectors * Simd::lanes / 16 * job.panel;
  const bool has_next = channel + vectors * Simd::lanes < part.last_channel;
  std::int64_t done = 0;
  for (std::int64_t row = part.first_row; row < part.last_row; ++row) {
    std::int64_t column = part.first_column;
    for (std::int64_t t = 0; t < tiles; ++t, ++done) {
      const bool is_wide = t < wider;
      const float* ahead = has_next && done < 8 ? next + done * (job.panel / 4) : here;
      (is_wide ? wide_tile : narrow_tile)(job, {row, column, channel, ahead});
      column += narrow + (is_wide ? 1 : 0);
    }
  }
}

/// All bands of channels of one tile before the next tile: then the output, and the residual, are
/// accessed contiguously.
void product_by_pixels(const ProductJob& job, const Part& part) {
  constexpr std::int64_t lanes = Simd::lanes;
  const std::int64_t width = part.last_column - part.first_column, widest = widest_tile(job);
  const std::int64_t tiles = ceil_div(width, widest);
  for (std::int64_t row = part.first_row; row < part.last_row; ++row) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t column = width * t / tiles, pixels = width * (t + 1) / tiles - column;
      std::int64_t channel = part.first_channel;
      const auto left = [&] { return ceil_div(part.last_channel - channel, lanes); };
      const auto run = [&]<int vectors>() {
        const TileFunction tile = product_tiles<vectors>[pixels];
        for (; left() >= vectors; channel += vectors * lanes) {
          tile(job, {row, part.first_column + column, channel, job.filter});
        }
      };
      run.template operator()<tile_vectors>();
      if constexpr (tile_vectors > 2) run.template operator()<2>();
      run.template operator()<1>();
    }
  }
}

void run_product(const ProductJob& job, const Part& part) noexcept {
  constexpr std::int64_t lanes = Simd::lanes;
  // How much of a filter stays in L2 beside the image.
  constexpr std::int64_t cached_floats = 1 << 17;
  if (part.first_column >= part.last_column) return;
  const std::int64_t filter_floats =
      ceil_div(part.last_channel - part.first_channel, 16) * job.panel;
  if (part.last_column - part.first_column > 1 && filter_floats <= cached_floats) {
    return product_by_pixels(job, part);
  }
  std::int64_t channel = part.first_channel;
  const auto left = [&] { return ceil_div(part.last_channel - channel, lanes); };
  if (part.last_column - part.first_column == 1) {
    for (; left() >= lone_vectors; channel += lone_vectors * lanes) {
      for (std::int64_t row = part.first_row; row < part.last_row; ++row) {
        product_tile<1, lone_vectors>(job, {row, part.first_column, channel, job.filter});
      }
    }
  }
  for (; left() >= tile_vectors; channel += tile_vectors * lanes) {
    product_band<tile_vectors>(job, part, channel);
  }
  if constexpr (tile_vectors > 2) {
    for (; left() >= 2; channel += 2 * lanes) product_band<2>(job, part, channel);
  }
  if (left() > 0) product_band<1>(job, part, channel);
}

}  // namespace
}  // namespace tenon::cpu
