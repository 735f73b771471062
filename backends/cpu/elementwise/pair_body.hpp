#pragma once

// Vector functions of two variables. Included after a header of simd/,
// by the sources of one instruction set each.
//
// As in math_body.hpp, errors are in ulp of the f32 result, a NaN gives NaN, and the polynomials are
// least-maximum fits (Lawson's iteration) of this project's own. What a lane gives depends on that
// lane alone.
#include "math_body.hpp"
#include "trigonometry_body.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

using UnsignedLongs = std::uint64_t __attribute__((vector_size(4 * Simd::lanes)));

TENON_INLINE Doubles doubles(double value) { return Doubles{} + value; }

/// f of f64 vectors, rounded once.
template <class F, class... Inputs>
TENON_INLINE Float in_doubles(F f, Inputs... inputs) {
  const auto part = [](Float x, std::size_t which) {
    FewFloats few;
    __builtin_memcpy(&few, reinterpret_cast<const char*>(&x) + which * sizeof few, sizeof few);
    return widened(few);
  };
  const FewFloats low = narrowed(f(part(inputs, 0)...));
  const FewFloats high = narrowed(f(part(inputs, 1)...));
  Float y;
  __builtin_memcpy(&y, &low, sizeof low);
  __builtin_memcpy(reinterpret_cast<char*>(&y) + sizeof low, &high, sizeof high);
  return y;
}

/// |a| - |b| trunc(|a / b|), exactly, for a quotient below 2^23.
TENON_INLINE Float near_rest(Float a, Float b, Float quotient) {
#if defined(__FMA__)
  // The quotient's rounding may reach the next whole number, whose rest is below 0. Both rests are
  // multiples of the last place of b and smaller than b: exact.
  const Float n = round_down(quotient);
  const Float rest = fma(-n, b, a);
  return rest < set(0.0f) ? rest + b : rest;
#else
  // Of f64, it stays below that number, as a / b differs from it by 2^-47 of it at least.
  return in_doubles(
      [](Doubles p, Doubles q, Doubles) {
        const FewWords n = __builtin_convertvector(p / q, FewWords);
        return p - __builtin_convertvector(n, Doubles) * q;
      },
      quotient < set(0x1p23f) ? a : set(0.0f), quotient < set(0x1p23f) ? b : set(1.0f), quotient);
#endif
}

/// The exact a - b trunc(a / b), as C's fmod. Quotients of 2^23 and above by the C library, each on
/// its own.
TENON_INLINE Float truncated_modulus(Float a, Float b) {
  const Float p = absolute(a), q = absolute(b), quotient = p / q;
  const Float infinite = set(__builtin_inff());
  Float rest = near_rest(p, q, quotient);
  rest = p < q ? p : rest;
  const Mask is_number = (p < infinite) & (q > set(0.0f));
  const Mask is_far = is_number & (quotient >= set(0x1p23f));
  if (!all(is_far == 0)) [[unlikely]] {
    float x[Simd::lanes], y[Simd::lanes], result[Simd::lanes];
    std::int32_t far[Simd::lanes];
    Simd::store_float(x, p);
    Simd::store_float(y, q);
    Simd::store_float(result, rest);
    __builtin_memcpy(far, &is_far, sizeof far);
    for (int i = 0; i < Simd::lanes; ++i) {
      if (far[i] != 0) result[i] = __builtin_fmodf(x[i], y[i]);
    }
    rest = Simd::load_float(result);
  }
  return is_number ? copy_sign(rest, a) : set(__builtin_nanf(""));
}

/// a - b floor(a / b): that, moved to the sign of b.
TENON_INLINE Float floored_modulus(Float a, Float b) {
  const Float rest = truncated_modulus(a, b);
  const Mask apart = (rest < set(0.0f)) != (b < set(0.0f));
  return (apart & (rest != set(0.0f))) ? rest + b : rest;
}

/// Half an ulp: no f32 squares beyond the range of f64.
TENON_INLINE Float hypotenuse(Float a, Float b) {
  const Float infinite = set(__builtin_inff());
  const Float y = in_doubles([](Doubles p, Doubles q) { return square_root(p * p + q * q); }, a, b);
  return ((absolute(a) == infinite) | (absolute(b) == infinite)) ? infinite : y;
}

/// The angle of the point (b, a) in [-pi, pi], to 3 ulp.
TENON_INLINE Float arc_tangent_of(Float a, Float b) {
  const Float p = absolute(a), q = absolute(b);
  const Float low = p < q ? p : q, high = p < q ? q : p;
  Float t = low / high;
  t = high == set(0.0f) ? set(0.0f) : low == set(__builtin_inff()) ? set(1.0f) : t;
  const Float square = t * t;
  const Float tail =
      polynomial(square, -0.00179362268f, 0.0109146102f, -0.0311778545f, 0.0579576026f,
                 -0.0840345088f, 0.10952186f, -0.142642417f, 0.199985483f, -0.333332991f);
  Float angle = fma(t * square, tail, t);
  // pi and its half are each an f32 and what that leaves out.
  angle = p > q ? (set(1.57079637f) - angle) - set(4.37113883e-8f) : angle;
  const Mask is_left = reinterpret_cast<Mask>(b) < 0;
  angle = is_left ? (set(3.14159274f) - angle) - set(8.74227766e-8f) : angle;
  return ((a != a) | (b != b)) ? a + b : copy_sign(angle, a);
}

