#pragma once

#include <tenon/npu/isa/instruction.hpp>

#include <type_traits>

namespace tenon::npu::isa {

// Where the parts that all instructions share lie in the first 64 bits.
inline constexpr unsigned deps_lsb = 8;
inline constexpr unsigned flags_lsb = 12;
inline constexpr unsigned layer_lsb = 16;
inline constexpr unsigned fields_lsb = 32;
inline constexpr unsigned word_bits = 256;

/// Calls visit(field, lsb) for every field of the instruction, lowest bits first; returns the first
/// bit that no field covers.
template <class Type, class Visit>
constexpr unsigned for_each_field(Visit&& visit) {
  unsigned lsb = fields_lsb;
  const auto step = [&](const auto& field) {
    if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(field)>, Nothing>) {
      visit(field, lsb);
      lsb += field.width;
    }
  };
  std::apply([&](const auto&... field) { (step(field), ...); }, Fields<Type>::list);
  return lsb;
}

template <class Type>
constexpr unsigned used_bits() {
  return for_each_field<Type>([](const auto&, unsigned) {});
}
#define TENON_NPU_OP(Type, id, code, engine, flags) \
  static_assert(used_bits<Type>() <= word_bits, #id " has more fields than bits");
#include <tenon/npu/isa/isa.def>

}  // namespace tenon::npu::isa
