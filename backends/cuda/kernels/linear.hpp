// Products with weights of any type in tiles, for more rows than gemv.hpp takes, and matrix products.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/weights.hpp"

#include <cstdint>

namespace tenon::cuda {

/// All of a product, as the one part.
TENON_DEVICE LinearPart whole_part(const LinearArgs& args) {
  return {args.w, args.y, args.bias, args.y_step, args.bias_step, args.bias_dtype, args.columns};
}

/// Stores sum + bias + residual as y[m, n] of a part.
TENON_DEVICE void finish(const LinearArgs& args, const LinearPart& part, std::uint32_t m,
                         std::uint32_t n, std::int64_t group, float sum) {
  if (part.bias != 0) {
    const std::int64_t at = n * part.bias_step + group * args.bias_group_step;
    sum += load_real(part.bias_dtype, part.bias + static_cast<Address>(at));
  }
  const std::int64_t element = args.y_dtype == DType::f32 ? 4 : 2;
  if (args.residual != 0) {
    const std::int64_t at = m * args.residual_step + n * element;
    sum += load_real(args.y_dtype, args.residual + static_cast<Address>(at));
  }
  store_real(args.y_dtype, part.y + static_cast<Address>(m * part.y_step + n * element), sum);
}
TENON_DEVICE void finish(const LinearArgs& args, std::uint32_t m, std::uint32_t n,
                         std::int64_t group, float sum) {
  finish(args, whole_part(args), m, n, group, sum);
}

TENON_DEVICE Address x_row(const LinearArgs& args, std::uint32_t m) {
  const std::uint32_t row = args.choices == 1 ? m : m / args.choices;  // divisions take long
  return args.x + static_cast<Address>(row * args.x_step);
}

/// The group of row m, or -1 where it is out of range.
TENON_DEVICE std::int64_t group_of(const LinearArgs& args, std::uint32_t m) {
  if (args.group == 0) return 0;
  const std::int64_t group =
      load_integer(args.group_dtype, args.group + static_cast<Address>(m * args.group_step));
  if (group >= 0 && group < args.groups) return group;
  report(args.reporter, group, args.groups);
  return -1;
}

/// Adds the product of the shared tiles to 4 by 4 sums; a thread has rows and columns 16 apart.
template <class Tile>
TENON_DEVICE void multiply_tiles(const Thread& thread, const Tile& xs, const Tile& ws,
                                 float (&sums)[4][4]) {
  const std::uint32_t row = thread.index() / 16, column = thread.index() % 16;
  for (std::uint32_t k = 0; k < tile_depth; ++k) {
    float x[4], w[4];
    for (std::uint32_t i = 0; i < 4; ++i) x[i] = xs[(row + 16 * i) * (tile_depth + 1) + k];
    for (std::uint32_t j = 0; j < 4; ++j) w[j] = ws[(column + 16 * j) * (tile_depth + 1) + k];
    for (std::uint32_t i = 0; i < 4; ++i) {
      for (std::uint32_t j = 0; j < 4; ++j) sums[i][j] += x[i] * w[j];
    }
  }
}

/// Eight elements into a shared tile: row thread / 4, from column 8 (thread % 4) on.
template <class Tile>
TENON_DEVICE void store_eight(const Thread& thread, Tile& tile, const float* values) {
  const std::uint32_t begin = thread.index() / 4 * (tile_depth + 1) + thread.index() % 4 * 8;
  for (std::uint32_t i = 0; i < 8; ++i) tile[begin + i] = values[i];
}

template <class Type>
TENON_DEVICE void linear_tile(const Thread& thread, const LinearArgs& args) {
  TENON_SHARED(thread, float, xs, tile_rows*(tile_depth + 1));
  TENON_SHARED(thread, float, ws, tile_columns*(tile_depth + 1));
  const std::uint32_t column_tiles = (args.columns + tile_columns - 1) / tile_columns;
  const std::uint32_t first_row = thread.block() / column_tiles * tile_rows;
  const std::uint32_t first_column = thread.block() % column_tiles * tile_columns;
  const std::uint32_t m = first_row + thread.index() / 4, n = first_column + thread.index() / 4;
  float sums[4][4] = {};
  for (std::uint32_t begin = 0; begin < args.depth; begin += tile_depth) {
    const std::uint32_t k = begin + thread.index() % 4 * 8;
    float values[8] = {};
    if (m < args.rows && k < args.depth) {
      load_eight(args.x_dtype, x_row(args, m), k, args.depth, values);
    }
    store_eight(thread, xs, values);
    float weights[8] = {};
    if (n < args.columns && k < args.depth) {
      Row<Type>::load_eight(args.w + static_cast<Address>(n * args.w_step), k, args.depth, weights);
    }
    store_eight(thread, ws, weights);
    thread.sync();
    multiply_tiles(thread, xs, ws, sums);
    thread.sync();
  }
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (std::uint32_t j = 0; j < 4; ++j) {
      const std::uint32_t row = first_row + thread.index() / 16 + 16 * i;
      const std::uint32_t column = first_column + thread.index() % 16 + 16 * j;
      if (row < args.rows && column < args.columns) finish(args, row, column, 0, sums[i][j]);
    }
  }
}

