#pragma once

#include "../cpu_features.hpp"

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

/// What the entry points hand to the files that are compiled for one instruction set.
///
/// Those files may only see plain data: an inline function that one of them emits could be the copy
/// that the linker keeps for everybody, and then a CPU without that instruction set would run it.
namespace tenon::cpu {

/// What the first code of a group's elements leaves over, in codes of its own; see PreparedRows.
struct SecondDigits {
  std::int8_t codes[32];
  std::int32_t group;
  float scale;
  float sum;  ///< as PreparedRows' sums, of these codes
  std::int32_t negative_sum;
  float half_sums[2];
  std::int32_t negative_half_sums[2];
};

/// One call of `linear`, as raw pointers. Fields as in LinearArgs, PackedWeights and PreparedRows.
struct LinearJob {
  DType dtype;
  const std::byte* panels;
  std::size_t panel_bytes;
  std::size_t scale_bytes;
  std::int64_t outputs, inputs;

  const std::int8_t* codes;
  const float* scales;
  const float* sums;
  const std::int32_t* negative_sums;
  const float* half_sums;
  const std::int32_t* negative_half_sums;
  const SecondDigits* second;        ///< [rows][second_capacity], groups ascending
  const std::int32_t* second_count;  ///< by row
  std::int64_t second_capacity;
  const std::uint16_t* tiles;

  const float* x;
  std::int64_t x_stride;

  float* y;
  std::int64_t y_stride;
  const float* bias;
  const float* residual;
  std::int64_t residual_stride;
};

/// Rows [first_row, last_row) of panels [first_panel, last_panel).
struct LinearBlock {
  std::int64_t first_panel, last_panel;
  std::int64_t first_row, last_row;
};

using LinearKernel = void (*)(const LinearJob&, const LinearBlock&) noexcept;

/// One batch entry's columns [first, last) of a matrix product with strided operands.
struct MatmulJob {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t a_row, a_column;
  const float* b;
  std::int64_t b_row, b_column;
  float* c;
  std::int64_t c_row;
};

using MatmulKernel = void (*)(const MatmulJob&, std::int64_t first_column, std::int64_t last_column,
                              std::int64_t first_row, std::int64_t last_row) noexcept;

/// Quantises `count` rows of `inputs` elements; destinations are those of the first row.
struct QuantizeJob {
  const float* x;
  std::int64_t stride, count, inputs;
  std::int8_t* codes;
  float* scales;
  float* sums;
  std::int32_t* negative_sums;
  float* half_sums;
  std::int32_t* negative_half_sums;
};

using QuantizeKernel = void (*)(const QuantizeJob&) noexcept;

struct MatmulKernels {
  LinearKernel blocks;  ///< int8 rows, block types
  LinearKernel dense;   ///< f32 rows, any type
  LinearKernel tiles;   ///< bf16 tiles, block types; null if the level has none
  MatmulKernel matmul;
  QuantizeKernel quantize;
};

const MatmulKernels& matmul_kernels(Isa isa) noexcept;

/// Rows that one LinearBlock may have at most: what the kernels' scratch memory is made for.
inline constexpr std::int64_t max_block_rows = 256;
inline constexpr std::int64_t max_tile_rows = 512;

#define TENON_CPU_ISA_KERNELS(isa)                                                                \
  namespace isa {                                                                                 \
  void linear_blocks(const LinearJob&, const LinearBlock&) noexcept;                              \
  void linear_dense(const LinearJob&, const LinearBlock&) noexcept;                               \
  void matmul(const MatmulJob&, std::int64_t, std::int64_t, std::int64_t, std::int64_t) noexcept; \
  void quantize(const QuantizeJob&) noexcept;                                                     \
  }
TENON_CPU_ISA_KERNELS(portable)
TENON_CPU_ISA_KERNELS(avx2)
TENON_CPU_ISA_KERNELS(avx_vnni)
TENON_CPU_ISA_KERNELS(avx512)
TENON_CPU_ISA_KERNELS(avx512_vnni)
#undef TENON_CPU_ISA_KERNELS

namespace amx {
void linear_tiles(const LinearJob&, const LinearBlock&) noexcept;
/// Rows as bf16 tiles; the rows of `count` start a row block, missing rows of the last become 0.
void round_rows(const float* x, std::int64_t stride, std::int64_t count, std::int64_t inputs,
                std::uint16_t* tiles) noexcept;
}  // namespace amx

}  // namespace tenon::cpu
