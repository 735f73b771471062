#pragma once

#include "../cpu_features.hpp"
#include "../elementwise/elementwise.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

/// What the entry points hand to the files that are compiled for one instruction set.
///
/// Those files may only see plain data: an inline function that one of them emits could be the copy
/// that the linker keeps for everybody, and then a CPU without that instruction set would run it.
namespace tenon::cpu {

/// The numbers of int8 rows, interleaved by blocks of rows: of 32 elements g of row r of a block of
/// `count` rows that starts at row `first`, codes at [first * K + (32 g) * count + 4 r] in quads
/// that lie 4 count bytes apart, the others at [(first * K / 32) + g * count + r].
struct RowNumbers {
  std::int8_t* codes;
  float* scales;
  float* sums;                  ///< scale * (sum of 32 codes)
  std::int32_t* negative_sums;  ///< minus the sum of 32 codes
  float* half_sums;             ///< these two per 16 elements
  std::int32_t* negative_half_sums;
};

/// A function of each output.
struct Activation {
  UnaryRowsKernel run = nullptr;  ///< null: none
  Unary function = Unary::relu;
  UnaryParameters parameters;
};

/// The operands of `linear` that do not depend on the form of x: fields as in PackedWeights and
/// LinearArgs.
struct LinearOperands {
  DType dtype;
  const std::byte* panels;
  std::size_t panel_bytes;
  std::int64_t outputs, inputs;
  bool prefetches;  ///< software prefetches weights to L2, however few the rows (block_tile.hpp)

  float* y;
  std::int64_t y_stride;
  const float* bias;
  const float* residual;
  std::int64_t residual_stride;
  Activation activation;
};

/// One call of `linear` on int8 rows, as raw pointers. Fields as in PreparedRows.
struct LinearJob : LinearOperands {
  std::int64_t rows;  ///< of x, also those of other blocks
  RowNumbers numbers;
  RowNumbers
      outliers;  ///< outlier residuals: entry e of a block is for its group outlier_groups[e]
  const std::int32_t*
      outlier_groups;  ///< of the block that starts at row r at [r * K / 32], ascending
  const std::int32_t* outlier_count;  ///< of the block that starts at row r at [r]
};

/// The most rows that any instruction set interleaves.
inline constexpr int max_interleaved_rows = 6;

/// Of `left` int8 rows the number that the next block interleaves, `most` of them where so many are
/// left.
[[gnu::always_inline]] constexpr std::int64_t rows_of_block(std::int64_t left, std::int64_t most) {
  return left >= most ? most : left > 4 ? 4 : left;
}

/// Up to so many int8 rows read packed weights, several times where the rows are more than one block of
/// `direct_block_rows`: the panel is in L1 or L2 after the first time, and unpacking it into memory costs more.
inline constexpr std::int64_t direct_rows = 32, direct_block_rows = 4;

/// Rows [first_row, last_row) of panels [first_panel, last_panel). Int8 rows: whole blocks.
struct LinearBlock {
  std::int64_t first_panel, last_panel;
  std::int64_t first_row, last_row;
};

using LinearKernel = void (*)(const LinearJob&, const LinearBlock&) noexcept;
struct TileJob;  // tile_kernels.hpp
using TileKernel = void (*)(const TileJob&, const LinearBlock&) noexcept;

/// Quantises a row of `inputs` elements. Its quads of codes lie 4 * step bytes apart, its other
/// numbers `step` elements.
struct QuantizeJob {
  const float* x;
  std::int64_t inputs, step;
  RowNumbers to;
};

using QuantizeKernel = void (*)(const QuantizeJob&) noexcept;

struct MatmulKernels {
  LinearKernel blocks;  ///< int8 rows, block types
  TileKernel tiles;     ///< bf16 tiles; null if the level has none
  QuantizeKernel quantize;
  int block_rows;  ///< int8 rows that lie interleaved, as many as a tile takes
};

const MatmulKernels& matmul_kernels(Isa isa) noexcept;

/// Int8 rows that one LinearBlock may have at most: what the kernels' scratch memory is made for. A
/// multiple of every level's block_rows.
inline constexpr std::int64_t max_block_rows = 264;

#define TENON_CPU_ISA_KERNELS(isa)                                   \
  namespace isa {                                                    \
  void linear_blocks(const LinearJob&, const LinearBlock&) noexcept; \
  void quantize(const QuantizeJob&) noexcept;                        \
  }
TENON_CPU_ISA_KERNELS(portable)
TENON_CPU_ISA_KERNELS(avx2)
TENON_CPU_ISA_KERNELS(avx_vnni)
TENON_CPU_ISA_KERNELS(avx512)
TENON_CPU_ISA_KERNELS(avx512_vnni)
#undef TENON_CPU_ISA_KERNELS

}  // namespace tenon::cpu
