// Numbers as unsigned ones of the same order: what ranking and sorting compare.
#pragma once

#include "../elementwise/typed.hpp"
#include "../task.hpp"

#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>

namespace tenon::cpu {

/// Calls use(T{}) with the type that x is computed in.
template <class Use>
std::unique_ptr<Task> with_type(const Step& step, Use use) {
  switch (compute_type(step.inputs[0].shape.dtype())) {
    case Compute::i32:
      return use(std::int32_t{});
    case Compute::i64:
      return use(std::int64_t{});
    case Compute::f32:
      return use(float{});
    case Compute::f64:
      return use(double{});
  }
  return nullptr;
}

/// A number whose order as an unsigned one is that of the values: a NaN above all, zeros equal.
template <class T>
auto ordered(T value) noexcept {
  using U = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr U sign = U{1} << (8 * sizeof(T) - 1);
  if constexpr (std::is_floating_point_v<T>) {
    if (value != value) return static_cast<U>(~U{0});
    const U bits = std::bit_cast<U>(value + T{0});
    const U is_negative = bits >> (8 * sizeof(T) - 1);  // no branch: signs are hard to predict
    return static_cast<U>(bits ^ ((U{0} - is_negative) | sign));
  } else {
    return static_cast<U>(static_cast<U>(value) ^ sign);
  }
}

/// The value of such a number.
template <class T>
T value_of(decltype(ordered(T{})) key) noexcept {
  using U = decltype(key);
  constexpr U sign = U{1} << (8 * sizeof(T) - 1);
  if constexpr (std::is_floating_point_v<T>) {
    if (key == static_cast<U>(~U{0})) return std::numeric_limits<T>::quiet_NaN();
    return std::bit_cast<T>((key & sign) != 0 ? static_cast<U>(key ^ sign) : static_cast<U>(~key));
  } else {
    return static_cast<T>(key ^ sign);
  }
}

}  // namespace tenon::cpu
