// Products of matrices of i8 and u8 in tensor cores: a block per tile of 64 by 64. A code of u8 is
// that of i8 which is 128 less, as is then its zero point. What zero points take off comes of the
// sums of rows and columns: sum (a - p) (b - q) = sum a b - p sum b - q sum a + depth p q.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/tensor_core.hpp"

#include <cstdint>

namespace tenon::cuda {

inline constexpr std::uint32_t code_words = 16;             ///< of a row of a tile: 64 codes
inline constexpr std::uint32_t code_line = code_words + 4;  ///< no two rows in the same banks

/// The code at an address as one of i8, and what it then counts less.
TENON_DEVICE std::uint32_t signed_code(DType dtype, Address at) {
  return *global<const std::uint8_t>(at) ^ (dtype == DType::u8 ? 0x80u : 0u);
}
TENON_DEVICE std::uint32_t signed_zero(DType dtype, const Array& zero, std::int64_t offset) {
  const std::int64_t value = zero_point(zero, offset) - (dtype == DType::u8 ? 128 : 0);
  return static_cast<std::uint32_t>(value);
}

/// Codes `first` to `first` + 31 of a row, `step` bytes apart, into a tile's words from `at` on; zeros
/// behind `depth`. Returns their sum.
template <class Tile>
TENON_DEVICE std::int32_t load_codes(Tile& tile, std::uint32_t at, DType dtype, Address row,
                                     std::int64_t step, std::uint32_t first, std::uint32_t depth) {
  std::int32_t sum = 0;
  for (std::uint32_t i = 0; i < 8; ++i) {
    std::uint32_t word = 0;
    for (std::uint32_t j = 0; j < 4; ++j) {
      const std::uint32_t k = first + 4 * i + j;
      if (k >= depth) break;
      word |= signed_code(dtype, row + static_cast<Address>(k * step)) << (8 * j);
    }
    tile[at + i] = word;
    sum += product_of_words(word, 0x01010101u);
  }
  return sum;
}

TENON_DEVICE void matmul_codes(const Thread& thread, const MatmulArgs& args) {
  TENON_SHARED(thread, std::uint32_t, left, tensor_tile* code_line);
  TENON_SHARED(thread, std::uint32_t, right, tensor_tile* code_line);
  TENON_SHARED(thread, std::uint32_t, row_sums, tensor_threads);  // two halves of each
  TENON_SHARED(thread, std::uint32_t, column_sums, tensor_threads);
  const std::uint32_t column_tiles = (args.columns + tensor_tile - 1) / tensor_tile;
  const std::uint32_t tiles = column_tiles * ((args.rows + tensor_tile - 1) / tensor_tile);
  const std::uint32_t tile = thread.block() % tiles;
  const std::uint32_t first_row = tile / column_tiles * tensor_tile;
  const std::uint32_t first_column = tile % column_tiles * tensor_tile;
  const Index batch = index_of(args.batch, thread.block() / tiles);
  const int rank = args.batch.rank;
  const std::uint32_t line = thread.index() / 2, half = thread.index() % 2 * 32;
  const std::uint32_t m = first_row + line, n = first_column + line;
  const Address a =
      args.a.data + static_cast<Address>(offset_of(batch, args.a.steps, rank) + m * args.a_row);
  const Address b =
      args.b.data + static_cast<Address>(offset_of(batch, args.b.steps, rank) + n * args.b_column);
  const std::uint32_t row = warp_of(thread) / 2 * 32, column = warp_of(thread) % 2 * 32;
  FragmentOfCodes sums[2][4];
  std::int32_t row_sum = 0, column_sum = 0;
  for (std::uint32_t begin = 0; begin < args.depth; begin += 4 * code_words) {
    const std::uint32_t at = line * code_line + half / 4, first = begin + half;
    row_sum +=
        load_codes(left, at, args.a.dtype, a, args.a_depth, first, m < args.rows ? args.depth : 0);
    column_sum += load_codes(right, at, args.b.dtype, b, args.b_depth, first,
                             n < args.columns ? args.depth : 0);
    thread.sync();
    for (std::uint32_t word = 0; word < code_words; word += 8) {
      FragmentB columns[4];
      TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
        columns[j] = load_b(thread, right, (column + 8 * j) * code_line + word, code_line);
      }
      TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
        const FragmentA rows = load_a(thread, left, (row + 16 * i) * code_line + word, code_line);
        TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
          multiply_codes(thread, rows, columns[j], sums[i][j]);
        }
      }
    }
    thread.sync();
  }
  row_sums[thread.index()] = static_cast<std::uint32_t>(row_sum);
  column_sums[thread.index()] = static_cast<std::uint32_t>(column_sum);
  thread.sync();

  const std::uint32_t a_zero = signed_zero(args.a.dtype, args.a_zero, 0);
  const std::int64_t c = offset_of(batch, args.c.steps, rank);
  TENON_UNROLL for (std::uint32_t i = 0; i < 2; ++i) {
    TENON_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
      TENON_UNROLL for (std::uint32_t part = 0; part < 4; ++part) {
        const std::uint32_t in_row = row + 16 * i + lane_of(thread) / 4 + part / 2 * 8;
        const std::uint32_t in_column = column + 8 * j + lane_of(thread) % 4 * 2 + part % 2;
        const std::uint32_t y = first_row + in_row, x = first_column + in_column;
        if (y >= args.rows || x >= args.columns) continue;
        const std::uint32_t b_zero =
            signed_zero(args.b.dtype, args.b_zero, x * args.b_zero.steps.bytes[0]);
        const std::uint32_t of_row = row_sums[2 * in_row] + row_sums[2 * in_row + 1];
        const std::uint32_t of_column = column_sums[2 * in_column] + column_sums[2 * in_column + 1];
        const std::uint32_t sum = static_cast<std::uint32_t>(sums[i][j].sums[part]) -
                                  a_zero * of_column - b_zero * of_row +
                                  args.depth * a_zero * b_zero;
        store_as(static_cast<std::int64_t>(static_cast<std::int32_t>(sum)), args.c,
                 c + y * args.c_row + x * args.c_column);
      }
    }
  }
}

}  // namespace tenon::cuda
