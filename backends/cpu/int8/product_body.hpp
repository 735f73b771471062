#pragma once

// The tile of ../product_body.hpp for codes: dot products of four adjacent channels, sums in
// integers. Included after int8_simd.hpp.
#include "../convolution/tile_table.hpp"
#include "../integer_math.hpp"
#include "finish.hpp"
#include "int8_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

constexpr int int8_pixels = Simd::lanes == 16 ? 14 : Simd::lanes == 8 ? 5 : 3;
constexpr int int8_vectors = Simd::lanes == 16 ? 2 : parts;

template <int pixels, int vectors>
struct Int8Sums {
  Sum at[static_cast<std::size_t>(pixels)][static_cast<std::size_t>(vectors)];
};

/// Adds the products of `quads` quads. Pixels between the first and the last are `step` apart
/// behind `middle`, the first's regular place; the first and the last may be elsewhere. `wide`:
/// weights have any magnitude.
template <bool wide, int pixels, int vectors>
TENON_INLINE void add_int8_run(Int8Sums<pixels, vectors>& sums, const std::uint8_t* first,
                               const std::uint8_t* middle, const std::uint8_t* last,
                               std::int64_t step, const std::int8_t* filter, std::int64_t panel,
                               std::int64_t quads) {
  // x86 addresses base, base + s and base + 2 s from two registers: one base for three pixels.
  constexpr int inner = pixels > 2 ? pixels - 2 : 0;
  constexpr int bases = ceil_div(inner, 3);
  const std::uint8_t* base[static_cast<std::size_t>(bases > 0 ? bases : 1)];
#pragma GCC unroll 8
  for (int b = 0; b < bases; ++b) base[b] = middle + (3 * b + 1) * step;
  for (std::int64_t q = 0; q < quads; ++q) {
    Sum w[static_cast<std::size_t>(vectors)];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      w[v] = Int8Simd::load(filter + v / parts * panel + v % parts * Simd::lanes * 4);
    }
#pragma GCC unroll 16
    for (int p = 0; p < pixels; ++p) {
      const std::uint8_t* from = p == 0            ? first
                                 : p == pixels - 1 ? last
                                                   : base[(p - 1) / 3] + (p - 1) % 3 * step;
      const Sum x = Int8Simd::broadcast(from);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        sums.at[p][v] = wide ? Int8Simd::wide_dot(sums.at[p][v], x, w[v])
                             : Int8Simd::dot(sums.at[p][v], x, w[v]);
      }
    }
    filter += 64;
    first += 4;
    last += 4;
#pragma GCC unroll 8
    for (int b = 0; b < bases; ++b) base[b] += 4;
  }
}

struct Int8Tile {
  std::int64_t row, column, channel;
};

template <bool wide, int pixels, int vectors>
TENON_INLINE void add_int8_taps(const Int8ProductJob& job, const Int8Tile& tile,
                                Int8Sums<pixels, vectors>& sums) {
  const WindowAxis& columns = job.columns;
  const std::int64_t left = tile.column * columns.stride - columns.before;
  const std::int64_t right = left + (pixels - 1) * columns.stride;
  const std::int64_t step = columns.stride * job.x.column;
  const Taps taps = taps_inside(job.rows, tile.row);
  const std::int8_t* filter = job.filter + tile.channel / 16 * job.panel + tile.channel % 16 * 4;
  for (std::int64_t r = 0; r < job.rows.taps; ++r) {
    const bool row_inside = r >= taps.begin && r < taps.end;
    if (!row_inside && job.finish.zero == 0) continue;
    const std::int64_t row = tile.row * job.rows.stride + r * job.rows.dilation - job.rows.before;
    const std::uint8_t* x = job.x.at + row * job.x.row + left * job.x.column;
    const std::int8_t* w = filter + r * job.runs * job.quads * 64;
    for (std::int64_t s = 0; s < job.runs; ++s, w += job.quads * 64) {
      if (!row_inside) {
        add_int8_run<wide, pixels, vectors>(sums, job.outside, job.outside, job.outside, 0, w,
                                            job.panel, job.quads);
        continue;
      }
      const std::int64_t shift = s * columns.dilation;
      const std::uint8_t* from = x + shift * job.x.column;
      const bool first_inside = left + shift >= 0 && left + shift < columns.inputs;
      const bool last_inside = right + shift >= 0 && right + shift < columns.inputs;
      add_int8_run<wide, pixels, vectors>(sums, first_inside ? from : job.outside, from,
                                          last_inside ? from + (pixels - 1) * step : job.outside,
                                          step, w, job.panel, job.quads);
    }
  }
}

