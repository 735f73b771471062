#pragma once

#include "base/half_bits.hpp"

#include <tenon/dtype.hpp>

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

/// Conversion of elements between plain types, by the rules of HostBuffer::to.
namespace tenon::element {

template <class T>
inline constexpr bool is_float8 = std::same_as<T, float8_e4m3> || std::same_as<T, float8_e5m2>;
template <class T>
inline constexpr bool is_small_float =
    std::same_as<T, half> || std::same_as<T, bfloat16> || is_float8<T>;

/// `value` rounded to odd: truncated to float, with the last bit set if that was inexact. Rounding
/// the result to fewer than 23 bits equals rounding `value` directly (Boldo and Melquiond, "When
/// double rounding is odd", 2005).
inline float round_to_odd(double value) noexcept {
  float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

/// The same for integers that a double may not represent.
inline float round_to_odd(std::uint64_t magnitude) noexcept {
  const int shift = static_cast<int>(std::bit_width(magnitude)) - 24;
  if (shift <= 0) return static_cast<float>(magnitude);
  const std::uint64_t kept = magnitude >> shift;
  const bool lost = (kept << shift) != magnitude;
  return std::ldexp(static_cast<float>(kept | (lost ? 1u : 0u)), shift);
}
inline float round_to_odd(std::int64_t value) noexcept {
  const auto bits = static_cast<std::uint64_t>(value);
  return value < 0 ? -round_to_odd(0 - bits) : round_to_odd(bits);
}

/// Truncates; NaN becomes 0 and values beyond the range saturate.
template <std::integral To, std::floating_point From>
To truncate(From value) noexcept {
  // Both bounds are exact: a power of two, and one that is at most the true minimum.
  constexpr From above =
      static_cast<From>(std::uint64_t{1} << (std::numeric_limits<To>::digits - 1)) * 2;
  constexpr From lowest = std::is_signed_v<To> ? -above : From{0};
  if (std::isnan(value)) return 0;
  if (value >= above) return std::numeric_limits<To>::max();
  if (value <= lowest) return std::numeric_limits<To>::min();
  return static_cast<To>(value);
}

template <std::integral To, std::integral From>
To saturate(From value) noexcept {
  if (std::cmp_less(value, std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (std::cmp_greater(value, std::numeric_limits<To>::max()))
    return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

// The values of tenon::to_float and to_half, to_bfloat16, NaN payloads included, without branches
// and within sight of the compiler, so that loops over them become vector code.

inline float widen(half value) noexcept { return widen_half(value.bits); }
inline float widen(bfloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

inline float widen(float8_e5m2 value) noexcept {
  return widen_half(static_cast<std::uint16_t>(value.bits << 8));
}
inline float widen(float8_e4m3 value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x80u) << 24;
  const std::uint32_t code = value.bits & 0x7Fu;
  const std::uint32_t normal = (code << 20) + (120u << 23);  // exponent biases 127 - 7
  const auto subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(code) * 0x1p-9f);
  const std::uint32_t finite = code < 8 ? subnormal : normal;
  return std::bit_cast<float>(sign | (code == 0x7Fu ? 0x7FC00000u : finite));
}

/// To 8 bits of which `mantissa` follow the point, with exponents that are biased by `bias`. Codes
/// from `beyond` on are numbers that are too large, or not finite, and become `overflow`.
template <int mantissa, std::uint32_t bias, std::uint32_t beyond, std::uint32_t overflow,
          std::uint32_t nan>
std::uint8_t narrow_to_8(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr int lost = 23 - mantissa;
  constexpr std::uint32_t rebias = (127u - bias) << 23;
  const std::uint32_t normal =
      (magnitude + ((1u << (lost - 1)) - 1u) + ((magnitude >> lost) & 1u) - rebias) >> lost;
  // Adding this number rounds to the multiples of the smallest subnormal.
  constexpr std::uint32_t step = (127u + 24u - bias - mantissa) << 23;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(step)) -
      step;
  const std::uint32_t finite = magnitude < rebias + (1u << 23) ? subnormal : normal;
  const std::uint32_t number = finite >= beyond ? overflow : finite;
  const std::uint32_t code = magnitude > 0x7F800000u ? nan : number;
  return static_cast<std::uint8_t>(((bits >> 24) & 0x80u) | code);
}

template <class To>
To narrow(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr std::uint32_t infinity = 0x7F800000u;
  if constexpr (std::same_as<To, float8_e4m3>) {
    return {narrow_to_8<3, 7, 0x7Fu, 0x7Fu, 0x7Fu>(value)};
  } else if constexpr (std::same_as<To, float8_e5m2>) {
    return {narrow_to_8<2, 15, 0x7Cu, 0x7Cu, 0x7Eu>(value)};
  } else if constexpr (std::same_as<To, bfloat16>) {
    const std::uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
    const std::uint32_t quiet_nan = bits | 0x400000u;
    return {static_cast<std::uint16_t>((magnitude > infinity ? quiet_nan : rounded) >> 16)};
  } else {
    constexpr std::uint32_t rebias = 112u << 23;  // exponent biases 127 - 15
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - rebias) >> 13;
    // Below 2^-14 the float adder rounds to the multiples of 2^-24 that subnormals are.
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
    const std::uint32_t nan = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
    const std::uint32_t special = magnitude > infinity ? nan : 0x7C00u;
    const std::uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    const std::uint32_t result = magnitude >= 0x477FF000u ? special : finite;  // from 65520
    return {static_cast<std::uint16_t>(sign | result)};
  }
}

/// One element as the type `To` has it: of a complex number the real part. Anything but zero is true,
/// NaN included.
template <class To, class From>
To convert(From value) noexcept {
  if constexpr (std::same_as<To, From>) {
    return value;
  } else if constexpr (std::same_as<From, complex64>) {
    return convert<To>(value.real);
  } else if constexpr (std::same_as<To, complex64>) {
    return {convert<float>(value), 0};
  } else if constexpr (is_small_float<From>) {
    return convert<To>(widen(value));
  } else if constexpr (std::same_as<To, bool>) {
    return value != From{0};
  } else if constexpr (std::same_as<From, bool>) {
    return convert<To>(static_cast<std::int32_t>(value));
  } else if constexpr (is_small_float<To>) {
    if constexpr (std::same_as<From, float>) {
      return narrow<To>(value);
    } else if constexpr (std::floating_point<From>) {
      return narrow<To>(round_to_odd(value));
    } else if constexpr (std::same_as<From, std::uint64_t>) {
      return narrow<To>(round_to_odd(value));
    } else {
      return narrow<To>(round_to_odd(static_cast<std::int64_t>(value)));
    }
  } else if constexpr (std::floating_point<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::floating_point<From>) {
    return truncate<To>(value);
  } else {
    return saturate<To>(value);
  }
}

/// Elements need not be aligned. A bool is any byte but 0, as files have it.
template <class T>
T load(const std::byte* from) noexcept {
  if constexpr (std::same_as<T, bool>) {
    return *from != std::byte{0};
  } else {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
}

template <class T>
void store(std::byte* to, T value) noexcept {
  std::memcpy(to, &value, sizeof(T));
}

/// Calls `visit(std::type_identity<T>{})` for the C++ type of a plain dtype; `visit` must return
/// the same type for each.
template <class Visit>
auto visit_plain(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::boolean:
      return visit(std::type_identity<bool>{});
    case DType::i8:
      return visit(std::type_identity<std::int8_t>{});
    case DType::i16:
      return visit(std::type_identity<std::int16_t>{});
    case DType::i32:
      return visit(std::type_identity<std::int32_t>{});
    case DType::i64:
      return visit(std::type_identity<std::int64_t>{});
    case DType::u8:
      return visit(std::type_identity<std::uint8_t>{});
    case DType::u16:
      return visit(std::type_identity<std::uint16_t>{});
    case DType::u32:
      return visit(std::type_identity<std::uint32_t>{});
    case DType::u64:
      return visit(std::type_identity<std::uint64_t>{});
    case DType::f8_e4m3:
      return visit(std::type_identity<float8_e4m3>{});
    case DType::f8_e5m2:
      return visit(std::type_identity<float8_e5m2>{});
    case DType::c64:
      return visit(std::type_identity<complex64>{});
    case DType::f16:
      return visit(std::type_identity<half>{});
    case DType::bf16:
      return visit(std::type_identity<bfloat16>{});
    case DType::f64:
      return visit(std::type_identity<double>{});
    default:
      return visit(std::type_identity<float>{});
  }
}

}  // namespace tenon::element
