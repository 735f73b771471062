#pragma once

// The exponential of f64, to 1 ulp. Included after a header of simd/, by the sources of one instruction set each.
#include "trigonometry_body.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

using Words64 = std::int64_t __attribute__((vector_size(4 * Simd::lanes)));

/// 2^n of whole numbers in [-1022, 1023]: the lowest bits of n + 3 * 2^51 are those of n.
TENON_INLINE Doubles power_of_two(Doubles n) {
  const Doubles shifted = n + 0x1.8p52;
  Words64 bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023) << 52;
  Doubles result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}

/// x = n ln 2 + r with |r| <= ln 2 / 2, and the series of e^r up to its 13th power: what is left out is less than 1e-17.
/// 2^n in two factors, since results may be subnormal.
TENON_INLINE Doubles exponential_f64(Doubles x) {
  x = x < -746.0 ? Doubles{} - 746.0 : x;
  x = x > 710.0 ? Doubles{} + 710.0 : x;
  const Doubles magic = Doubles{} + 0x1.8p52;
  const Doubles n = (x * 1.44269504088896340736 + magic) - magic;
  const Doubles r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
  Doubles p = Doubles{} + 1.0 / 6227020800.0;
  const double factors[] = {1.0 / 479001600.0,
                            1.0 / 39916800.0,
                            1.0 / 3628800.0,
                            1.0 / 362880.0,
                            1.0 / 40320.0,
                            1.0 / 5040.0,
                            1.0 / 720.0,
                            1.0 / 120.0,
                            1.0 / 24.0,
                            1.0 / 6.0,
                            0.5};
#pragma GCC unroll 11
  for (const double factor : factors) p = p * r + factor;
  const Doubles power = 1.0 + (r + r * r * p);
  const Doubles half = (n * 0.5 + magic) - magic;
  return power * power_of_two(half) * power_of_two(n - half);
}

void run_exp_f64(const double* x, double shift, double* y, std::int64_t count) noexcept {
  constexpr std::int64_t wide = Simd::lanes / 2;
  Doubles v{};
  std::int64_t i = 0;
  for (; i + wide <= count; i += wide) {
    __builtin_memcpy(&v, x + i, sizeof v);
    v = exponential_f64(v - shift);
    __builtin_memcpy(y + i, &v, sizeof v);
  }
  if (i == count) return;
  const std::size_t rest = static_cast<std::size_t>(count - i) * sizeof(double);
  __builtin_memcpy(&v, x + i, rest);
  v = exponential_f64(v - shift);
  __builtin_memcpy(y + i, &v, rest);
}

}  // namespace
}  // namespace tenon::cpu
