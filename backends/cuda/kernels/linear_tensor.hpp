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

// The planes of an operand's tile: its elements, or the first summands; the second ones; the first
// without infinities and NaNs, which second ones are multiplied with: a second one of 0 would make a
// NaN of an infinity.
enum TensorPlane : std::uint32_t { first_terms, second_terms, finite_terms, tensor_planes };

/// Sixteen elements of a row into the planes of a tile, from word `at` on.
template <class Tile>
TENON_DEVICE void store_terms(Tile& tile, std::uint32_t at, const float (&values)[16],
                              std::uint32_t terms, std::uint32_t terms_of_other, bool is_half) {
  for (std::uint32_t i = 0; i < 8; ++i) {
    std::uint32_t pairs[tensor_planes] = {};
    for (std::uint32_t part = 0; part < 2; ++part) {
      const float value = values[2 * i + part];
      const std::uint16_t bits = is_half ? narrow_half(value) : narrow_bfloat16(value);
      const float held = widen_bfloat16(bits);
      const bool is_finite = fabsf(held) < infinity();
      const unsigned shift = 16 * part;
      pairs[first_terms] |= std::uint32_t{bits} << shift;
      if (!is_finite) continue;
      pairs[second_terms] |= std::uint32_t{narrow_bfloat16(value - held)} << shift;
      pairs[finite_terms] |= std::uint32_t{bits} << shift;
    }
    tile[at + i] = pairs[first_terms];
    if (terms == 2) tile[second_terms * tensor_plane + at + i] = pairs[second_terms];
    if (terms_of_other == 2) tile[finite_terms * tensor_plane + at + i] = pairs[finite_terms];
  }
}

/// A warp's quarter of the tile: 2 by 4 fragments.
using TensorSums = FragmentC[2][4];

/// Adds the product of a plane of each operand.
template <bool is_half, class Tile>
TENON_DEVICE void multiply_terms(const Thread& thread, const Tile& xs, const Tile& ws,
                                 TensorPlane x_plane, TensorPlane w_plane, TensorSums& sums) {
  const std::uint32_t row = warp_of(thread) / 2 * 32, column = warp_of(thread) % 2 * 32;
  const std::uint32_t x_at = x_plane * tensor_plane + row * tensor_line;
  const std::uint32_t w_at = w_plane * tensor_plane + column * tensor_line;
  for (std::uint32_t word = 0; word < tensor_words; word += 8) {
    FragmentB b[4];
    TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
      b[j] = load_b(thread, ws, w_at + 8 * j * tensor_line + word, tensor_line);
    }
    TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
      const FragmentA a = load_a(thread, xs, x_at + 16 * i * tensor_line + word, tensor_line);
      TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
        multiply_fragments<is_half>(thread, a, b[j], sums[i][j]);
      }
    }
  }
}

/// As linear_tile; x and y: f16 or bf16.
template <class Type>
TENON_DEVICE void linear_tensor(const Thread& thread, const LinearArgs& args) {
  TENON_SHARED(thread, std::uint32_t, xs, tensor_planes* tensor_plane);
  TENON_SHARED(thread, std::uint32_t, ws, tensor_planes* tensor_plane);
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
    const bool is_half = args.multiplies_halves;
    store_terms(xs, at, values, args.x_terms, args.w_terms, is_half);
    store_terms(ws, at, weights, args.w_terms, args.x_terms, is_half);
    thread.sync();
    if (is_half) {
      multiply_terms<true>(thread, xs, ws, first_terms, first_terms, sums);
    } else {
      // The smallest products first; that of both second terms is below what is kept.
      if (args.x_terms == 2) {
        multiply_terms<false>(thread, xs, ws, second_terms, finite_terms, sums);
      }
      if (args.w_terms == 2) {
        multiply_terms<false>(thread, xs, ws, finite_terms, second_terms, sums);
      }
      multiply_terms<false>(thread, xs, ws, first_terms, first_terms, sums);
    }
    thread.sync();
  }
  const std::uint32_t row = first_row + warp_of(thread) / 2 * 32 + lane_of(thread) / 4;
  const std::uint32_t column = first_column + warp_of(thread) % 2 * 32 + lane_of(thread) % 4 * 2;
  TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
    TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
      TENON_UNROLL for (std::uint32_t c = 0; c < 4; ++c) {
        const std::uint32_t y = row + 16 * i + c / 2 * 8, x = column + 8 * j + c % 2;
        if (y < args.rows && x < args.columns) finish(args, y, x, 0, sums[i][j].sums[c]);
      }
    }
  }
}

}  // namespace tenon::cuda
