#pragma once

// Blocks of the f32 GEMM: rows of x, copied to cache, by panels of f32 weights. Included after a
// header of simd/.
//
// The scheme is Goto's (Anatomy of High-Performance Matrix Multiplication, 2008): the rows of a
// block stay in L2 while all panels pass, a panel's range of k stays in L1 while all tiles of rows
// are multiplied by it, and sums stay in registers for the range.
#include "dense_kernels.hpp"
#include "tile_sums.hpp"

#include <utility>

namespace tenon::cpu {
namespace {

/// Rows of a tile: with 32 registers, 28 for the sums, two for a line of w and one for x.
constexpr int block_tile_rows = Simd::lanes == 16 ? 14 : Simd::dense_rows;

/// Whether tiles prefetch the output of the next tile. Tiles with fewer sums end too soon:
/// measured, they lose 2 to 5 % by it, and tiles of 14 rows gain as much.
constexpr bool prefetches_later_rows = Simd::lanes == 16;

/// Rows of a block's copy, the addresses of one instruction each.
struct CopiedRows {
  const float* at;
  TENON_INLINE Float operator[](std::size_t r) const {
    return Simd::broadcast(at + r * static_cast<std::size_t>(copy_step));
  }
  TENON_INLINE void advance() { ++at; }
};

/// Rows of lines that the next tile reads or writes, prefetched one row at a time: all at once they
/// would occupy the fill buffers and delay the tile's own loads.
struct LaterRows {
  const float* at;
  std::int64_t step;
  std::int64_t count;
  template <int panels>
  TENON_INLINE void prefetch_one() {
    if (count == 0) return;
    for (int p = 0; p < panels; ++p) __builtin_prefetch(at + 16 * p, 1);
    at += step;
    --count;
  }
};

struct BlockTile {
  const float* x;  ///< rows of a copy
  const float* w;  ///< panels, [count][16] each
  std::int64_t w_step;
  std::int64_t count;
  const float* from;  ///< sums so far; null at the start of k
  std::int64_t from_step;
  float* to;
  std::int64_t to_step;
  const float* bias;  ///< added at last, of the tile's columns; or null
  const float* residual;
  std::int64_t residual_step;
  const float* next_w;      ///< panels that are read after this one
  std::int64_t next_lines;  ///< of next_w to prefetch with every four elements of k
  LaterRows later_y;        ///< where the next tile's sums go
  LaterRows later_residual;
};

template <int rows, int panels>
void block_tile(const BlockTile& t) {
  TileSums<rows, panels> tile;
  if (t.from == nullptr) {
    tile.clear();
  } else {
    tile.load(t.from, t.from_step);
  }
  if constexpr (!prefetches_later_rows) {
    for (int r = 0; r < rows; ++r) {
      for (int p = 0; p < panels; ++p) __builtin_prefetch(t.to + r * t.to_step + 16 * p, 1);
    }
  }
  LaterRows later_y = t.later_y, later_residual = t.later_residual;
  CopiedRows x{t.x};
  const float* w = t.w;
  const float* next_w = t.next_w;
  std::int64_t k = 0;
  for (; k + 16 <= t.count; k += 16) {
    if constexpr (prefetches_later_rows) {
      later_y.prefetch_one<panels>();
      later_residual.prefetch_one<panels>();
    }
    for (int quad = 0; quad < 16; quad += 4) {
      for (std::int64_t i = 0; i < t.next_lines; ++i, next_w += 16) {
        __builtin_prefetch(next_w, 0, 2);
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        tile.template multiply_add<F32Weights>(x, w, t.w_step);
        x.advance();
        w += 16;
      }
    }
  }
  for (; k < t.count; ++k) {
    tile.template multiply_add<F32Weights>(x, w, t.w_step);
    x.advance();
    w += 16;
  }
  if (t.bias != nullptr) tile.add_to_columns(t.bias);
  if (t.residual != nullptr) tile.add(t.residual, t.residual_step);
  tile.store(t.to, t.to_step);
}

/// block_tile by number of rows less one.
template <int panels, class Rows = std::make_integer_sequence<int, block_tile_rows>>
struct BlockTiles;
template <int panels, int... r>
struct BlockTiles<panels, std::integer_sequence<int, r...>> {
  static constexpr void (*of_rows[])(const BlockTile&) = {block_tile<r + 1, panels>...};
};

/// One panel, or as many as a tile is wide.
TENON_INLINE void run_tile(const BlockTile& tile, std::int64_t rows, std::int64_t panels) {
  const auto index = static_cast<std::size_t>(rows - 1);
  if (panels == dense_panels) {
    BlockTiles<dense_panels>::of_rows[index](tile);
  } else {
    BlockTiles<1>::of_rows[index](tile);
  }
}

/// Rows [0, 16) of x, whose columns are contiguous: read by lines of them, and turned in registers.
void copy_sixteen_columns(const float* from, std::int64_t step, std::int64_t count, float* to) {
  std::int64_t k = 0;
  for (; k + Simd::lanes <= count; k += Simd::lanes) {
    for (std::int64_t r = 0; r < 16; r += Simd::lanes) {
      Float square[Simd::lanes];
      for (std::int64_t i = 0; i < Simd::lanes; ++i) {
        square[i] = Simd::load_float(from + (k + i) * step + r);
      }
      Simd::transpose(square);
      for (std::int64_t i = 0; i < Simd::lanes; ++i) {
        Simd::store_float(to + (r + i) * copy_step + k, square[i]);
      }
    }
  }
  for (; k < count; ++k) {
    for (std::int64_t r = 0; r < 16; ++r) to[r * copy_step + k] = from[k * step + r];
  }
}

/// Rows of x for a range of k.
void copy_rows(const Left& x, std::int64_t rows, std::int64_t count, float* copy) {
  std::int64_t r = 0;
  if (x.row == 1 && x.column != 1) {
    for (; r + 16 <= rows; r += 16) {
      copy_sixteen_columns(x.at + r, x.column, count, copy + r * copy_step);
    }
  }
  for (; r < rows; ++r) {
    const float* from = x.at + r * x.row;
    float* to = copy + r * copy_step;
    if (x.column == 1) {
      // Later rows are prefetched: each is too short a run for the hardware prefetcher.
      const float* later = r + 2 < rows ? from + 2 * x.row : from;
      std::int64_t k = 0;
      for (; k + Simd::lanes <= count; k += Simd::lanes) {
        __builtin_prefetch(later + k);
        Simd::store_float(to + k, Simd::load_float(from + k));
      }
      for (; k < count; ++k) to[k] = from[k];
    } else {
      for (std::int64_t k = 0; k < count; ++k) to[k] = from[k * x.column];
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
