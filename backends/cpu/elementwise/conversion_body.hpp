#pragma once

// Conversions between plain types, in loops that compilers turn into the vectors of the instruction set whose source includes
// this.
#include "conversion_kernels.hpp"
#include "independent.hpp"

#include <cstdint>
#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

template <class From, class To, class F>
[[gnu::always_inline]] inline void convert_each(const void* x, void* y, std::int64_t count, F f) {
  const auto* from = static_cast<const From*>(x);
  auto* to = static_cast<To*>(y);
  TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) to[i] = f(from[i]);
}

/// Modulo 2^bits.
template <class From, class To>
void run_wrap(const void* x, void* y, std::int64_t count) noexcept {
  convert_each<From, To>(x, y, count, [](From v) { return static_cast<To>(v); });
}

template <class From, class To>
void run_truth(const void* x, void* y, std::int64_t count) noexcept {
  convert_each<From, To>(x, y, count, [](From v) { return static_cast<To>(v != 0); });
}

/// What whole numbers of type To go through on their way from floating ones: compilers have vector instructions for it.
template <class From, class To>
using Between = std::conditional_t<
    (sizeof(To) < 4), std::int32_t,
    std::conditional_t<sizeof(To) == 4 && sizeof(From) == 8 && std::is_unsigned_v<To>, std::int64_t,
                       To>>;

/// As cast's contract has it: truncated and saturated, a NaN gives 0. Every step is done to every number, and none of them
/// is beyond its type.
template <class From, class To>
[[gnu::always_inline]] inline To saturated(From x) {
  constexpr To least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
  if constexpr (std::is_floating_point_v<To> || std::is_same_v<From, To>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_floating_point_v<From>) {
    // 2^bits of the type, which is a number of From, unlike `most` where From has fewer bits.
    constexpr From end = static_cast<From>(static_cast<double>(most / 2 + 1) * 2.0);
    constexpr From begin = static_cast<From>(least);
    constexpr bool holds_most =
        std::numeric_limits<From>::digits >= std::numeric_limits<To>::digits;
    constexpr From last =
        holds_most ? static_cast<From>(most)
                   : end - static_cast<From>(end / 2) * std::numeric_limits<From>::epsilon();
    From v = x < begin ? begin : x;
    v = v > last ? last : v;
    v = v == v ? v : From{0};
    const auto whole = static_cast<To>(static_cast<Between<From, To>>(v));
    if constexpr (holds_most) return whole;
    return x >= end ? most : whole;
  } else {
    From v = x;
    if constexpr (std::is_signed_v<From> && (std::is_unsigned_v<To> || sizeof(To) < sizeof(From))) {
      constexpr From begin = static_cast<From>(least);
      v = v < begin ? begin : v;
    }
    if constexpr (std::numeric_limits<To>::digits < std::numeric_limits<From>::digits) {
      constexpr From last = static_cast<From>(most);
      v = v > last ? last : v;
    }
    return static_cast<To>(v);
  }
}
template <class From, class To>
void run_saturate(const void* x, void* y, std::int64_t count) noexcept {
  convert_each<From, To>(x, y, count, [](From v) { return saturated<From, To>(v); });
}

Conversion widening(DType from) noexcept {
  switch (from) {
    case DType::boolean:
      return run_truth<std::uint8_t, std::int32_t>;
    case DType::i8:
      return run_wrap<std::int8_t, std::int32_t>;
    case DType::i16:
      return run_wrap<std::int16_t, std::int32_t>;
    case DType::u8:
      return run_wrap<std::uint8_t, std::int32_t>;
    case DType::u16:
      return run_wrap<std::uint16_t, std::int32_t>;
    case DType::u32:
      return run_wrap<std::uint32_t, std::int64_t>;
    default:
      return nullptr;
  }
}

Conversion narrowing(DType to) noexcept {
  switch (to) {
    case DType::boolean:
      return run_truth<std::int32_t, std::uint8_t>;
    case DType::i8:
    case DType::u8:
      return run_wrap<std::int32_t, std::uint8_t>;
    case DType::i16:
    case DType::u16:
      return run_wrap<std::int32_t, std::uint16_t>;
    case DType::u32:
      return run_wrap<std::int64_t, std::uint32_t>;
    default:
      return nullptr;
  }
}

template <class From>
Conversion saturation_from(DType to) noexcept {
  switch (to) {
    case DType::boolean:
      return run_truth<From, std::uint8_t>;
    case DType::i8:
      return run_saturate<From, std::int8_t>;
    case DType::i16:
      return run_saturate<From, std::int16_t>;
    case DType::i32:
      return run_saturate<From, std::int32_t>;
    case DType::i64:
      return run_saturate<From, std::int64_t>;
    case DType::u8:
      return run_saturate<From, std::uint8_t>;
    case DType::u16:
      return run_saturate<From, std::uint16_t>;
    case DType::u32:
      return run_saturate<From, std::uint32_t>;
    case DType::u64:
      return run_saturate<From, std::uint64_t>;
    case DType::f32:
      return run_saturate<From, float>;
    case DType::f64:
      return run_saturate<From, double>;
    default:
      return nullptr;
  }
}

Conversion saturation(Compute from, DType to) noexcept {
  switch (from) {
    case Compute::i32:
      return saturation_from<std::int32_t>(to);
    case Compute::i64:
      return saturation_from<std::int64_t>(to);
    case Compute::f32:
      return saturation_from<float>(to);
    case Compute::f64:
      return saturation_from<double>(to);
  }
  return nullptr;
}

constexpr ConversionKernels all_conversion_kernels{widening, narrowing, saturation};

}  // namespace
}  // namespace tenon::cpu