/// Operands of any strides. Blocks: tiles of rows and columns for each index of the batch.
TENON_DEVICE void matmul_tile(const Thread& thread, const MatmulArgs& args) {
  TENON_SHARED(thread, float, as, tile_rows*(tile_depth + 1));
  TENON_SHARED(thread, float, bs, tile_columns*(tile_depth + 1));
  const std::uint32_t column_tiles = (args.columns + tile_columns - 1) / tile_columns;
  const std::uint32_t tiles = column_tiles * ((args.rows + tile_rows - 1) / tile_rows);
  const Index batch = index_of(args.batch, thread.block() / tiles);
  const std::int64_t a = offset_of(batch, args.a.steps, args.batch.rank);
  const std::int64_t b = offset_of(batch, args.b.steps, args.batch.rank);
  const std::int64_t c = offset_of(batch, args.c.steps, args.batch.rank);
  const std::uint32_t first_row = thread.block() % tiles / column_tiles * tile_rows;
  const std::uint32_t first_column = thread.block() % tiles % column_tiles * tile_columns;
  const std::uint32_t m = first_row + thread.index() / 4, n = first_column + thread.index() / 4;
  float sums[4][4] = {};
  for (std::uint32_t begin = 0; begin < args.depth; begin += tile_depth) {
    float left[8] = {}, right[8] = {};
    for (std::uint32_t i = 0; i < 8; ++i) {
      const std::uint32_t k = begin + thread.index() % 4 * 8 + i;
      if (k >= args.depth) break;
      if (m < args.rows) left[i] = load_as(0.0f, args.a, a + m * args.a_row + k * args.a_depth);
      if (n < args.columns) {
        right[i] = load_as(0.0f, args.b, b + k * args.b_depth + n * args.b_column);
      }
    }
    store_eight(thread, as, left);
    store_eight(thread, bs, right);
    thread.sync();
    multiply_tiles(thread, as, bs, sums);
    thread.sync();
  }
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (std::uint32_t j = 0; j < 4; ++j) {
      const std::uint32_t row = first_row + thread.index() / 16 + 16 * i;
      const std::uint32_t column = first_column + thread.index() % 16 + 16 * j;
      if (row >= args.rows || column >= args.columns) continue;
      store_as(sums[i][j], args.c, c + row * args.c_row + column * args.c_column);
    }
  }
}

/// A thread per element; sums modulo 2^64.
TENON_DEVICE void matmul_integers(const Thread& thread, const MatmulArgs& args) {
  const std::uint32_t size = args.rows * args.columns, count = args.batch.count * size;
  for (std::uint32_t i = first_of(thread); i < count; i += stride_of(thread)) {
    const Index batch = index_of(args.batch, i / size);
    const std::uint32_t m = i % size / args.columns, n = i % args.columns;
    const std::int64_t a = offset_of(batch, args.a.steps, args.batch.rank) + m * args.a_row;
    const std::int64_t b = offset_of(batch, args.b.steps, args.batch.rank) + n * args.b_column;
    const std::int64_t a_zero = zero_point(args.a_zero, 0);
    const std::int64_t b_zero = zero_point(args.b_zero, n * args.b_zero.steps.bytes[0]);
    std::uint64_t sum = 0;
    for (std::uint32_t k = 0; k < args.depth; ++k) {
      const std::int64_t left = load_as(std::int64_t(), args.a, a + k * args.a_depth) - a_zero;
      const std::int64_t right = load_as(std::int64_t(), args.b, b + k * args.b_depth) - b_zero;
      sum += static_cast<std::uint64_t>(left) * static_cast<std::uint64_t>(right);
    }
    store_as(static_cast<std::int64_t>(sum), args.c,
             offset_of(batch, args.c.steps, args.batch.rank) + m * args.c_row + n * args.c_column);
  }
}

}  // namespace tenon::cuda
