#pragma once

// Products of few rows with a matrix where it lies, which is read once: copying it into panels would take longer than
// the product. Included after a header of simd/.
//
// Each output is one chain of multiply-adds in the order of k, as everywhere in the f32 GEMM.
#include "dense_kernels.hpp"
#include "panel_body.hpp"

namespace tenon::cpu {
namespace {

TENON_INLINE std::int64_t number(std::size_t i) { return static_cast<std::int64_t>(i); }

template <std::size_t rows>
struct RowPointers {
  const float* x[rows];
  float* y[rows];

  RowPointers(const DenseJob& job, std::int64_t first_row) {
    for (std::size_t r = 0; r < rows; ++r) {
      x[r] = job.x + (first_row + number(r)) * job.x_stride;
      y[r] = job.y + (first_row + number(r)) * job.y_stride;
    }
  }
};

/// Adds rows [k, k + depth) of b, times elements of x, to `count` sums of each row of y.
template <std::size_t rows, std::size_t depth>
void add_rows(const DenseJob& job, const StridedColumns& b, std::int64_t k, std::int64_t column,
              std::int64_t count, const RowPointers<rows>& at) {
  constexpr std::int64_t lanes = Simd::lanes;
  Float factor[rows][depth];
  const float* from[depth];
  for (std::size_t d = 0; d < depth; ++d) {
    from[d] = b.at + (k + number(d)) * b.row + column;
    for (std::size_t r = 0; r < rows; ++r)
      factor[r][d] = Simd::broadcast(at.x[r] + (k + number(d)) * job.x_column);
  }
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::size_t r = 0; r < rows; ++r) {
      Float sum = Simd::load_float(at.y[r] + column + i);
      for (std::size_t d = 0; d < depth; ++d) {
        sum = Simd::fma(factor[r][d], Simd::load_float(from[d] + i), sum);
      }
      Simd::store_float(at.y[r] + column + i, sum);
    }
  }
  for (; i < count; ++i) {
    for (std::size_t r = 0; r < rows; ++r) {
      Float sum = Simd::broadcast(at.y[r] + column + i);
      for (std::size_t d = 0; d < depth; ++d) {
        sum = Simd::fma(factor[r][d], Simd::broadcast(from[d] + i), sum);
      }
      float values[lanes];
      Simd::store_float(values, sum);
      at.y[r][column + i] = values[0];
    }
  }
}

/// Outputs [first, last), with rows of b that are contiguous: the sums of a page of columns stay in L1.
template <std::size_t rows>
void sum_rows(const DenseJob& job, const StridedColumns& b, std::int64_t first_row,
              std::int64_t first, std::int64_t last) {
  constexpr std::int64_t page = 1024;
  constexpr std::size_t depth = rows == 1   ? 8
                                : rows == 2 ? 4
                                            : 2;  // so that factors stay in registers
  const RowPointers<rows> at(job, first_row);
  for (std::int64_t column = first; column < last; column += page) {
    const std::int64_t count = smaller(page, last - column);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < count; ++i) at.y[r][column + i] = 0.0f;
    }
    std::int64_t k = 0;
    for (; k + number(depth) <= job.inputs; k += number(depth)) {
      add_rows<rows, depth>(job, b, k, column, count, at);
    }
    for (; k < job.inputs; ++k) add_rows<rows, 1>(job, b, k, column, count, at);
  }
}

/// The outputs of `groups` vectors of columns of b that are contiguous along k: squares of them are transposed in
/// registers. Chains of sums of one group do not wait for those of another.
template <std::size_t rows, std::size_t groups>
void sum_columns(const DenseJob& job, const StridedColumns& b, const RowPointers<rows>& at,
                 std::int64_t first, std::int64_t last) {
  constexpr std::size_t lanes = Simd::lanes;
  const float* columns[groups * lanes];
  for (std::size_t c = 0; c < groups * lanes; ++c) {
    columns[c] = b.at + smaller(first + number(c), last - 1) * b.column;
  }
  Float sums[rows][groups];
  unroll<rows>([&]<int r>() __attribute__((always_inline)) {
    unroll<groups>([&]<int g>()
                       __attribute__((always_inline)) { sums[r][g] = Simd::zero_float(); });
  });
  const auto add = [&](std::int64_t k, std::size_t group, Float column)
                       __attribute__((always_inline)) {
                         unroll<rows>([&]<int r>() __attribute__((always_inline)) {
                           const Float x = Simd::broadcast(at.x[r] + k * job.x_column);
                           sums[r][group] = Simd::fma(x, column, sums[r][group]);
                         });
                       };
  std::int64_t k = 0;
  for (; k + number(lanes) <= job.inputs; k += number(lanes)) {
    unroll<groups>([&]<int g>() __attribute__((always_inline)) {
      Float square[lanes];
      unroll<lanes>([&]<int l>() __attribute__((always_inline)) {
        square[l] = Simd::load_float(columns[g * lanes + l] + k);
      });
      Simd::transpose(square);
      unroll<lanes>([&]<int l>() __attribute__((always_inline)) { add(k + l, g, square[l]); });
    });
  }
  for (; k < job.inputs; ++k) {
    unroll<groups>([&]<int g>() __attribute__((always_inline)) {
      float values[lanes];
      for (std::size_t l = 0; l < lanes; ++l) values[l] = columns[g * lanes + l][k];
      add(k, g, Simd::load_float(values));
    });
  }
  for (std::size_t r = 0; r < rows; ++r) {
    float values[groups * lanes];
    for (std::size_t g = 0; g < groups; ++g) Simd::store_float(values + g * lanes, sums[r][g]);
    for (std::size_t c = 0; c < groups * lanes && first + number(c) < last; ++c) {
      at.y[r][first + number(c)] = values[c];
    }
  }
}

/// Outputs [first, last), with columns of b that are contiguous.
template <std::size_t rows>
void sum_columns(const DenseJob& job, const StridedColumns& b, std::int64_t first_row,
                 std::int64_t first, std::int64_t last) {
  const RowPointers<rows> at(job, first_row);
  // Lines of columns that are pages apart share a set of L1, which holds eight of them or some more.
  constexpr std::int64_t page = 4096 / sizeof(float);
  const bool is_crowded = b.column % page == 0;
  for (std::int64_t c = first; c < last;) {
    if (is_crowded) {
      sum_columns<rows, 1>(job, b, at, c, last);
      c += Simd::lanes;
    } else {
      sum_columns<rows, 2>(job, b, at, c, last);
      c += 2 * Simd::lanes;
    }
  }
}

/// Whether such rows are multiplied by b where it lies.
bool reads_directly(const StridedColumns& b, const LinearBlock& block) {
  return block.last_row - block.first_row <= most_direct_rows && (b.column == 1 || b.row == 1);
}

void run_directly(const DenseJob& job, const StridedColumns& b, const LinearBlock& block) {
  const std::int64_t first = 16 * block.first_panel;
  const std::int64_t last = smaller(16 * block.last_panel, job.outputs);
  const auto run = [&]<std::size_t rows>() {
    b.column == 1 ? sum_rows<rows>(job, b, block.first_row, first, last)
                  : sum_columns<rows>(job, b, block.first_row, first, last);
  };
  switch (block.last_row - block.first_row) {
    case 1:
      return run.template operator()<1>();
    case 2:
      return run.template operator()<2>();
    case 3:
      return run.template operator()<3>();
    default:
      return run.template operator()<4>();
  }
}

}  // namespace
}  // namespace tenon::cpu
