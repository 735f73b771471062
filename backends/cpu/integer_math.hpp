// Division of sizes and counts, rounded up.
#pragma once

#include <cstddef>
#include <type_traits>

namespace tenon::cpu {

// Always inlined, so that the files compiled for one instruction set may call them: no copy is
// emitted that the linker could keep for everybody (matmul/matmul_kernels.hpp).

/// a / b rounded up, for a >= 0 and b > 0.
template <class T>
[[gnu::always_inline]] constexpr T ceil_div(T a, std::type_identity_t<T> b) noexcept {
  return (a + b - 1) / b;
}

/// The smallest multiple of `step` that is not below `a`.
template <class T>
[[gnu::always_inline]] constexpr T round_up(T a, std::type_identity_t<T> step) noexcept {
  return ceil_div(a, step) * step;
}

/// `bytes` rounded up to cache lines of 64 bytes.
[[gnu::always_inline]] constexpr std::size_t round_to_line(std::size_t bytes) noexcept {
  return round_up(bytes, 64);
}

}  // namespace tenon::cpu
