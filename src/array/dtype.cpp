#include "array/element.hpp"
#include "array/object_slot.hpp"

#include <tenon/dtype.hpp>

#include <bit>

namespace tenon {
namespace {

// Block layouts: the GGUF specification; a superblock of the k-quants holds 256 elements.
constexpr DTypeFacts dtype_facts[dtype_count] = {
    {"bool", DTypeKind::boolean, 1, 1},         {"i8", DTypeKind::signed_integer, 1, 1},
    {"i16", DTypeKind::signed_integer, 1, 2},   {"i32", DTypeKind::signed_integer, 1, 4},
    {"i64", DTypeKind::signed_integer, 1, 8},   {"u8", DTypeKind::unsigned_integer, 1, 1},
    {"u16", DTypeKind::unsigned_integer, 1, 2}, {"u32", DTypeKind::unsigned_integer, 1, 4},
    {"f16", DTypeKind::floating, 1, 2},         {"bf16", DTypeKind::floating, 1, 2},
    {"f32", DTypeKind::floating, 1, 4},         {"f64", DTypeKind::floating, 1, 8},
    {"q4_0", DTypeKind::block, 32, 18},         {"q4_1", DTypeKind::block, 32, 20},
    {"q5_0", DTypeKind::block, 32, 22},         {"q5_1", DTypeKind::block, 32, 24},
    {"q8_0", DTypeKind::block, 32, 34},         {"q2_k", DTypeKind::block, 256, 84},
    {"q3_k", DTypeKind::block, 256, 110},       {"q4_k", DTypeKind::block, 256, 144},
    {"q5_k", DTypeKind::block, 256, 176},       {"q6_k", DTypeKind::block, 256, 210},
    {"q8_k", DTypeKind::block, 256, 292},       {"iq4_nl", DTypeKind::block, 32, 18},
    {"iq4_xs", DTypeKind::block, 256, 136},     {"iq1_s", DTypeKind::block, 256, 50},
    {"iq1_m", DTypeKind::block, 256, 56},       {"iq2_xxs", DTypeKind::block, 256, 66},
    {"iq2_xs", DTypeKind::block, 256, 74},      {"iq2_s", DTypeKind::block, 256, 82},
    {"iq3_xxs", DTypeKind::block, 256, 98},     {"iq3_s", DTypeKind::block, 256, 110},
    {"tq1_0", DTypeKind::block, 256, 54},       {"tq2_0", DTypeKind::block, 256, 66},
    {"mxfp4", DTypeKind::block, 32, 17},        {"u64", DTypeKind::stored, 1, 8},
    {"f8_e4m3", DTypeKind::stored, 1, 1},       {"f8_e5m2", DTypeKind::stored, 1, 1},
    {"c64", DTypeKind::stored, 1, 8},           {"nvfp4", DTypeKind::block, 64, 36},
    {"q1_0", DTypeKind::block, 128, 18},        {"q2_0", DTypeKind::block, 64, 18},
};

}  // namespace

const DTypeFacts& facts(DType dtype) noexcept {
  if (is_object(dtype)) [[unlikely]]
    return objects::facts_of(dtype);
  return dtype_facts[static_cast<int>(dtype)];
}

std::optional<DType> find_dtype(std::string_view name) noexcept {
  for (int i = 0; i < dtype_count; ++i) {
    if (dtype_facts[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

float to_float(half value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1Fu;
  const std::uint32_t mantissa = value.bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal, exact
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

float to_float(bfloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

float to_float(float8_e4m3 value) noexcept { return element::widen(value); }
float to_float(float8_e5m2 value) noexcept { return element::widen(value); }
float8_e4m3 to_float8_e4m3(float value) noexcept { return element::narrow<float8_e4m3>(value); }
float8_e5m2 to_float8_e5m2(float value) noexcept { return element::narrow<float8_e5m2>(value); }

half to_half(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN: keep the payload's top bits and stay a NaN
    return {static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu))};
  }
  if (magnitude >= 0x477FF000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};  // >= 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: the float adder rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

bfloat16 to_bfloat16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace tenon
