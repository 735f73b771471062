#pragma once

#include <cstdint>

namespace tenon::npu::isa {

// Where every device has its memories and register banks; their sizes differ (caps.hpp, and
// MemRegion::usage().capacity_bytes).
inline constexpr std::uint64_t xchg_base = 0x8000'0000;
inline constexpr std::uint64_t etm_base = 0x1'0000'0000;
inline constexpr std::uint64_t ocm_base = 0x10'0000'0000;
inline constexpr std::uint64_t npu_registers_base = 0x4000'0000;
inline constexpr std::uint64_t simctl_registers_base = 0x5000'0000;
inline constexpr std::uint64_t register_bank_bytes = 0x1000;

}  // namespace tenon::npu::isa
