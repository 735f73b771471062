// Conversions between all plain types.
#include "../elementwise/elementwise.hpp"
#include "point_task.hpp"

#include <tenon/host_view.hpp>
#include <tenon/ops/cast.hpp>

#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

/// As cast's contract has it: truncated and saturated, a NaN gives 0; to bool: not 0.
template <class From, class To>
To converted(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<To> || std::is_same_v<From, To>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_floating_point_v<From>) {
    // 2^bits of the type, which the compared type holds exactly, unlike the largest number.
    constexpr auto end =
        static_cast<From>(static_cast<double>(std::numeric_limits<To>::max() / 2 + 1) * 2.0);
    constexpr auto begin = static_cast<From>(std::numeric_limits<To>::min());
    if (x >= end) return std::numeric_limits<To>::max();
    if (x < begin) return std::numeric_limits<To>::min();
    return x == x ? static_cast<To>(x) : To{0};
  } else {
    if (std::cmp_greater(x, std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    if (std::cmp_less(x, std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(x);
  }
}

template <class From, class To>
void converted_block(const PointCall& call, const OpInstance&) noexcept {
  const auto* x = static_cast<const From*>(call.x[0]);
  auto* y = static_cast<To*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) y[i] = converted<From, To>(x[i * call.step[0]]);
}

/// f32 as a narrow type: the narrowing is PointTask's.
void unchanged(const PointCall& call, const OpInstance&) noexcept {
  const auto* x = static_cast<const float*>(call.x[0]);
  auto* y = static_cast<float*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) y[i] = x[i * call.step[0]];
}

template <class From>
PointFunction conversion(DType to) {
  switch (to) {
    case DType::boolean:
      return converted_block<From, bool>;
    case DType::i8:
      return converted_block<From, std::int8_t>;
    case DType::i16:
      return converted_block<From, std::int16_t>;
    case DType::i32:
      return converted_block<From, std::int32_t>;
    case DType::i64:
      return converted_block<From, std::int64_t>;
    case DType::u8:
      return converted_block<From, std::uint8_t>;
    case DType::u16:
      return converted_block<From, std::uint16_t>;
    case DType::u32:
      return converted_block<From, std::uint32_t>;
    case DType::u64:
      return converted_block<From, std::uint64_t>;
    case DType::f32:
      return converted_block<From, float>;
    default:
      return converted_block<From, double>;
  }
}

PointFunction conversion(Compute from, DType to) {
  switch (from) {
    case Compute::i32:
      return conversion<std::int32_t>(to);
    case Compute::i64:
      return conversion<std::int64_t>(to);
    case Compute::f32:
      return conversion<float>(to);
    case Compute::f64:
      return conversion<double>(to);
  }
  return nullptr;
}

/// With the last bits gathered in one, where the number has more than a double holds: rounding the
/// result to a narrow type is rounding the number.
double sticky(std::uint64_t x) {
  if (x >> 53 == 0) return static_cast<double>(x);
  return static_cast<double>(x >> 11 | ((x & 0x7FF) != 0 ? 1u : 0u)) * 0x1p11;
}

/// To a narrow type from one that f32 does not hold: two roundings would differ from one.
template <class From, DType to>
void rounded_once(const PointCall& call, const OpInstance&) noexcept {
  constexpr std::int64_t unit = to == DType::f16 || to == DType::bf16 ? 2 : 1;
  const auto* x = static_cast<const From*>(call.x[0]);
  auto* y = static_cast<std::byte*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) {
    if constexpr (std::is_same_v<From, std::uint64_t>) {
      store_double(to, y + unit * i, sticky(x[i * call.step[0]]));
    } else if constexpr (std::is_floating_point_v<From>) {
      store_double(to, y + unit * i, x[i * call.step[0]]);
    } else {
      store_int64(to, y + unit * i, x[i * call.step[0]]);
    }
  }
}

template <DType to>
PointFunction conversion_to_narrow(Compute from, bool is_u64) {
  if (is_u64) return rounded_once<std::uint64_t, to>;
  switch (from) {
    case Compute::i32:
      return rounded_once<std::int32_t, to>;
    case Compute::i64:
      return rounded_once<std::int64_t, to>;
    case Compute::f64:
      return rounded_once<double, to>;
    default:
      return nullptr;
  }
}

PointStep cast_point(const Step& step) {
  const Compute from = compute_type(step.inputs[0].shape.dtype());
  const DType to = step.output.shape.dtype();
  const bool is_u64 = step.inputs[0].shape.dtype() == DType::u64;
  const auto function = [&]() -> PointFunction {
    switch (to) {
      case DType::f16:
        return conversion_to_narrow<DType::f16>(from, is_u64);
      case DType::bf16:
        return conversion_to_narrow<DType::bf16>(from, is_u64);
      case DType::f8_e4m3:
        return conversion_to_narrow<DType::f8_e4m3>(from, is_u64);
      case DType::f8_e5m2:
        return conversion_to_narrow<DType::f8_e5m2>(from, is_u64);
      default:
        return is_u64 ? conversion<std::uint64_t>(to) : conversion(from, to);
    }
  }();
  if (function == nullptr) return {step, unchanged};
  return {step, function, Reader::As::computed, Reader::As::raw};
}

}  // namespace

extern const Kernel cast_kernel;
constinit const Kernel cast_kernel = point_kernel<Cast, cast_point>();

}  // namespace tenon::cpu
