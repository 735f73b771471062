#pragma once

// Vector exponential and what attention does to a score before it. Included after a header of simd/, by
// the sources of one instruction set each.
#include <cstdint>

namespace tenon::cpu {
namespace {

TENON_INLINE Simd::Float set(float value) { return Simd::broadcast(&value); }

/// e^x to within 2 ulp; 0 below -87.7, largest finite power of two near 88; NaN for NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 is split into a part of 10 bits, whose product with n
/// is exact, and a rest. e^r by its Taylor polynomial of degree 7: the first term left out is below
/// (ln 2 / 2)^8 / 8! = 5e-9.
TENON_INLINE Simd::Float exponential(Simd::Float x) {
  using S = Simd;
  x = S::min(set(88.0f), S::max(set(-88.0f), x));
  const S::Float magic = set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const S::Float shifted = S::fma(x, set(1.44269504f), magic);
  const S::Float n = S::sub(shifted, magic);
  S::Float r = S::fma(n, set(-0.693359375f), x);
  r = S::fma(n, set(2.12194440e-4f), r);
  S::Float p = set(1.0f / 5040.0f);
  p = S::fma(p, r, set(1.0f / 720.0f));
  p = S::fma(p, r, set(1.0f / 120.0f));
  p = S::fma(p, r, set(1.0f / 24.0f));
  p = S::fma(p, r, set(1.0f / 6.0f));
  p = S::fma(p, r, set(0.5f));
  p = S::fma(p, r, set(1.0f));
  p = S::fma(p, r, set(1.0f));
  return S::mul(p, S::power_of_two(shifted));
}

/// cap * tanh(s / cap), as cap - 2 cap / (e^(2 s / cap) + 1); absolute error below cap * 2^-22.
TENON_INLINE Simd::Float capped(Simd::Float s, float cap) {
  using S = Simd;
  const S::Float e = exponential(S::mul(s, set(2.0f / cap)));
  return S::sub(set(cap), S::div(set(2.0f * cap), S::add(e, set(1.0f))));
}

constexpr float minus_infinity = -__builtin_inff();

}  // namespace
}  // namespace tenon::cpu
