#pragma once

// Exponentials of arrays of f64. Included after a header of simd/, by the sources of one instruction set each.
#include "math_f64_body.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

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
