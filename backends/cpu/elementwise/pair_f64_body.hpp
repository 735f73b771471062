#pragma once

// Vector functions of two variables of f64. Included after a header of simd/, by the sources of one instruction set each. As in
// math_f64_body.hpp; what a lane gives depends on that lane alone.
#include "math_f64_body.hpp"
#include "typed_unary.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

#if defined(__FMA__)
/// a b + c, rounded once.
TENON_INLINE Doubles fused(Doubles a, Doubles b, Doubles c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#else
  return _mm256_fmadd_pd(a, b, c);
#endif
}

/// y, and f(a, b) in the lanes of a mask, which are few.
template <class F>
TENON_INLINE Doubles but_for(Longs far, Doubles y, Doubles a, Doubles b, F f) {
  if (is_any(far)) [[unlikely]] {
    for (int i = 0; i < Simd::lanes / 2; ++i) {
      if (far[i] != 0) y[i] = f(a[i], b[i]);
    }
  }
  return y;
}

/// The exact a - b trunc(a / b), as C's fmod. Quotients of 2^52 and above by the C library.
struct FmodF64 {
  TENON_INLINE Doubles operator()(Doubles a, Doubles b) const {
    const Doubles p = absolute_f64(a), q = absolute_f64(b), quotient = p / q;
    // The quotient's rounding may reach the next whole number, whose rest is below 0. Both rests are multiples of the last
    // place of b and smaller than b: exact.
    Doubles rest = fused(-rounded_f64<1>(quotient), q, p);
    rest = rest < 0.0 ? rest + q : rest;
    rest = p < q ? p : rest;
    const auto is_number = (p < __builtin_inf()) & (q > 0.0);
    rest = but_for(is_number & (quotient >= 0x1p52), rest, p, q,
                   [](double x, double y) { return __builtin_fmod(x, y); });
    return is_number ? with_sign_of(rest, a) : Doubles{} + __builtin_nan("");
  }
};
/// a - b floor(a / b): that, moved to the sign of b.
struct RemainderF64 {
  TENON_INLINE Doubles operator()(Doubles a, Doubles b) const {
    const Doubles rest = FmodF64{}(a, b);
    const auto apart = ((rest < 0.0) ^ (b < 0.0)) & (rest != 0.0);
    return apart ? rest + b : rest;
  }
};

/// C's pow of a normal a > 0 and b whose result's logarithm is within 2^10, to 1.5 ulp; others by the C library. The logarithm
/// of a = 2^k m, m within [sqrt(1/2), sqrt(2)), is k ln 2 + 2 atanh(s), s = (m - 1) / (m + 1), as a sum of two numbers, to
/// 2^-63 of it: s and the first two terms of the series are such sums, too.
struct PowF64 {
  TENON_INLINE Doubles operator()(Doubles a, Doubles b) const {
    const auto is_square = b == 2.0, is_cube = b == 3.0;
    if (!is_any(~is_square)) return a * a;
    const auto is_plain = (a >= 0x1p-1022) & (a < __builtin_inf());
    const LogarithmF64 of = logarithm_of(is_plain ? a : Doubles{} + 1.0);
    const Doubles x = b * of.high;
    const Doubles low = fused(b, of.high, -x) + b * of.low;
    const auto is_near = is_plain & (absolute_f64(x) < 1024.0);
    Doubles y = exponential_f64(x, is_near ? low : Doubles{});
    y = is_square ? a * a : is_cube ? a * a * a : y;
    const auto is_far = ~(is_near | is_square | is_cube);
    return but_for(is_far, y, a, b, [](double p, double q) { return __builtin_pow(p, q); });
  }

 private:
  struct LogarithmF64 {
    Doubles high, low;
  };
  TENON_INLINE static LogarithmF64 logarithm_of(Doubles x) {
    using Unsigned = std::uint64_t __attribute__((vector_size(sizeof(Longs))));
    constexpr std::int64_t root_half = 0x3FE6A09E667F3BCD, bias = 1024;
    const Longs bits = bits_of(x);
    const Longs shifted = bits - root_half + (bias << 52);
    const auto exponent = reinterpret_cast<Longs>(reinterpret_cast<Unsigned>(shifted) >> 52);
    const Doubles k = of_bits(exponent | 0x4330000000000000) - (0x1p52 + bias);
    const Doubles m = of_bits(bits - ((exponent - bias) << 52));
    const Doubles f = m - 1.0, sum = m + 1.0, lost = m - (sum - 1.0);
    const Doubles s = f / sum;
    const Doubles s_low = fused(-s, lost, fused(-s, sum, f)) / sum;
    const Doubles z = s * s, z_low = fused(s, s, -z) + 2.0 * s * s_low;
    // s^2 (1/5 + s^2 (1/7 + ..)) up to s^20; q is that plus 1/3.
    const Doubles rest = z * polynomial_f64(z, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15,
                                            1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5);
    constexpr double third = 1.0 / 3, third_low = 0x1.5555555555555p-56;
    const Doubles q = third + rest, q_low = ((third - q) + rest) + third_low;
    const Doubles cube = z * s, cube_low = fused(z, s, -cube) + (z * s_low + z_low * s);
    const Doubles high = fused(cube, q, s);
    const Doubles low = fused(cube, q, s - high) + (cube * q_low + cube_low * q + s_low);
    // k times the first part of ln 2 is exact.
    const Doubles whole = k * 0x1.62e42fee00000p-1, twice = 2.0 * high;
    const Doubles all = whole + twice;
    const Doubles left = ((whole - all) + twice) + (k * 0x1.a39ef35793c76p-33 + 2.0 * low);
    const Doubles result = all + left;
    return {result, left - (result - all)};
  }
};
#endif

