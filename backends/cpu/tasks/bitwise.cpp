// Integers bit by bit.
#include "../elementwise/independent.hpp"
#include "point_task.hpp"

#include <tenon/ops/bitwise.hpp>

#include <type_traits>

namespace tenon::cpu {
namespace {

/// On elements as they are stored: bits do not depend on what they mean.
template <class Op, class T>
void bit_pairs(const PointCall& call, const OpInstance&) noexcept {
  const auto* a = static_cast<const T*>(call.x[0]);
  const auto* b = static_cast<const T*>(call.x[1]);
  auto* y = static_cast<T*>(call.y);
  const std::int64_t count = call.count;  // read once: y may be bytes, which alias everything
  const auto of = [](T p, T q) {
    return static_cast<T>(std::is_same_v<Op, BitwiseAnd>  ? p & q
                          : std::is_same_v<Op, BitwiseOr> ? p | q
                                                          : p ^ q);
  };
  if (call.step[0] == 1 && call.step[1] == 1) {
    TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) y[i] = of(a[i], b[i]);
  } else if (call.step[0] == 1) {
    const T value = *b;
    TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) y[i] = of(a[i], value);
  } else {
    const T value = *a;
    TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) {
      y[i] = of(value, b[i * call.step[1]]);
    }
  }
}

template <class Op>
PointStep bit_pair_point(const Step& step) {
  // Of bools, any value but 0 counts as true.
  if (step.output.shape.dtype() == DType::boolean) return {step, bit_pairs<Op, std::uint32_t>};
  const auto function = [&]() -> PointFunction {
    switch (block_bytes(step.output.shape.dtype())) {
      case 1:
        return bit_pairs<Op, std::uint8_t>;
      case 2:
        return bit_pairs<Op, std::uint16_t>;
      case 4:
        return bit_pairs<Op, std::uint32_t>;
      default:
        return bit_pairs<Op, std::uint64_t>;
    }
  }();
  return {step, function, Reader::As::raw, Reader::As::raw};
}

template <Arithmetic op, Compute type>
void shifted(const PointCall& call, const OpInstance&) noexcept {
  arithmetic(type, op, call.x[0], call.step[0], call.x[1], call.step[1], call.y, call.count);
}
template <Arithmetic op>
PointStep shift_point(const Step& step) {
  return point_step(step, {nullptr, nullptr, shifted<op, Compute::i32>, shifted<op, Compute::i64>});
}

/// ~x; 1 - x for a bool.
template <class T, bool is_bool>
void bits_inverted(const PointCall& call, const OpInstance&) noexcept {
  const auto* x = static_cast<const T*>(call.x[0]);
  auto* y = static_cast<T*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) {
    const T value = x[i * call.step[0]];
    y[i] = is_bool ? 1 - value : ~value;
  }
}

PointStep bitwise_not_point(const Step& step) {
  const bool is_bool = step.output.shape.dtype() == DType::boolean;
  return point_step(
      step, {nullptr, nullptr,
             is_bool ? bits_inverted<std::int32_t, true> : bits_inverted<std::int32_t, false>,
             bits_inverted<std::int64_t, false>});
}

}  // namespace

#define TENON_BITWISE(id, Struct, ...) \
  extern const Kernel id##_kernel;     \
  constinit const Kernel id##_kernel = point_kernel<Struct, __VA_ARGS__>()

TENON_BITWISE(bitwise_and, BitwiseAnd, bit_pair_point<BitwiseAnd>);
TENON_BITWISE(bitwise_or, BitwiseOr, bit_pair_point<BitwiseOr>);
TENON_BITWISE(bitwise_xor, BitwiseXor, bit_pair_point<BitwiseXor>);
TENON_BITWISE(shift_left, ShiftLeft, shift_point<Arithmetic::shift_left>);
TENON_BITWISE(shift_right, ShiftRight, shift_point<Arithmetic::shift_right>);

extern const Kernel bitwise_not_kernel;
constinit const Kernel bitwise_not_kernel = point_kernel<BitwiseNot, bitwise_not_point>();

}  // namespace tenon::cpu
