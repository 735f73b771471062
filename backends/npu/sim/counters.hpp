#pragma once

#include <tenon/npu/isa/registers.hpp>

#include <array>
#include <cstdint>
#include <vector>

namespace tenon::npu::sim {

/// The 64-bit counters that begin at one offset of the register map, each found by its own offset.
template <std::uint32_t first, std::size_t count>
class CounterBank {
 public:
  static constexpr bool holds(std::uint32_t offset) noexcept {
    return offset >= first && offset < first + 8 * count;
  }
  std::uint64_t& operator[](std::uint32_t offset) noexcept { return values_[(offset - first) / 8]; }
  std::uint64_t operator[](std::uint32_t offset) const noexcept {
    return values_[(offset - first) / 8];
  }

 private:
  std::array<std::uint64_t, count> values_{};
};

using Counters = CounterBank<isa::perf::cycles, 21>;
using LayerCounters = CounterBank<isa::perf::layer_begin, 8>;

}  // namespace tenon::npu::sim
