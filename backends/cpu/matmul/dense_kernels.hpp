#pragma once

#include "../stop_sign.hpp"
#include "matmul_kernels.hpp"

#include <cstddef>
#include <cstdint>

/// What the entry points of the f32 GEMM hand to the files that are compiled for one instruction
/// set: plain data only, for the reason that matmul_kernels.hpp gives.
namespace tenon::cpu {

/// The most elements of k in a block of the f32 GEMM.
inline constexpr std::int64_t max_depth = 384;

/// Floats from row to row of a block's copy: an odd number of cache lines, so that the rows of a
/// tile share no cache set.
inline constexpr std::int64_t copy_step = max_depth + 16;

/// Columns of W^T that a panel holds.
inline constexpr std::int64_t panel_columns = 16;

/// Up to so many rows are multiplied by a strided right operand where it lies, if its rows or columns are contiguous.
inline constexpr std::int64_t most_direct_rows = 4;

/// The block sizes of the f32 GEMM. Depths are multiples of 256 for block types.
struct DenseBlocking {
  std::int64_t depth;     ///< elements of k that tiles keep their sums in registers for
  std::int64_t copied;    ///< elements of k that rows are copied for, a multiple of `depth`
  std::int64_t rows;      ///< of x
  std::int64_t panels;    ///< of W whose sums wait for the next `copied` elements
  std::int64_t gathered;  ///< panels that a strided right operand is gathered into at once
};

/// A thread's memory for the f32 GEMM, in floats; see dense_blocking.hpp.
struct DenseScratch {
  float* rows;     ///< [copied / depth][blocking.rows][copy_step]: rows of x
  float* sums;     ///< [blocking.panels][blocking.rows][16]
  float* weights;  ///< [2][max_depth][16]: widened panels
  float* columns;  ///< of a strided right operand: [blocking.gathered][inputs + 1][16]
};

/// Which rows a thread's copy holds: calls with the same x reuse it.
struct RowCopy {
  std::int64_t first_row = -1, last_row = -1;
  std::int64_t first = -1;  ///< element of k
};

/// y = x W^T + bias + residual on f32 rows.
struct DenseJob : LinearOperands {
  const float* x;
  std::int64_t x_stride, x_column;

  DenseBlocking blocking;
  DenseScratch scratch;
  RowCopy* copy;  ///< of scratch.rows; null if calls have nothing in common
  StopSign stop;  ///< of products with a strided right operand, asked once for each block of rows
};

/// W^T of a DenseJob as an array b[inputs][outputs] with any strides.
struct StridedColumns {
  const float* at;
  std::int64_t row, column;
};

/// With packed weights a block has at most blocking.rows rows.
using DenseKernel = void (*)(const DenseJob&, const LinearBlock&) noexcept;
using StridedKernel = void (*)(const DenseJob&, const StridedColumns&, const LinearBlock&) noexcept;

struct DenseKernels {
  DenseKernel packed;
  StridedKernel strided;
};

const DenseKernels& dense_kernels(Isa isa) noexcept;

#define TENON_CPU_ISA_KERNELS(isa)                                                         \
  namespace isa {                                                                          \
  void dense_packed(const DenseJob&, const LinearBlock&) noexcept;                         \
  void dense_strided(const DenseJob&, const StridedColumns&, const LinearBlock&) noexcept; \
  }
TENON_CPU_ISA_KERNELS(portable)
TENON_CPU_ISA_KERNELS(avx2)
TENON_CPU_ISA_KERNELS(avx512)
#undef TENON_CPU_ISA_KERNELS

}  // namespace tenon::cpu
