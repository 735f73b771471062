#pragma once

// GEMM of bf16 numbers by AMX tiles, with sums in f32. Included after simd/avx512.hpp, by AMX
// sources only.
#include "../simd/amx_tiles.hpp"

#include <cstdint>

#include <immintrin.h>

namespace tenon::cpu {
namespace {

constexpr std::int64_t tile_elements = 512;  // bf16 numbers in a tile of 1 KiB

// Rows of x in tiles 4 and 5, weights in 6 and 7.
constinit const TileConfiguration tile_configuration;

/// 32 numbers in bf16, those of `low` first.
TENON_INLINE __m512i rounded(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

/// Where the line of row `row` in tile column `column` begins, of tiles `columns` wide.
template <class Element>
TENON_INLINE Element* line_of(Element* tiles, std::int64_t columns, std::int64_t row,
                              std::int64_t column) {
  return tiles + (row / 16 * columns + column) * tile_elements + row % 16 * 32;
}

/// Lanes of two f32 vectors as pairs (even, odd) of bf16.
TENON_INLINE __m512i pair(__m512 even, __m512 odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, rounded(even, odd));
}

/// A factor as tiles: rows (or columns) 16 to 31 follow `step` elements after rows 0 to 15.
struct Tiles {
  const std::uint16_t* at;
  std::int64_t step;
};

/// Where the sums of a multiplication start and where they go; strides in floats from row to row.
struct SumsPlace {
  const float* from;         ///< null: they start at zero
  std::int64_t from_stride;  ///< 0: all rows start alike
  float* to;
  std::int64_t to_stride;
};

/// Sums of 16 * row_blocks rows of x times 32 columns of w, over `steps` groups of 32 elements of
/// k, with a call of `each_step` for each.
template <int row_blocks, class EachStep>
TENON_INLINE void tile_product(const Tiles& x, const Tiles& w, std::int64_t steps,
                               const SumsPlace& sums, EachStep&& each_step) {
  constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));
  finish_writes();
  if (sums.from != nullptr) {
    const float* lower = sums.from + 16 * sums.from_stride;
    _tile_loadd(0, sums.from, sums.from_stride * float_bytes);
    _tile_loadd(1, sums.from + 16, sums.from_stride * float_bytes);
    if constexpr (row_blocks == 2) {
      _tile_loadd(2, lower, sums.from_stride * float_bytes);
      _tile_loadd(3, lower + 16, sums.from_stride * float_bytes);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t s = 0; s < steps; ++s) {
    each_step();
    _tile_loadd(4, x.at + s * tile_elements, 64);
    _tile_loadd(6, w.at + s * tile_elements, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w.at + w.step + s * tile_elements, 64);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (row_blocks == 2) {
      _tile_loadd(5, x.at + x.step + s * tile_elements, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  float* lower = sums.to + 16 * sums.to_stride;
  _tile_stored(0, sums.to, sums.to_stride * float_bytes);
  _tile_stored(1, sums.to + 16, sums.to_stride * float_bytes);
  if constexpr (row_blocks == 2) {
    _tile_stored(2, lower, sums.to_stride * float_bytes);
    _tile_stored(3, lower + 16, sums.to_stride * float_bytes);
  }
}

}  // namespace
}  // namespace tenon::cpu
