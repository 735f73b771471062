#pragma once

#include <tenon/npu/isa/instruction.hpp>

#include <cstdint>
#include <functional>

namespace tenon::npu::sim {

enum class Space : std::uint8_t { ddr, ocm, acc };

/// A run of bytes that an instruction accesses. In DDR `begin` counts from the segment.
struct Range {
  Space space = Space::ocm;
  std::uint8_t segment = 0;
  bool write = false;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};
using RangeSink = std::function<void(const Range&)>;

/// Calls `sink` for every run of bytes that a legal instruction reads or writes. Runs may repeat or
/// be adjacent; together they are exactly the bytes that docs/npu-isa.md names. The side that
/// cannot overlap itself comes first, so that a sink that stops at the first run out of bounds does
/// so before strides of zero could repeat the other side billions of times.
void footprint(const isa::Instruction& instruction, const RangeSink& sink);

}  // namespace tenon::npu::sim
