#pragma once

#include <bit>
#include <cstdint>

/// Half-precision conversion without branches, so that loops over it are vectorised; the same
/// values as `tenon::to_float(half)`.
namespace tenon {

inline float widen_half(std::uint16_t half_bits) noexcept {
  constexpr std::uint32_t bias_gap = 112u << 23;  // exponent biases 127 - 15
  const std::uint32_t sign = static_cast<std::uint32_t>(half_bits & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half_bits & 0x7FFFu) << 13;
  const std::uint32_t normal = magnitude + bias_gap;
  const std::uint32_t special = normal + bias_gap;  // infinity and NaN
  // A subnormal's bits below the leading one of 2^-14: taking that one off again normalises them.
  const float lifted = std::bit_cast<float>(magnitude + (113u << 23)) - 0x1p-14f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(lifted);
  const std::uint32_t finite = magnitude < (1u << 23) ? subnormal : normal;
  return std::bit_cast<float>(sign | (magnitude >= (31u << 23) ? special : finite));
}

}  // namespace tenon
