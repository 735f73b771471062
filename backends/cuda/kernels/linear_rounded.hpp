// Products of more than 8 rows of bf16 with weights that are decoded, and rounded to bf16, on the way
// into tensor cores. A block has 64 rows and 128 columns. Each of its warps has all of the rows, 32 of
// the columns and every other 128 elements of the depth: so a weight is loaded and decoded once, in
// the registers of the lane that multiplies it. Rows go through shared memory, copied there while the
// elements before them are multiplied.
//
// A fragment's 16 elements along k may be any 16, if both operands have the same: lane 4 g + t has
// those that lie together in memory. Of 128 elements it has two pieces of 16, at
// 64 (t / 2) + 16 (t % 2) and 32 behind.
#pragma once

#include "kernels/bf16_pieces.hpp"
#include "kernels/block_sizes.hpp"
#include "kernels/linear.hpp"
#include "kernels/tensor_core.hpp"

#include <cstdint>

namespace tenon::cuda {

// Weights are the first operand of a product, so that what is loaded of a row is a second one as it
// lies: 32 columns of a warp are 2 fragments, of which a lane has 4 columns.
inline constexpr std::uint32_t row_fragments = rounded_tile_rows / 8, column_fragments = 2;
inline constexpr std::uint32_t lane_columns = 2 * column_fragments;
/// Chunks of eight elements: those of a row at a stage, which has one of the pieces of every lane.
inline constexpr std::uint32_t stage_line = rounded_depth / 16;
inline constexpr std::uint32_t stage_chunks = rounded_tile_rows * stage_line;

/// Sums of a warp: 32 columns by 64 rows.
using RoundedSums = FragmentC[row_fragments][column_fragments];

/// Where lane part t has its first piece of the 128 elements that a warp takes.
TENON_DEVICE std::uint32_t piece_begin(std::uint32_t t) { return t / 2 * 64 + t % 2 * 16; }

/// Odd rows have neighbouring chunks exchanged, so that eight lanes find theirs in different banks.
TENON_DEVICE std::uint32_t chunk_place(std::uint32_t row, std::uint32_t chunk) {
  return row * stage_line + (chunk ^ row % 2);
}

/// Rows' elements of one of the pieces of each lane, from depth `begin` on.
template <class Chunks>
TENON_DEVICE void stage_rows(const Thread& thread, const LinearArgs& args, Chunks& chunks,
                             std::uint32_t first_row, std::uint32_t begin, unsigned piece) {
  const std::uint32_t chunk = thread.index() % stage_line;
  const std::uint32_t k = begin + chunk / 8 * (rounded_depth / 2) + piece_begin(chunk / 2 % 4) +
                          32 * piece + chunk % 2 * 8;
  const std::uint32_t rows = args.rows - first_row, first = thread.index() / stage_line;
  const bool is_inside = k < args.depth;
  const Address from = args.x + 2 * Address{k};
  TENON_UNROLL for (std::uint32_t row = first; row < first + rounded_tile_rows; row += 16) {
    if (row - first >= rows) break;
    // Rows behind the last one are copies of it, or, in groups of 16 that have no row, what was there
    // before: nobody stores their sums.
    const std::uint32_t m = first_row + (row < rows ? row : rows - 1);
    const std::uint32_t place = piece * stage_chunks + chunk_place(row, chunk);
    if (is_inside) {
      copy_async(chunks, place, from + static_cast<Address>(m * args.x_step));
    } else {
      chunks[place] = Words4{};
    }
  }
  commit_copies();
}

/// Adds the products of half a piece of each lane: 32 elements of the depth, from chunk `at` on. Of all
/// rows of the tile, though there may be fewer: without branches products and the decoding of other
/// weights overlap.
template <class Chunks>
TENON_DEVICE void multiply_half(const Thread& thread, const Chunks& chunks, unsigned piece,
                                std::uint32_t at, const std::uint32_t (&w)[lane_columns][4],
                                RoundedSums& sums) {
  constexpr std::uint32_t at_once = 4;
  TENON_UNROLL for (std::uint32_t first = 0; first < row_fragments; first += at_once) {
    Words4 x[at_once];
    TENON_UNROLL for (std::uint32_t i = 0; i < at_once; ++i) {
      const std::uint32_t row = 8 * (first + i) + lane_of(thread) / 4;
      x[i] = chunks[piece * stage_chunks + chunk_place(row, at)];
    }
    TENON_UNROLL for (std::uint32_t pair = 0; pair < 4; pair += 2) {
      TENON_UNROLL for (std::uint32_t j = 0; j < column_fragments; ++j) {
        const auto &upper = w[2 * j], &lower = w[2 * j + 1];
        const FragmentA a{{upper[pair], lower[pair], upper[pair + 1], lower[pair + 1]}};
        TENON_UNROLL for (std::uint32_t i = 0; i < at_once; ++i) {
          const FragmentB b{{x[i].at[pair], x[i].at[pair + 1]}};
          multiply_fragments<false>(thread, a, b, sums[first + i][j]);
        }
      }
    }
  }
}

/// A sum of the tile in place of the rows. Columns are exchanged so that the lanes of a warp, which
/// have 8 columns of 4 rows, find theirs in different banks, as do those of 32 columns of a row.
template <class Chunks>
TENON_DEVICE auto& sum_of(Chunks& chunks, std::uint32_t row, std::uint32_t column) {
  const std::uint32_t at = row * rounded_tile_columns + (column ^ row / 2 % 4 * 8);
  return chunks[at / 4].at[at % 4];
}

/// The sums of the warps that have the first half of the depths, and then those of the others added
/// to them.
template <class Chunks>
TENON_DEVICE void join_halves(const Thread& thread, Chunks& chunks, const RoundedSums& sums) {
  const std::uint32_t first_row = lane_of(thread) % 4 * 2;
  const std::uint32_t first_column = warp_of(thread) % 4 * 32 + lane_of(thread) / 4;
  for (std::uint32_t half = 0; half < 2; ++half) {
    thread.sync();
    if (warp_of(thread) / 4 != half) continue;
    TENON_UNROLL for (std::uint32_t i = 0; i < row_fragments; ++i) {
      TENON_UNROLL for (std::uint32_t j = 0; j < column_fragments; ++j) {
        TENON_UNROLL for (std::uint32_t c = 0; c < 4; ++c) {
          auto& place =
              sum_of(chunks, 8 * i + first_row + c % 2, first_column + 16 * j + c / 2 * 8);
          const float before = half == 0 ? 0.0f : bits_to_float(place);
          place = float_to_bits(before + sums[i][j].sums[c]);
        }
      }
    }
  }
  thread.sync();
}

/// The tile's results, or where the depth is split parts of their sums.
template <class Chunks>
TENON_DEVICE void store_sums(const Thread& thread, const LinearArgs& args, const Chunks& chunks,
                             std::uint32_t split, std::uint32_t first_row,
                             std::uint32_t first_column) {
  const std::uint32_t rows =
      args.rows - first_row < rounded_tile_rows ? args.rows - first_row : rounded_tile_rows;
  const std::uint32_t column = thread.index() % rounded_tile_columns, n = first_column + column;
  if (n >= args.columns) return;
  constexpr std::uint32_t rows_at_once = rounded_threads / rounded_tile_columns;
  for (std::uint32_t row = thread.index() / rounded_tile_columns; row < rows; row += rows_at_once) {
    const float sum = bits_to_float(sum_of(chunks, row, column));
    const std::uint32_t m = first_row + row;
    if (args.splits == 1) {
      finish(args, m, n, 0, sum);
    } else {
      const Address element = (Address{split} * args.rows + m) * args.columns + n;
      *global<float>(args.partial + element * sizeof(float)) = sum;
    }
  }
}

template <class Type, bool is_aligned, class Chunks>
TENON_DEVICE void add_products(const Thread& thread, const LinearArgs& args, Chunks& chunks,
                               std::uint32_t first_row, std::uint32_t first_column,
                               std::uint32_t first, RoundedSums& sums) {
  const std::uint32_t end =
      args.depth - first < args.split_depth ? args.depth : first + args.split_depth;
  const std::uint32_t g = lane_of(thread) / 4, t = lane_of(thread) % 4;
  const std::uint32_t half_depth = warp_of(thread) / 4;  // which half of rounded_depth
  const std::uint32_t offset = half_depth * (rounded_depth / 2) + piece_begin(t);
  Address rows_of_w[lane_columns];
  TENON_UNROLL for (std::uint32_t j = 0; j < lane_columns; ++j) {
    const std::uint32_t n = first_column + 8 * j + g;
    rows_of_w[j] =
        args.w + static_cast<Address>((n < args.columns ? n : args.columns - 1) * args.w_step);
  }
  SixteenOf<Type, is_aligned> pieces[2][lane_columns];
  Scaling scalings[lane_columns];
  const auto load = [&](unsigned piece, std::uint32_t begin) {
    TENON_UNROLL for (std::uint32_t j = 0; j < lane_columns; ++j) {
      pieces[piece][j].load(rows_of_w[j], begin + offset + 32 * piece, args.depth);
    }
  };
  const auto decode = [&](unsigned piece, unsigned half, std::uint32_t begin,
                          std::uint32_t(&w)[lane_columns][4]) {
    const std::uint32_t k = begin + offset + 32 * piece;
    TENON_UNROLL for (std::uint32_t j = 0; j < lane_columns; ++j) {
      const SixteenOf<Type, is_aligned>& one = pieces[piece][j];
      if (half == 0) scalings[j] = one.scaling(k, args.depth);
      one.pairs(k, half, scalings[j], w[j]);
    }
  };
  std::uint32_t w[2][lane_columns][4];  // of each half
  stage_rows(thread, args, chunks, first_row, first, 0);
  load(0, first);
  load(1, first);
  decode(0, 0, first, w[0]);
  for (std::uint32_t begin = first; begin < end; begin += rounded_depth) {
    const std::uint32_t next = begin + rounded_depth;
    TENON_UNROLL for (unsigned piece = 0; piece < 2; ++piece) {
      const std::uint32_t at = half_depth * 8 + 2 * t;
      wait_copies<0>();
      thread.sync();
      if (piece == 0) {
        stage_rows(thread, args, chunks, first_row, begin, 1);
      } else if (next < end) {
        stage_rows(thread, args, chunks, first_row, next, 0);
      }
      // What is decoded behind the end is not multiplied.
      decode(piece, 1, begin, w[1]);
      multiply_half(thread, chunks, piece, at, w[0], sums);
      load(piece, next < end ? next : begin);
      decode(1 - piece, 0, piece == 0 ? begin : next, w[0]);
      multiply_half(thread, chunks, piece, at + 1, w[1], sums);
    }
  }
}

/// Blocks: tiles of rows, for every tile of columns, for every split of the depth. Rows begin at
/// multiples of 16 bytes, and the depth is a multiple of 8.
template <class Type>
TENON_DEVICE void linear_rounded(const Thread& thread, const LinearArgs& args) {
  static_assert(2 * stage_chunks * 4 == rounded_tile_rows * rounded_tile_columns);
  TENON_SHARED(thread, Words4, chunks, 2 * stage_chunks);  // rows of two stages
  const std::uint32_t row_tiles = (args.rows + rounded_tile_rows - 1) / rounded_tile_rows;
  const std::uint32_t column_tiles =
      (args.columns + rounded_tile_columns - 1) / rounded_tile_columns;
  const std::uint32_t split = thread.block() / row_tiles / column_tiles;
  const std::uint32_t first_row = thread.block() % row_tiles * rounded_tile_rows;
  const std::uint32_t tile_column =
      thread.block() / row_tiles % column_tiles * rounded_tile_columns;
  const std::uint32_t first_column = tile_column + warp_of(thread) % 4 * 32;
  const std::uint32_t first = split * args.split_depth;
  RoundedSums sums;
  if (SixteenOf<Type, true>::may_be_aligned &&
      (args.w | static_cast<Address>(args.w_step)) % sizeof(Words4) == 0) {
    add_products<Type, true>(thread, args, chunks, first_row, first_column, first, sums);
  } else {
    add_products<Type, false>(thread, args, chunks, first_row, first_column, first, sums);
  }
  join_halves(thread, chunks, sums);
  store_sums(thread, args, chunks, split, first_row, tile_column);
}

/// A thread per result: the sum of its parts, in order.
TENON_DEVICE void join_linear(const Thread& thread, const LinearArgs& args) {
  const std::uint32_t count = args.rows * args.columns;
  for (std::uint32_t i = first_of(thread); i < count; i += stride_of(thread)) {
    float sum = 0;
    for (std::uint32_t split = 0; split < args.splits; ++split) {
      const Address element = Address{split} * count + i;
      sum += *global<const float>(args.partial + element * sizeof(float));
    }
    finish(args, i / args.columns, i % args.columns, 0, sum);
  }
}

}  // namespace tenon::cuda