/// sqrt(a^2 + b^2), to 1.2 ulp: of numbers whose squares are out of range, scaled ones.
struct HypotF64 {
  TENON_INLINE Doubles operator()(Doubles a, Doubles b) const {
    const Doubles p = absolute_f64(a), q = absolute_f64(b), most = p > q ? p : q,
                  one = Doubles{} + 1.0;
    const auto is_large = most > 0x1p500, is_small = most < 0x1p-400;
    const Doubles scale = is_large ? one * 0x1p-600 : is_small ? one * 0x1p600 : one;
    const Doubles back = is_large ? one * 0x1p600 : is_small ? one * 0x1p-600 : one;
    const Doubles x = p * scale, y = q * scale;
    const Doubles root = square_root(x * x + y * y) * back;
    const Doubles infinity = Doubles{} + __builtin_inf();
    return ((p == infinity) | (q == infinity)) ? infinity : root;
  }
};

/// The angle of the point (b, a) in [-pi, pi], as C's atan2, to 2 ulp.
struct Atan2F64 {
  TENON_INLINE Doubles operator()(Doubles a, Doubles b) const {
    const Doubles one = Doubles{} + 1.0;
    Doubles p = absolute_f64(a), q = absolute_f64(b);
    const auto is_large = (p > 0x1p1000) | (q > 0x1p1000);  // whose sum may overflow
    p = is_large ? p * 0.25 : p;
    q = is_large ? q * 0.25 : q;
    const auto are_infinite = (p == __builtin_inf()) & (q == __builtin_inf());
    const auto are_zero = (p == 0.0) & (q == 0.0);
    p = are_infinite ? one : p;
    q = (are_infinite | are_zero) ? one : q;
    const Doubles angle = atan_of_quotient(p, q);
    const auto is_left = bits_of(b) < 0;
    const Doubles turned = is_left ? (0x1.921fb54442d18p+1 - angle) + 0x1.1a62633145c07p-53 : angle;
    return (b != b) ? b : with_sign_of(turned, a);
  }
};

/// As map_f64() of typed_unary_body.hpp.
template <class F>
void map_pairs_f64(const double* a, std::int64_t a_step, const double* b, std::int64_t b_step,
                   double* y, std::int64_t count) noexcept {
  constexpr std::int64_t lanes = Simd::lanes / 2;
  const auto load = [](const double* x, std::int64_t step, std::int64_t i, std::int64_t left) {
    Doubles v{};
    if (step == 0) {
      for (int lane = 0; lane < lanes; ++lane)
        v[lane] = *x;  // a sum with 0 would lose the sign of -0
      return v;
    }
    if (left >= lanes) {
      __builtin_memcpy(&v, x + i, sizeof v);
    } else {
      __builtin_memcpy(&v, x + i, static_cast<std::size_t>(left) * sizeof(double));
    }
    return v;
  };
  const F f;
  for (std::int64_t i = 0; i < count; i += lanes) {
    const std::int64_t left = count - i;
    const Doubles v = f(load(a, a_step, i, left), load(b, b_step, i, left));
    if (left >= lanes) {
      __builtin_memcpy(y + i, &v, sizeof v);
    } else {
      __builtin_memcpy(y + i, &v, static_cast<std::size_t>(left) * sizeof(double));
    }
  }
}

PairOfF64 find_f64_pair(Binary op) noexcept {
  switch (op) {
    case Binary::hypot:
      return map_pairs_f64<HypotF64>;
    case Binary::atan2:
      return map_pairs_f64<Atan2F64>;
#if defined(__FMA__)
    case Binary::fmod:
      return map_pairs_f64<FmodF64>;
    case Binary::remainder:
      return map_pairs_f64<RemainderF64>;
    case Binary::pow:
      return map_pairs_f64<PowF64>;
#endif
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace tenon::cpu
