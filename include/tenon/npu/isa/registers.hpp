#pragma once

#include <tenon/npu/isa/enums.hpp>

#include <cstdint>
#include <string_view>

namespace tenon::npu::isa {

inline constexpr std::uint32_t device_id = 0x55504E54;  ///< what the id register holds: "TNPU"
inline constexpr std::uint32_t gone = 0xFFFFFFFF;  ///< what every register of a lost device reads

/// Offsets in the register bank `npu`, for RegRegion::read(offset, true).
namespace reg {
#define TENON_NPU_REG(id, offset, access, meaning) inline constexpr std::uint32_t id = offset;
#include <tenon/npu/isa/isa.def>
/// Registers of a segment, from those of segment 0.
constexpr std::uint32_t segment(std::uint32_t first, Segment index) noexcept {
  return first + 16U * static_cast<std::uint32_t>(index);
}
}  // namespace reg

/// Offsets of the lower halves of the 64-bit counters.
namespace perf {
#define TENON_NPU_PERF(id, offset, meaning) inline constexpr std::uint32_t id = offset;
#include <tenon/npu/isa/isa.def>
}  // namespace perf

/// A few bits of a register.
struct Bits {
  unsigned lsb;
  unsigned width;
  constexpr std::uint32_t mask() const noexcept {
    return static_cast<std::uint32_t>(((std::uint64_t{1} << width) - 1) << lsb);
  }
  constexpr std::uint32_t get(std::uint64_t value) const noexcept {
    return (static_cast<std::uint32_t>(value) & mask()) >> lsb;
  }
  constexpr std::uint32_t put(std::uint32_t value) const noexcept { return value << lsb & mask(); }
};

namespace bits {
#define TENON_NPU_BITS(reg, id, lsb, width, meaning) inline constexpr Bits id{lsb, width};
#include <tenon/npu/isa/isa.def>
}  // namespace bits

enum class Access : std::uint8_t { ro, rw, wo, w1c };

/// A line of the register map, as documentation and register dumps show it. Counters are two
/// registers of 32 bits each, both read-only.
struct RegisterInfo {
  std::string_view name;
  std::uint32_t offset;
  Access access;
  std::string_view meaning;
};
std::span<const RegisterInfo> registers() noexcept;
std::span<const RegisterInfo> counters() noexcept;
/// The register at `offset`, or null where the map has none; counters are not among them.
const RegisterInfo* find_register(std::uint32_t offset) noexcept;

}  // namespace tenon::npu::isa
