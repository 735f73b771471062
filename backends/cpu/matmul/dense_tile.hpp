#pragma once

// Tiles of the f32 GEMM on rows in place. Included after a header of simd/.
#include "tile_sums.hpp"

namespace tenon::cpu {
namespace {

/// sums[rows][dense_width] (+)= x w over `count` elements of k. Sixteen columns of w make a panel;
/// panels are `panel_step` elements apart, and k is `k_step` apart in one.
template <int rows, int panels, class Weights, int k_step>
void dense_tile(const Left& left, const typename Weights::Element* w, std::int64_t panel_step,
                std::int64_t count, bool accumulate, float* sums) {
  TileSums<rows, panels> tile;
  if (accumulate) {
    tile.load(sums, dense_width);
  } else {
    tile.clear();
  }
  StridedRows<rows> x(left);
  for (std::int64_t k = 0; k < count; ++k) {
    tile.template multiply_add<Weights>(x, w + k_step * k, panel_step);
    x.advance();
  }
  tile.store(sums, dense_width);
}

template <int panels, class Weights, int k_step = 16>
void dense_tiles(Left x, std::int64_t rows, const typename Weights::Element* w,
                 std::int64_t panel_step, std::int64_t count, bool accumulate, float* sums) {
  std::int64_t r = 0;
  const auto run = [&]<int tile_rows>() {
    for (; rows - r >= tile_rows; r += tile_rows) {
      dense_tile<tile_rows, panels, Weights, k_step>({x.at + r * x.row, x.row, x.column}, w,
                                                     panel_step, count, accumulate,
                                                     sums + r * dense_width);
    }
  };
  run.template operator()<Simd::dense_rows>();
  if constexpr (Simd::dense_rows > 6) run.template operator()<6>();
  if constexpr (Simd::dense_rows > 4) run.template operator()<4>();
  run.template operator()<2>();
  run.template operator()<1>();
}

}  // namespace
}  // namespace tenon::cpu
