#pragma once

#include "../cpu_features.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

/// What the entry points of f32 products hand to the files that are compiled for one instruction
/// set, under the rule of kernels.hpp: plain data only.
namespace tenon::cpu {

/// Elements of k that a block of a dense product takes at once, at most.
inline constexpr std::int64_t max_depth = 384;

/// Panels that a strided right operand is gathered into at once.
inline constexpr std::int64_t gathered_panels = 32;

/// What a dense product works on at once. Depths are multiples of 256 for block types.
struct DenseBlocking {
  std::int64_t depth;   ///< elements of k that tiles keep their sums in registers for
  std::int64_t copied;  ///< elements of k that rows are copied for, a multiple of `depth`
  std::int64_t rows;    ///< of x
  std::int64_t panels;  ///< of W whose sums wait for the next `copied` elements
};

/// A thread's memory for dense products, in floats; see dense_blocking.hpp.
struct DenseScratch {
  float* rows;     ///< [copied / depth][blocking.rows][max_depth + 16]: rows of x
  float* sums;     ///< [blocking.panels][blocking.rows][16]
  float* weights;  ///< [2][max_depth][16]: widened panels
  float* columns;  ///< of a strided right operand: [gathered_panels][inputs + 1][16]
};

/// y = x W^T + bias + residual on f32 rows; fields as in LinearArgs and PackedWeights.
struct DenseJob {
  DType dtype;
  const std::byte* panels;
  std::size_t panel_bytes;
  std::size_t scale_bytes;
  std::int64_t outputs, inputs;

  const float* x;
  std::int64_t x_stride, x_column;

  float* y;
  std::int64_t y_stride;
  const float* bias;
  const float* residual;
  std::int64_t residual_stride;

  DenseBlocking blocking;
  DenseScratch scratch;
};

/// W^T of a DenseJob as an array b[inputs][outputs] with any strides.
struct StridedColumns {
  const float* at;
  std::int64_t row, column;
};

/// Rows [first_row, last_row) of panels [first_panel, last_panel).
struct DenseBlock {
  std::int64_t first_panel, last_panel;
  std::int64_t first_row, last_row;
};

/// With packed weights a block has at most blocking.rows rows.
using DenseKernel = void (*)(const DenseJob&, const DenseBlock&) noexcept;
using StridedKernel = void (*)(const DenseJob&, const StridedColumns&, const DenseBlock&) noexcept;

struct DenseKernels {
  DenseKernel packed;
  StridedKernel strided;
};

const DenseKernels& dense_kernels(Isa isa) noexcept;

#define TENON_CPU_ISA_KERNELS(isa)                                                        \
  namespace isa {                                                                         \
  void dense_packed(const DenseJob&, const DenseBlock&) noexcept;                         \
  void dense_strided(const DenseJob&, const StridedColumns&, const DenseBlock&) noexcept; \
  }
TENON_CPU_ISA_KERNELS(portable)
TENON_CPU_ISA_KERNELS(avx2)
TENON_CPU_ISA_KERNELS(avx512)
#undef TENON_CPU_ISA_KERNELS

}  // namespace tenon::cpu
