// Products of many rows of f16 or bf16 in tensor cores. f16 by f16 and bf16 by bf16 are multiplied as
// they are. Otherwise an operand that bf16 does not hold is the sum of two of bf16, of which the
// second has what the first lacks: 16 bits, more than the result keeps.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/linear.hpp"
#include "kernels/tensor_core.hpp"

#include <cstdint>

namespace tenon::cuda {

inline constexpr std::uint32_t tensor_words = tensor_depth / 2;  ///< pairs of a row of a tile
inline constexpr std::uint32_t tensor_line = tensor_words + 4;   ///< no two rows in the same banks
inline constexpr std::uint32_t tensor_plane = tensor_tile * tensor_line;  ///< words of a term

/// Sixteen elements of a row into the planes of a tile's terms, from word `at` on.
template <class Tile>
TENON_DEVICE void store_terms(Tile& tile, std::uint32_t at, const float (&values)[16],
                              std::uint32_t terms, bool is_half) {
  for (std::uint32_t i = 0; i < 8; ++i) {
    std::uint32_t first = 0, second = 0;
    for (std::uint32_t part = 0; part < 2; ++part) {
      const float value = values[2 * i + part];
      const std::uint32_t bits = is_half ? narrow_half(value) : narrow_bfloat16(value);
      first |= bits << (16 * part);
      const float held = widen_bfloat16(static_cast<std::uint16_t>(bits));
      const float rest = fabsf(held) < infinity() ? value - held : 0.0f;
      second |= std::uint32_t{narrow_bfloat16(rest)} << (16 * part);
    }
    tile[at + i] = first;
    if (terms == 2) tile[tensor_plane + at + i] = second;
  }
}

template <class Tile>
TENON_DEVICE FragmentA load_a(const Thread& thread, const Tile& tile, std::uint32_t plane,
                              std::uint32_t row, std::uint32_t word) {
  const std::uint32_t g = lane_of(thread) / 4, t = lane_of(thread) % 4;
  const std::uint32_t at = plane * tensor_plane + (row + g) * tensor_line + word + t;
  return {{tile[at], tile[at + 8 * tensor_line], tile[at + 4], tile[at + 8 * tensor_line + 4]}};
}
template <class Tile>
TENON_DEVICE FragmentB load_b(const Thread& thread, const Tile& tile, std::uint32_t plane,
                              std::uint32_t column, std::uint32_t word) {
  const std::uint32_t g = lane_of(thread) / 4, t = lane_of(thread) % 4;
  const std::uint32_t at = plane * tensor_plane + (column + g) * tensor_line + word + t;
  return {{tile[at], tile[at + 4]}};
}

/// A warp's quarter of the tile: 2 by 4 fragments.
using TensorSums = FragmentC[2][4];

/// Adds the product of one term of each operand.
template <bool is_half, class Tile>
TENON_DEVICE void multiply_terms(const Thread& thread, const Tile& xs, const Tile& ws,
                                 std::uint32_t x_term, std::uint32_t w_term, TensorSums& sums) {
  const std::uint32_t row = warp_of(thread) / 2 * 32, column = warp_of(thread) % 2 * 32;
  for (std::uint32_t word = 0; word < tensor_words; word += 8) {
    FragmentB b[4];
    for (std::uint32_t j = 0; j < 4; ++j) b[j] = load_b(thread, ws, w_term, column + 8 * j, word);
    for (std::uint32_t i = 0; i < 2; ++i) {
      const FragmentA a = load_a(thread, xs, x_term, row + 16 * i, word);
      for (std::uint32_t j = 0; j < 4; ++j) {
        multiply_fragments<is_half>(thread, a, b[j], sums[i][j]);
      }
    }
  }
}

/// As linear_tile; x and y: f16 or bf16.
template <class Type>
TENON_DEVICE void linear_tensor(const Thread& thread, const LinearArgs& args) {
  TENON_SHARED(thread, std::uint32_t, xs, 2 * tensor_plane);
  TENON_SHARED(thread, std::uint32_t, ws, 2 * tensor_plane);
  const std::uint32_t column_tiles = (args.columns + tensor_tile - 1) / tensor_tile;
  const std::uint32_t first_row = thread.block() / column_tiles * tensor_tile;
  const std::uint32_t first_column = thread.block() % column_tiles * tensor_tile;
  const std::uint32_t line = thread.index() / 2, half = thread.index() % 2 * 16;
  const std::uint32_t m = first_row + line, n = first_column + line;
  TensorSums sums;
  for (std::uint32_t begin = 0; begin < args.depth; begin += tensor_depth) {
    const std::uint32_t k = begin + half, at = line * tensor_line + half / 2;
    float values[16] = {}, weights[16] = {};
    for (std::uint32_t i = 0; i < 16; i += 8) {
      if (k + i >= args.depth) break;
      if (m < args.rows) {
        load_eight(args.x_dtype, x_row(args, m), k + i, args.depth, values + i);
      }
      if (n < args.columns) {
        Row<Type>::load_eight(args.w + static_cast<Address>(n * args.w_step), k + i, args.depth,
                              weights + i);
      }
    }
    store_terms(xs, at, values, args.x_terms, args.multiplies_halves);
    store_terms(ws, at, weights, args.w_terms, args.multiplies_halves);
    thread.sync();
    if (args.multiplies_halves) {
      multiply_terms<true>(thread, xs, ws, 0, 0, sums);
    } else {
      // The smallest products first; that of both second terms is below what is kept.
      if (args.x_terms == 2) multiply_terms<false>(thread, xs, ws, 1, 0, sums);
      if (args.w_terms == 2) multiply_terms<false>(thread, xs, ws, 0, 1, sums);
      multiply_terms<false>(thread, xs, ws, 0, 0, sums);
    }
    thread.sync();
  }
  const std::uint32_t row = first_row + warp_of(thread) / 2 * 32 + lane_of(thread) / 4;
  const std::uint32_t column = first_column + warp_of(thread) % 2 * 32 + lane_of(thread) % 4 * 2;
  for (std::uint32_t i = 0; i < 2; ++i) {
    for (std::uint32_t j = 0; j < 4; ++j) {
      for (std::uint32_t c = 0; c < 4; ++c) {
        const std::uint32_t y = row + 16 * i + c / 2 * 8, x = column + 8 * j + c % 2;
        if (y < args.rows && x < args.columns) finish(args, y, x, 0, sums[i][j].sums[c]);
      }
    }
  }
}

}  // namespace tenon::cuda
