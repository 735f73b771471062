#pragma once

#include <tenon/npu/isa/caps.hpp>
#include <tenon/npu/isa/instruction.hpp>

#include <cstdint>
#include <vector>

namespace tenon::npu {

/// The predicted time of a program, by the documented formulas: engines run in order and wait for
/// tokens, and transfers use the DDR port one after the other. The device interleaves chunks of
/// transfers, so its own count differs slightly.
struct Prediction {
  std::uint64_t cycles = 0;
  std::uint64_t ddr_read = 0;
  std::uint64_t ddr_write = 0;
  std::uint64_t macs = 0;
  struct LayerShare {
    std::uint64_t begin = 0, end = 0, ddr_read = 0, ddr_write = 0, macs = 0;
  };
  std::vector<LayerShare> layers;  ///< by layer number
};

/// `instructions` have their tokens. Adds to `total`; cycles of several programs follow one
/// another.
void predict(const isa::Caps& caps, const std::vector<isa::Instruction>& instructions,
             Prediction& total);

}  // namespace tenon::npu
