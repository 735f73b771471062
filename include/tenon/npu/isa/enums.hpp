#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tenon::npu::isa {

/// An enumerator as the documentation and messages show it.
struct EnumValue {
  std::string_view name;
  std::uint32_t value;
  std::string_view meaning;
};

#define TENON_NPU_ENUM(Type, meaning) enum class Type : std::uint8_t {
#define TENON_NPU_VALUE(id, value, meaning) id = value,
#define TENON_NPU_ENUM_END(Type) \
  }                              \
  ;                              \
  std::span<const EnumValue> values(Type) noexcept;
#include <tenon/npu/isa/isa.def>

/// The enumerator's name, or "?" where `value` is none.
template <class Enum>
std::string_view name(Enum value) noexcept {
  for (const EnumValue& known : values(Enum{})) {
    if (known.value == static_cast<std::uint32_t>(value)) return known.name;
  }
  return "?";
}

/// Whether `value` is one of the enumeration.
template <class Enum>
bool is_value(std::uint32_t value) noexcept {
  for (const EnumValue& known : values(Enum{})) {
    if (known.value == value) return true;
  }
  return false;
}

}  // namespace tenon::npu::isa
