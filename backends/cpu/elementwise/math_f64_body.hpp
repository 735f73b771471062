#pragma once

// Vector functions of f64. Included after a header of simd/, by the sources of one instruction set each. Errors are in ulp of
// the C library's results where they are not subnormal; a NaN gives NaN. Series are Taylor's, polynomials fits of this project's
// own by interpolation at Chebyshev's nodes.
#include "trigonometry_body.hpp"

#include <cstdint>
#include <limits>

namespace tenon::cpu {
namespace {

/// 2^n of whole numbers in [-1022, 1023]: the lowest bits of n + 3 * 2^51 are those of n.
TENON_INLINE Doubles power_of_two(Doubles n) {
  const Doubles shifted = n + 0x1.8p52;
  Longs bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023) << 52;
  Doubles result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}

/// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2 by the series of e^r up to its 13th power: what is left out is less than 1e-17.
TENON_INLINE Doubles exponential_tail(Doubles r) {
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
  return p;
}

/// e^(x + low) for |low| <= 2^-40, to 1 ulp: x = n ln 2 + r with |r| <= ln 2 / 2; 2^n in two factors, since results may be
/// subnormal.
template <class... Low>
TENON_INLINE Doubles exponential_f64(Doubles x, Low... low) {
  x = x < -746.0 ? Doubles{} - 746.0 : x;
  x = x > 710.0 ? Doubles{} + 710.0 : x;
  const Doubles magic = Doubles{} + 0x1.8p52;
  const Doubles n = (x * 1.44269504088896340736 + magic) - magic;
  Doubles r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
  ((r = r + low), ...);  // none: 0
  const Doubles power = 1.0 + (r + r * r * exponential_tail(r));
  const Doubles half = (n * 0.5 + magic) - magic;
  return power * power_of_two(half) * power_of_two(n - half);
}

/// Horner's scheme; coefficients from the highest power down.
template <class... Rest>
TENON_INLINE Doubles polynomial_f64(Doubles x, double first, Rest... rest) {
  Doubles sum = Doubles{} + first;
  ((sum = sum * x + rest), ...);
  return sum;
}

TENON_INLINE Longs bits_of(Doubles x) {
  Longs bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
TENON_INLINE Doubles of_bits(Longs bits) {
  Doubles x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
constexpr std::int64_t sign_bit_f64 = std::numeric_limits<std::int64_t>::min();
TENON_INLINE Doubles absolute_f64(Doubles x) { return of_bits(bits_of(x) & ~sign_bit_f64); }
/// `magnitude` >= 0 with a sign.
TENON_INLINE Doubles with_sign_of(Doubles magnitude, Doubles sign) {
  return of_bits(bits_of(magnitude) | (bits_of(sign) & sign_bit_f64));
}

/// To a whole number: 0 the nearest, halves to the even one; 1 down; 2 up; 3 towards 0, as the instructions have it.
template <int way>
TENON_INLINE Doubles rounded_f64(Doubles x) {
#if defined(__AVX512F__)
  return _mm512_roundscale_pd(x, way | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return _mm256_round_pd(x, way | _MM_FROUND_NO_EXC);
#else
  for (int i = 0; i < Simd::lanes / 2; ++i) {
    x[i] = way == 0   ? __builtin_nearbyint(x[i])
           : way == 1 ? __builtin_floor(x[i])
           : way == 2 ? __builtin_ceil(x[i])
                      : __builtin_trunc(x[i]);
  }
  return x;
#endif
}

/// e^x - 1, to 2 ulp: 2^n (e^r - 1) + (2^n - 1), x = n ln 2 + r as above.
TENON_INLINE Doubles expm1_f64(Doubles x) {
  Doubles near = x < -50.0 ? Doubles{} - 50.0 : x;
  near = near > 600.0 ? Doubles{} + 600.0 : near;
  const Doubles magic = Doubles{} + 0x1.8p52;
  const Doubles n = (near * 1.44269504088896340736 + magic) - magic;
  const Doubles r = (near - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
  const Doubles p = r + r * r * exponential_tail(r);
  const Doubles power = power_of_two(n);
  const Doubles y = p * power + (power - 1.0);
  const Doubles large = exponential_f64(x);
  return x == 0.0 ? x : x > 600.0 ? large : y;
}

/// 2^x, to 1 ulp.
TENON_INLINE Doubles exp2_f64(Doubles x) {
  x = x < -1080.0 ? Doubles{} - 1080.0 : x;
  x = x > 1025.0 ? Doubles{} + 1025.0 : x;
  const Doubles magic = Doubles{} + 0x1.8p52;
  const Doubles n = (x + magic) - magic;
  const Doubles r = (x - n) * 0x1.62e42fefa39efp-1;
  const Doubles power = 1.0 + (r + r * r * exponential_tail(r));
  const Doubles half = (n * 0.5 + magic) - magic;
  return power * power_of_two(half) * power_of_two(n - half);
}

/// x > 0 as 2^n (1 + rest), 1 + rest in [sqrt(1/2), sqrt(2)); rest + tail is the logarithm of 1 + rest.
struct LogarithmF64 {
  Doubles n, rest, tail;
};
/// log(1 + f) = 2 atanh(s), s = f / (2 + f), by its series up to s^21: what is left out is less than 1e-18 of it. 2 s = f - f^2 / 2
/// + s f^2 / 2, so that what is added to f is small.
TENON_INLINE LogarithmF64 logarithm_parts_f64(Doubles x) {
  using Unsigned = std::uint64_t __attribute__((vector_size(sizeof(Longs))));
  constexpr std::int64_t root_half = 0x3FE6A09E667F3BCD, bias = 1024;
  const auto is_subnormal = x < 0x1p-1022;
  const Longs bits = bits_of(is_subnormal ? x * 0x1p54 : x);
  // With a bias that keeps it positive: there are no arithmetic shifts of 64 bits in AVX2.
  const Longs shifted = bits - root_half + (bias << 52);
  const auto exponent = reinterpret_cast<Longs>(reinterpret_cast<Unsigned>(shifted) >> 52);
  const Doubles n =
      of_bits(exponent | 0x4330000000000000) -  // 2^52
      (is_subnormal ? Doubles{} + (0x1p52 + 54.0 + bias) : Doubles{} + (0x1p52 + bias));
  const Doubles f = of_bits(bits - ((exponent - bias) << 52)) - 1.0;
  const Doubles s = f / (f + 2.0), z = s * s;
  const Doubles series = z * polynomial_f64(z, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13,
                                            2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3);
  const Doubles half_square = 0.5 * f * f;
  return {n, f, s * (half_square + series) - half_square};
}
/// What logarithms give where no power of two says it.
TENON_INLINE Doubles logarithm_or_special(Doubles x, Doubles y) {
  const Doubles infinity = Doubles{} + __builtin_inf();
  y = x == 0.0 ? -infinity : y;
  y = x < 0.0 ? Doubles{} + __builtin_nan("") : y;
  y = x == infinity ? x : y;
  return x != x ? x : y;
}
/// To 1 ulp.
TENON_INLINE Doubles log_f64(Doubles x) {
  const LogarithmF64 parts = logarithm_parts_f64(x);
  const Doubles low = parts.n * 0x1.a39ef35793c76p-33 + parts.tail;
  return logarithm_or_special(x, parts.n * 0x1.62e42fee00000p-1 + (low + parts.rest));
}
/// To 2 ulp; exact for powers of two.
TENON_INLINE Doubles log2_f64(Doubles x) {
  const LogarithmF64 parts = logarithm_parts_f64(x);
  return logarithm_or_special(x, parts.n + (parts.rest + parts.tail) * 1.44269504088896340736);
}
/// To 2 ulp: with what 1 + x has lost.
TENON_INLINE Doubles log1p_f64(Doubles x) {
  const Doubles sum = x + 1.0;
  const Doubles lost = (x - (sum - 1.0)) / sum;
  const auto is_plain = (sum > 0.0) & (sum < __builtin_inf());
  const Doubles y = log_f64(sum) + (is_plain ? lost : Doubles{} + 0.0);
  return x == 0.0 ? x : y;
}

/// To 1 ulp.
TENON_INLINE Doubles sigmoid_f64(Doubles x) {
  const Doubles power = exponential_f64(-absolute_f64(x));
  return (x < 0.0 ? power : Doubles{} + 1.0) / (1.0 + power);
}
/// To 3 ulp.
TENON_INLINE Doubles tanh_f64(Doubles x) {
  const Doubles a = absolute_f64(x);
  const Doubles power = expm1_f64(2.0 * (a > 22.0 ? Doubles{} + 22.0 : a));
  return with_sign_of(power / (power + 2.0), x);
}
/// To 3 ulp: from 22 on e^-x does not count, and e^x would overflow too early.
TENON_INLINE Doubles sinh_f64(Doubles x) {
  const Doubles a = absolute_f64(x);
  const Doubles part = expm1_f64(a > 22.0 ? Doubles{} + 22.0 : a), root = exponential_f64(0.5 * a);
  return with_sign_of(a > 22.0 ? (0.5 * root) * root : 0.5 * (part + part / (part + 1.0)), x);
}
/// To 3 ulp.
TENON_INLINE Doubles cosh_f64(Doubles x) {
  const Doubles a = absolute_f64(x), root = exponential_f64(0.5 * a);
  return (0.5 * root) * root + 0.5 / (root * root);
}
/// To 3 ulp.
TENON_INLINE Doubles atanh_f64(Doubles x) {
  const Doubles a = absolute_f64(x);
  return with_sign_of(0.5 * log1p_f64((a + a) / (1.0 - a)), x);
}
/// To 2 ulp.
TENON_INLINE Doubles softplus_f64(Doubles x) {
  return (x > 0.0 ? x : Doubles{} + 0.0) + log1p_f64(exponential_f64(-absolute_f64(x)));
}
/// x tanh(log(1 + e^x)) = x w (w + 2) / (w (w + 2) + 2), w = e^x. To 3 ulp.
TENON_INLINE Doubles mish_f64(Doubles x) {
  const Doubles w = exponential_f64(x > 30.0 ? Doubles{} + 30.0 : x);
  const Doubles n = w * (w + 2.0);
  return x * (n / (n + 2.0));
}

struct ErfcAndBell {
  Doubles value, bell;  ///< bell: e^(-a^2)
};
/// erfc(a) for a >= 0, to 4 ulp: e^(-a^2) / (1 + 2 a) times a polynomial in (a - 4) / (a + 4). The square is taken in two parts,
/// since an error of it is as many times larger in the result as its value says.
TENON_INLINE ErfcAndBell erfc_and_bell(Doubles a) {
  a = a > 28.0 ? Doubles{} + 28.0 : a;
  const Doubles upper = of_bits(bits_of(a) & ~std::int64_t{0x7FFFFFF});
  const Doubles low = (a - upper) * (a + upper);  // at most 2^-15
  const Doubles power = exponential_f64(-upper * upper);
  const Doubles bell = power - power * low * polynomial_f64(low, 1.0 / 6, -0.5, 1.0);
  const Doubles t = (a - 4.0) / (a + 4.0);
  const Doubles p = polynomial_f64(
      t, -1.4311318470928162e-10, -2.655726616312575e-10, 1.825695118953907e-09,
      3.1672611119361695e-09, -1.4806988146925795e-08, -2.05545313698593e-08,
      1.1025271999000152e-07, 7.74606863568198e-08, -8.25078338681245e-07, 2.9198219084548256e-07,
      5.709314113532492e-06, -1.1221292615314274e-05, -2.43989944557621e-05, 0.00015062149237837335,
      -0.00019925676026410458, -0.000757773262030915, 0.0050319699895242515, -0.01619773405968329,
      0.03716751553632399, -0.06633036581219905, 0.0937328349984105, -0.1010390660362999,
      0.0680970542546913, 0.01537965210261959, -0.1396211168405625, 1.2329951186255526);
  return {bell * (p / (2.0 * a + 1.0)), bell};
}
TENON_INLINE Doubles erfc_of_positive(Doubles a) { return erfc_and_bell(a).value; }
/// erf(a) for 0 <= a < 1.
TENON_INLINE Doubles erf_of_small(Doubles a) {
  return a * polynomial_f64(a * a, 5.957176147748911e-11, -1.1372848856791674e-09,
                            1.4659775274047436e-08, -1.6350312701054695e-07, 1.6461000484121368e-06,
                            -1.4925595266831182e-05, 0.0001205533111164271, -0.000854832698083379,
                            0.0052239776248180145, -0.026866170645076792, 0.11283791670954879,
                            -0.3761263890318375, 1.1283791670955126);
}
/// To 2 ulp.
TENON_INLINE Doubles erf_f64(Doubles x) {
  const Doubles a = absolute_f64(x);
  return with_sign_of(a < 1.0 ? erf_of_small(a) : 1.0 - erfc_of_positive(a), x);
}
/// As Gelu has it, to 6 ulp.
TENON_INLINE Doubles gelu_f64(Doubles x) {
  const Doubles u = x / 1.41421356237309504880;
  const Doubles tail = 0.5 * erfc_of_positive(absolute_f64(u));
  return x * (x < 0.0 ? tail : 1.0 - tail);
}
/// x / (1 + e^(-2 u)), which is the tanh form without its cancellation.
TENON_INLINE Doubles gelu_tanh_f64(Doubles x) {
  const Doubles u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
  return x * sigmoid_f64(2.0 * u);
}

/// Where it is not subnormal, to 6 ulp.
TENON_INLINE Doubles erfc_f64(Doubles x) {
  const Doubles tail = erfc_of_positive(absolute_f64(x));
  return x < 0.0 ? 2.0 - tail : tail;
}

/// To 6 ulp: a first value to 4e-7, which is x times a polynomial of w = -log(1 - x^2), or of its root in the tails, the form and
/// in the middle the coefficients of Giles, Approximating the erfinv function (2010); then a step of Halley's method.
TENON_INLINE Doubles erfinv_f64(Doubles x) {
  const Doubles a = absolute_f64(x);
  const Doubles w = -log_f64((1.0 - a) * (1.0 + a)), v = w - 2.5, u = square_root(w) - 4.0;
  const Doubles middle =
      polynomial_f64(v, 2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06,
                     0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941);
  const Doubles tail =
      polynomial_f64(u, 7.325156822633578e-07, -2.060066053249463e-06, -7.974918596785028e-06,
                     3.747473046158618e-05, -4.5404929347635456e-05, 2.5474941280803756e-05,
                     -9.397925937176974e-05, 0.0003427050334128816, -0.0008843413463016279,
                     0.0012540860218820025, 1.009495855811992, 3.839784047050243);
  Doubles y = a * (w < 5.0 ? middle : tail);
  // f = erf(y) - a, from erfc in the tails; f'' / f' = -2 y.
  const ErfcAndBell rest = erfc_and_bell(y);
  const Doubles f = y < 0.7 ? erf_of_small(y) - a : (1.0 - a) - rest.value;
  const Doubles step = f / (1.12837916709551257390 * rest.bell);
  y = y - step / (1.0 + y * step);
  y = a == 1.0 ? Doubles{} + __builtin_inf() : a > 1.0 ? Doubles{} + __builtin_nan("") : y;
  return x == 0.0 ? x : with_sign_of(y, x);
}

/// The arc tangent of above / below, both >= 0, to 1 ulp, by the reduction and the quotient of polynomials of Cephes' atan
/// (Moshier, 1992): of x from tan(3 pi / 8) on that of -1 / x, from 0.66 on that of (x - 1) / (x + 1).
TENON_INLINE Doubles atan_of_quotient(Doubles above, Doubles below) {
  const Doubles none{};
  const auto is_large = above > 2.41421356237309504880 * below;
  const auto is_middle = (above > 0.66 * below) & ~is_large;
  const Doubles p0 = is_large ? -below : is_middle ? above - below : above;
  const Doubles q0 = is_large ? above : is_middle ? above + below : below;
  const Doubles r = p0 / q0, z = r * r;
  const Doubles p = polynomial_f64(z, -8.750608600031904122785e-1, -1.615753718733365076637e1,
                                   -7.500855792314704667340e1, -1.228866684490136173410e2,
                                   -6.485021904942025371773e1);
  const Doubles q = polynomial_f64(z, 1.0, 2.485846490142306297962e1, 1.650270098316988542046e2,
                                   4.328810604912902668951e2, 4.853903996359136964868e2,
                                   1.945506571482613964425e2);
  constexpr double quarter = 0x1.921fb54442d18p-1, lost = 0x1.1a62633145c07p-55;  // of pi
  const Doubles start = is_large ? none + 2.0 * quarter : is_middle ? none + quarter : none;
  const Doubles rest = is_large ? none + 2.0 * lost : is_middle ? none + lost : none;
  return start + (r + (r * (z * p / q) + rest));
}
TENON_INLINE Doubles atan_f64(Doubles x) {
  return with_sign_of(atan_of_quotient(absolute_f64(x), Doubles{} + 1.0), x);
}
/// To 3 ulp; `root` is sqrt((1 - x) (1 + x)).
TENON_INLINE Doubles asin_f64(Doubles x, Doubles root) { return atan_f64(x / root); }
/// To 3 ulp; `root` is sqrt((1 - x) / (1 + x)).
TENON_INLINE Doubles acos_f64(Doubles root) { return 2.0 * atan_f64(root); }

constexpr double largest_angle_f64 = 0x1p20;
/// Sine and cosine of r, to 2 ulp; x = n pi / 2 + r, |r| <= pi / 4. Of `quarter` the lowest two bits are those of n.
struct SinesF64 {
  Doubles sine, cosine;
  Longs quarter;
};
/// For |x| within largest_angle_f64: pi / 2 in three parts of 33 bits and a rest, whose products with n are exact; series up to
/// r^19.
TENON_INLINE SinesF64 near_sines(Doubles x) {
  const Doubles shifted = x * 0.63661977236758134308 + 0x1.8p52;
  const Doubles n = shifted - 0x1.8p52;
  const Doubles first = (x - n * 0x1.921fb54400000p+0) - n * 0x1.0b4611a600000p-34;
  const Doubles r = first - n * 0x1.3198a2e037073p-69;
  const Doubles z = r * r;
  const Doubles sine =
      r + r * z *
              polynomial_f64(z, -1.0 / 121645100408832000.0, 1.0 / 355687428096000.0,
                             -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
                             1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0);
  const Doubles rest =
      z * z *
      polynomial_f64(z, -1.0 / 6402373705728000.0, 1.0 / 20922789888000.0, -1.0 / 87178291200.0,
                     1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0);
  const Doubles half = 0.5 * z, top = 1.0 - half;
  return {sine, top + (((1.0 - top) - half) + rest), bits_of(shifted)};
}
/// f(sines of x) where x is near, else by the C library.
template <class F, class Exact>
TENON_INLINE Doubles of_sines(Doubles x, F f, Exact exact) {
  const auto is_near = absolute_f64(x) <= largest_angle_f64;
  Doubles y = f(near_sines(is_near ? x : Doubles{} + 0.0));
  if (is_any(~is_near)) [[unlikely]] {
    for (int i = 0; i < Simd::lanes / 2; ++i) {
      if (is_near[i] == 0) y[i] = exact(x[i]);
    }
  }
  return y;
}
/// The sine of x + turns pi / 2.
template <int turns>
TENON_INLINE Doubles sine_f64(Doubles x) {
  const Doubles y = of_sines(
      x,
      [](SinesF64 of) {
        const Longs quarter = of.quarter + turns;
        const Doubles value = (quarter & 1) != 0 ? of.cosine : of.sine;
        return (quarter & 2) != 0 ? -value : value;
      },
      [](double each) { return turns == 0 ? __builtin_sin(each) : __builtin_cos(each); });
  if constexpr (turns == 0) return x == 0.0 ? x : y;
  return y;
}
/// To 4 ulp.
TENON_INLINE Doubles tan_f64(Doubles x) {
  const Doubles y = of_sines(
      x,
      [](SinesF64 of) {
        const auto is_odd = (of.quarter & 1) != 0;
        return (is_odd ? -of.cosine : of.sine) / (is_odd ? of.sine : of.cosine);
      },
      [](double each) { return __builtin_tan(each); });
  return x == 0.0 ? x : y;
}

}  // namespace
}  // namespace tenon::cpu