template <int pixels, int vectors>
TENON_INLINE void store_as_sums(const Int8ProductJob& job, const Int8Tile& tile,
                                const Int8Sums<pixels, vectors>& sums) {
  const Image<std::int32_t>& image = job.finish.sums;
  std::int32_t* to = image.at + tile.row * image.row + tile.column * image.column + tile.channel;
#pragma GCC unroll 16
  for (int p = 0; p < pixels; ++p, to += image.column) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const std::int64_t count = job.outputs - tile.channel - v * Simd::lanes;
      Int8Simd::store_sum(to + v * Simd::lanes, sums.at[p][v], count);
    }
  }
}

template <bool wide, int pixels, int vectors>
void int8_tile(const Int8ProductJob& job, const Int8Tile& tile) {
  Int8Sums<pixels, vectors> sums;
#pragma GCC unroll 16
  for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sums.at[p][v] = Int8Simd::zero();
  }
  add_int8_taps<wide, pixels, vectors>(job, tile, sums);
  if (job.finish.sums.at != nullptr) return store_as_sums<pixels, vectors>(job, tile, sums);
  alignas(64) std::int32_t values[static_cast<std::size_t>(pixels * vectors * Simd::lanes)];
#pragma GCC unroll 16
  for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      Int8Simd::store_sum(values + (p * vectors + v) * Simd::lanes, sums.at[p][v]);
    }
  }
  store_sums(job.finish, tile.row, tile.column, tile.channel, values, pixels, vectors * Simd::lanes,
             job.outputs - tile.channel);
}

using Int8TileFunction = void (*)(const Int8ProductJob& job, const Int8Tile& tile);

template <bool wide, int vectors>
constexpr auto int8_tiles = tiles_by_width<int8_pixels>(
    []<int pixels>() -> Int8TileFunction { return int8_tile<wide, pixels, vectors>; });

/// All pixels of a part, channels [first, last).
template <bool wide>
void int8_pixels_of(const Int8ProductJob& job, const Part& part, std::int64_t first,
                    std::int64_t last) {
  constexpr std::int64_t lanes = Simd::lanes;
  const std::int64_t width = part.last_column - part.first_column;
  const std::int64_t tiles = ceil_div(width, int8_pixels);
  for (std::int64_t row = part.first_row; row < part.last_row; ++row) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t column = width * t / tiles, pixels = width * (t + 1) / tiles - column;
      std::int64_t channel = first;
      const auto left = [&] { return ceil_div(last - channel, lanes); };
      const auto run = [&]<int vectors>() {
        const Int8TileFunction tile = int8_tiles<wide, vectors>[pixels];
        for (; left() >= vectors; channel += vectors * lanes) {
          tile(job, {row, part.first_column + column, channel});
        }
      };
      run.template operator()<int8_vectors>();
      if constexpr (int8_vectors > 2) run.template operator()<2>();
      run.template operator()<1>();
    }
  }
}

/// Bands of channels whose filters stay in L2 beside the image; within a band all channels of one
/// tile before the next tile.
template <bool wide>
void run_int8_product(const Int8ProductJob& job, const Part& part) noexcept {
  if (part.first_column >= part.last_column) return;
  constexpr std::int64_t cached_bytes = 1 << 19;
  constexpr std::int64_t band = 32;
  const std::int64_t panels = cached_bytes / (job.panel > 0 ? job.panel : 1);
  const std::int64_t step = panels * 16 / band * band > 0 ? panels * 16 / band * band : band;
  for (std::int64_t c = part.first_channel; c < part.last_channel; c += step) {
    int8_pixels_of<wide>(job, part, c, c + step < part.last_channel ? c + step : part.last_channel);
  }
}

}  // namespace
}  // namespace tenon::cpu
