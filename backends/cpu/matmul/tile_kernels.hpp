#pragma once

#include "matmul_kernels.hpp"

#include <cstdint>

/// What the entry points hand to the AMX sources: plain data only, for the reason that matmul_kernels.hpp
/// gives.
namespace tenon::cpu {

/// One call of `linear` on rows in bf16 tiles; layout as in PreparedRows.
struct TileJob : LinearOperands {
  const std::uint16_t* x;
  /// In place of y, rounded and as tiles: whole panels by two, and no residual.
  std::uint16_t* y_tiles;
};

/// The most rows of a LinearBlock: the size of the kernel's scratch memory.
inline constexpr std::int64_t max_tile_rows = 512;

namespace amx {
void linear_tiles(const TileJob&, const LinearBlock&) noexcept;

/// Up to 16 rows of x, `stride` elements from row to row, as bf16 tiles; missing rows become 0.
struct RoundingJob {
  const float* x;
  std::int64_t stride, rows;
  std::uint16_t* tiles;
};
/// Of them elements [first, last), multiples of 32.
void round_rows(const RoundingJob& job, std::int64_t first, std::int64_t last) noexcept;
/// One row of `count` elements, whose first line is at `line`.
void round_row(const float* x, std::int64_t count, std::uint16_t* line) noexcept;
}  // namespace amx

}  // namespace tenon::cpu
