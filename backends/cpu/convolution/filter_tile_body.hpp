#pragma once

// Tiles of the gradient of a filter. Included after a header of simd/.
#include "convolution_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

template <int rows, int vectors>
TENON_INLINE void filter_tile(const FilterTile& tile, const float* a, const float* b, float* c) {
  constexpr int per_panel = FilterTile::columns / Simd::lanes;
  Simd::Float sums[static_cast<std::size_t>(rows)][static_cast<std::size_t>(vectors)];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sums[i][v] = Simd::zero_float();
  }
  for (std::int64_t k = 0; k < tile.depth; ++k) {
    Simd::Float columns[static_cast<std::size_t>(vectors)];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      columns[v] = Simd::load_float(b + v / per_panel * tile.panel + v % per_panel * Simd::lanes);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const Simd::Float x = Simd::broadcast(a + i);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums[i][v] = Simd::fma(x, columns[v], sums[i][v]);
    }
    a += tile.a_step;
    b += FilterTile::columns;
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      float* const to = c + i * tile.c_step + v * Simd::lanes;
      const Simd::Float sum = sums[i][v];
      Simd::store_float(to, tile.adds ? Simd::load_float(to) + sum : sum);
    }
  }
}

/// All rows of tiles of one vector register file: 6 by 4 vectors with 32 registers, 6 by 2 or 3 by 4
/// with 16.
template <int panels>
TENON_INLINE void filter_tiles_of(const FilterTile& tile, std::int64_t panel) {
  constexpr int vectors = panels * FilterTile::columns / Simd::lanes;
  constexpr int rows = Simd::lanes == 4 ? 3 : FilterTile::rows;
  for (int i = 0; i < FilterTile::rows; i += rows) {
    filter_tile<rows, vectors>(tile, tile.a + i, tile.b + panel * tile.panel,
                               tile.c + i * tile.c_step + panel * FilterTile::columns);
  }
}

void run_filter_tiles(const FilterTile& tile, std::int64_t panels) noexcept {
  constexpr int most = Simd::lanes == 16 ? 4 : 1;
  std::int64_t panel = 0;
  for (; panel + most <= panels; panel += most) filter_tiles_of<most>(tile, panel);
  if constexpr (most > 1) {
    for (; panel + 2 <= panels; panel += 2) filter_tiles_of<2>(tile, panel);
    for (; panel < panels; ++panel) filter_tiles_of<1>(tile, panel);
  }
}

}  // namespace
}  // namespace tenon::cpu
