// Conversions between all plain types.
#include "../elementwise/conversion_kernels.hpp"
#include "point_task.hpp"

#include <tenon/ops/cast.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

/// run(x, y, n) once for all elements, or for the one that repeats, whose result of `unit` bytes is then copied.
template <class Run>
void convert_block(const PointCall& call, std::int64_t unit, Run run) {
  auto* const y = static_cast<std::byte*>(call.y);
  if (call.step[0] != 0) return run(call.x[0], y, call.count);
  run(call.x[0], y, 1);
  for (std::int64_t i = 1; i < call.count; ++i) {
    std::memcpy(y + i * unit, y, static_cast<std::size_t>(unit));
  }
}

template <Compute from>
void saturated(const PointCall& call, const OpInstance& op) noexcept {
  const DType to = op.as<Cast>()->dtype;
  convert_block(call, block_bytes(to), conversion_kernels().saturation(from, to));
}

/// To the type that `from` is computed in.
template <DType from>
void widened(const PointCall& call, const OpInstance&) noexcept {
  convert_block(call, compute_bytes(compute_type(from)),
                [](const void* x, void* y, std::int64_t count) { widen(from, x, y, count); });
}

/// run(first, n) for parts that a buffer holds.
template <class Run>
void for_each_block(std::int64_t count, Run run) {
  for (std::int64_t i = 0; i < count; i += block_elements) {
    run(i, std::min(block_elements, count - i));
  }
}

/// From the type that the result is computed in.
void narrowed(const PointCall& call, const OpInstance& op) noexcept {
  const DType to = op.as<Cast>()->dtype;
  convert_block(call, block_bytes(to),
                [to](const void* x, void* y, std::int64_t count) { narrow(to, x, y, count); });
}

/// x with the last bits gathered in one, where it has more than a double holds: rounding the result to a narrow type is
/// rounding x.
template <class T>
double sticky(T x) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    const bool is_exact = x >= -(std::int64_t{1} << 53) && x <= std::int64_t{1} << 53;
    const std::int64_t odd = (x & 0x7FF) != 0 ? 0x800 : 0;
    return static_cast<double>(is_exact ? x : (x & ~std::int64_t{0x7FF}) | odd);
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    const std::uint64_t odd = (x & 0x7FF) != 0 ? 0x800 : 0;
    return static_cast<double>(x >> 53 == 0 ? x : (x & ~std::uint64_t{0x7FF}) | odd);
  } else {
    return static_cast<double>(x);
  }
}

/// To a narrow floating type from one that f32 does not hold: two roundings would differ from one.
template <class From>
void rounded_once(const PointCall& call, const OpInstance& op) noexcept {
  const DType to = op.as<Cast>()->dtype;
  convert_block(call, block_bytes(to), [to](const void* x, void* y, std::int64_t count) {
    std::array<double, block_elements> wide;
    for_each_block(count, [&](std::int64_t first, std::int64_t some) {
      const auto* const from = static_cast<const From*>(x) + first;
      for (std::int64_t i = 0; i < some; ++i) wide[static_cast<std::size_t>(i)] = sticky(from[i]);
      narrow_sums(to, wide.data(), static_cast<std::byte*>(y) + first * block_bytes(to), some);
    });
  });
}

/// To a narrow floating type from whole numbers that f32 holds, up to 16 bits.
void narrowed_by_f32(const PointCall& call, const OpInstance& op) noexcept {
  const DType to = op.as<Cast>()->dtype;
  convert_block(call, block_bytes(to), [to](const void* x, void* y, std::int64_t count) {
    std::array<float, block_elements> wide;
    for_each_block(count, [&](std::int64_t first, std::int64_t some) {
      const auto* const from = static_cast<const std::int32_t*>(x) + first;
      conversion_kernels().saturation(Compute::i32, DType::f32)(from, wide.data(), some);
      narrow(to, wide.data(), static_cast<std::byte*>(y) + first * block_bytes(to), some);
    });
  });
}

template <class To>
void converted_u64(const PointCall& call, const OpInstance&) noexcept {
  const auto* x = static_cast<const std::uint64_t*>(call.x[0]);
  auto* y = static_cast<To*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) {
    const std::uint64_t value = x[i * call.step[0]];
    if constexpr (std::is_same_v<To, bool>) {
      y[i] = value != 0;
    } else if constexpr (std::is_floating_point_v<To>) {
      y[i] = static_cast<To>(value);
    } else {
      constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<To>::max());
      y[i] = static_cast<To>(std::min(value, most));
    }
  }
}

PointFunction conversion_of_u64(DType to) {
  switch (to) {
    case DType::boolean:
      return converted_u64<bool>;
    case DType::i8:
      return converted_u64<std::int8_t>;
    case DType::i16:
      return converted_u64<std::int16_t>;
    case DType::i32:
      return converted_u64<std::int32_t>;
    case DType::i64:
      return converted_u64<std::int64_t>;
    case DType::u8:
      return converted_u64<std::uint8_t>;
    case DType::u16:
      return converted_u64<std::uint16_t>;
    case DType::u32:
      return converted_u64<std::uint32_t>;
    case DType::u64:
      return converted_u64<std::uint64_t>;
    case DType::f32:
      return converted_u64<float>;
    case DType::f64:
      return converted_u64<double>;
    default:
      return rounded_once<std::uint64_t>;
  }
}

/// Null where `from` is not narrow.
PointFunction widening(DType from) {
  switch (from) {
    case DType::boolean:
      return widened<DType::boolean>;
    case DType::i8:
      return widened<DType::i8>;
    case DType::i16:
      return widened<DType::i16>;
    case DType::u8:
      return widened<DType::u8>;
    case DType::u16:
      return widened<DType::u16>;
    case DType::u32:
      return widened<DType::u32>;
    case DType::f16:
      return widened<DType::f16>;
    case DType::bf16:
      return widened<DType::bf16>;
    case DType::f8_e4m3:
      return widened<DType::f8_e4m3>;
    case DType::f8_e5m2:
      return widened<DType::f8_e5m2>;
    default:
      return nullptr;
  }
}

PointFunction conversion(DType from, DType to) {
  if (from == DType::u64) return conversion_of_u64(to);
  const bool is_narrow = compute_type(to) == Compute::f32 && to != DType::f32;
  switch (compute_type(from)) {
    case Compute::i32:
      if (is_narrow && from != DType::i32) return narrowed_by_f32;
      return is_narrow ? rounded_once<std::int32_t> : saturated<Compute::i32>;
    case Compute::i64:
      return is_narrow ? rounded_once<std::int64_t> : saturated<Compute::i64>;
    case Compute::f32:
      return is_narrow ? narrowed : saturated<Compute::f32>;
    case Compute::f64:
      return is_narrow ? rounded_once<double> : saturated<Compute::f64>;
  }
  return nullptr;
}

PointStep cast_point(const Step& step) {
  const DType from = step.inputs[0].shape.dtype(), to = step.output.shape.dtype();
  const bool is_computed = is_computed_as_stored(to) && to != DType::u64;
  if (is_computed && compute_type(from) == compute_type(to)) {
    if (const auto function = widening(from)) {
      return {step, function, Reader::As::raw, Reader::As::raw};
    }
  }
  return {step, conversion(from, to), Reader::As::computed, Reader::As::raw};
}

}  // namespace

extern const Kernel cast_kernel;
constinit const Kernel cast_kernel = point_kernel<Cast, cast_point>();

}  // namespace tenon::cpu
