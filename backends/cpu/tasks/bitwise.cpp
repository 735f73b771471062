// Integers bit by bit.
#include "point_task.hpp"

#include <tenon/ops/bitwise.hpp>

#include <type_traits>

namespace tenon::cpu {
namespace {

template <class Op, class T>
T bits_of(T a, T b) noexcept {
  if constexpr (std::is_same_v<Op, BitwiseAnd>) {
    return a & b;
  } else if constexpr (std::is_same_v<Op, BitwiseOr>) {
    return a | b;
  } else if constexpr (std::is_same_v<Op, BitwiseXor>) {
    return a ^ b;
  } else {
    using U = std::make_unsigned_t<T>;
    constexpr U most = 8 * sizeof(T) - 1;
    const U count = static_cast<U>(b);  // negative ones are large
    if constexpr (std::is_same_v<Op, ShiftLeft>) {
      return count > most ? T{0} : static_cast<T>(static_cast<U>(a) << count);
    } else {
      return a >> (count > most ? most : count);
    }
  }
}

template <class Op, class T>
void bit_pairs(const PointCall& call, const OpInstance&) noexcept {
  const auto* a = static_cast<const T*>(call.x[0]);
  const auto* b = static_cast<const T*>(call.x[1]);
  auto* y = static_cast<T*>(call.y);
  if (call.step[0] == 1 && call.step[1] == 1) {
    for (std::int64_t i = 0; i < call.count; ++i) y[i] = bits_of<Op>(a[i], b[i]);
  } else if (call.step[0] == 1) {
    const T value = *b;
    for (std::int64_t i = 0; i < call.count; ++i) y[i] = bits_of<Op>(a[i], value);
  } else {
    for (std::int64_t i = 0; i < call.count; ++i) y[i] = bits_of<Op>(*a, b[i * call.step[1]]);
  }
}

template <class Op>
PointStep bit_pair_point(const Step& step) {
  return point_step(step,
                    {nullptr, nullptr, bit_pairs<Op, std::int32_t>, bit_pairs<Op, std::int64_t>});
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

#define TENON_BITWISE(id, Struct)  \
  extern const Kernel id##_kernel; \
  constinit const Kernel id##_kernel = point_kernel<Struct, bit_pair_point<Struct>>()

TENON_BITWISE(bitwise_and, BitwiseAnd);
TENON_BITWISE(bitwise_or, BitwiseOr);
TENON_BITWISE(bitwise_xor, BitwiseXor);
TENON_BITWISE(shift_left, ShiftLeft);
TENON_BITWISE(shift_right, ShiftRight);

extern const Kernel bitwise_not_kernel;
constinit const Kernel bitwise_not_kernel = point_kernel<BitwiseNot, bitwise_not_point>();

}  // namespace tenon::cpu
