// Element-wise work on a tile as instructions: its blocks of channels together where that can be.
#pragma once

#include <tenon/npu/isa/instruction.hpp>

#include <cstdint>
#include <functional>

namespace tenon::npu {

/// A field of an instruction; the rules of the instruction set bound it.
inline std::uint32_t u32(std::int64_t value) { return static_cast<std::uint32_t>(value); }

/// Pixels of a tile in OCM: pixel p of its block b is at line(b * stride + p).
struct TileRef {
  std::int64_t address = 0;  ///< bytes, a multiple of a line
  std::int64_t stride = 0;   ///< pixels from block to block

  std::uint32_t line(std::int64_t pixels = 0) const {
    return static_cast<std::uint32_t>(address / isa::line_bytes + pixels);
  }
};

struct ElementwiseTile {
  isa::Elementwise instruction;  ///< what is done; where is filled in
  TileRef a, b, out;
  std::int64_t b_blocks = 1;  ///< whether the second operand moves with blocks (1 or 0)
  std::int64_t b_pixels = 1;  ///< whether it moves with pixels
  std::int64_t channels = 0;
  std::int64_t first = 0, count = 0;  ///< pixels [first, first + count)
};

/// One instruction for all blocks where strides allow it; the last block, when it is not full, on
/// its own, so that the lanes past the last channel stay zero.
void for_each_blocks(const ElementwiseTile& tile,
                     const std::function<void(const isa::Elementwise&)>& visit);

}  // namespace tenon::npu