/// Of a normal number above 0, for its logarithm: x = 2^k m, m within [sqrt(1/2), sqrt(2)), and with
/// s = (m - 1) / (m + 1), log m = 2 atanh s.
struct LogarithmParts {
  Doubles k, s;
};
TENON_INLINE LogarithmParts logarithm_parts(Doubles x) {
  constexpr std::uint64_t one = 0x3FF0000000000000, root = 0x3FE6A09E667F3BCD;
  const UnsignedLongs bits = reinterpret_cast<UnsignedLongs>(x);
  const UnsignedLongs biased = (bits + (one - root)) >> 52;
  const Doubles m = reinterpret_cast<Doubles>(bits - ((biased << 52) - one));
  // Its bits behind 2^52: there is no conversion of 64-bit integers before AVX-512.
  const Doubles k =
      reinterpret_cast<Doubles>(biased | 0x4330000000000000u) - doubles(0x1p52 + 1023);
  return {k, (m - 1.0) / (m + 1.0)};
}

/// The base-2 logarithm of a normal number above 0, to 2^-44 of it or of 1.
TENON_INLINE Doubles logarithm_of_two(Doubles x) {
  const auto [k, s] = logarithm_parts(x);
  const Doubles z = s * s;
  Doubles p = doubles(0.097922601182181171) * z + 0.11088082148271582;
  p = p * z + 0.14286054856041472;
  p = p * z + 0.19999997808454142;
  p = p * z + 0.33333333337907273;
  return k + (s * z * p + s) * 2.8853900817779268;
}

/// 2^x for |x| <= 1000, to 2^-34.
TENON_INLINE Doubles exponential_of_two(Doubles x) {
  const Doubles shifted = x + 0x1.8p52, r = x - (shifted - 0x1.8p52);
  Doubles p = doubles(1.5314948950978231e-05) * r + 0.00015467110159269535;
  p = p * r + 0.0013333430777975189;
  p = p * r + 0.0096180369115347192;
  p = p * r + 0.055504109625826623;
  p = p * r + 0.2402265107584742;
  p = p * r + 0.69314718054165159;
  const auto exponent = reinterpret_cast<UnsignedLongs>(shifted) << 52;
  return reinterpret_cast<Doubles>(reinterpret_cast<UnsignedLongs>(p * r + 1.0) + exponent);
}

TENON_INLINE Float cube(Float x) {
  return in_doubles([](Doubles v) { return v * v * v; }, x);
}

/// As C's pow(x, 1/2), which is +0 at -0 and inf at -inf.
TENON_INLINE Float power_of_half(Float x) {
  const Float infinite = set(__builtin_inff());
  return x == -infinite ? infinite : square_root(x + set(0.0f));
}

/// As C's pow, to 0.51 ulp: the logarithm's error of 2^-44 grows by b log2 |a| < 2^8. Squares, cubes
/// and square roots are exactly rounded, and faster where all lanes are the same of them.
TENON_INLINE Float power(Float a, Float b) {
  const Mask is_square = b == set(2.0f), is_cube = b == set(3.0f), is_root = b == set(0.5f);
  if (all(is_square)) return a * a;
  if (all(is_cube)) return cube(a);
  if (all(is_root)) return power_of_half(a);
  const Float zero = set(0.0f), one = set(1.0f), infinite = set(__builtin_inff());
  const Float p = absolute(a);
  const Mask is_ordinary = (p > zero) & (p < infinite);
  Float y = in_doubles(
      [](Doubles base, Doubles exponent) {
        const Doubles x = exponent * logarithm_of_two(base);
        const Doubles least = doubles(-300), most = doubles(300);
        return exponential_of_two(x < least ? least : x > most ? most : x);
      },
      is_ordinary ? p : one, b);
  const Mask is_special = is_square | is_cube | is_root;
  if (all((a > zero) & is_ordinary & (absolute(b) < infinite) & ~is_special)) return y;
  // |a| is 0 or infinite.
  const Float grown = b > zero ? infinite : b < zero ? zero : one;
  const Float shrunk = b > zero ? zero : b < zero ? infinite : one;
  y = p == zero ? shrunk : p == infinite ? grown : y;
  y = p == one ? one : y;  // also to an infinite power
  const Float half = b * set(0.5f);
  const Mask is_whole = round_to_even(b) == b;
  const Mask is_odd = is_whole & (round_to_even(half) != half);
  y = (is_odd & (reinterpret_cast<Mask>(a) < 0)) ? -y : y;
  y = ((a < zero) & (p < infinite) & ~is_whole) ? set(__builtin_nanf("")) : y;
  y = is_square ? a * a : is_root ? power_of_half(a) : y;
  if (!all(is_cube == 0)) y = is_cube ? cube(a) : y;
  y = ((a != a) | (b != b)) ? a + b : y;
  return ((b == zero) | (a == one)) ? one : y;
}

}  // namespace
}  // namespace tenon::cpu
