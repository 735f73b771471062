#pragma once

// Vector functions of one variable. Included after a header of simd/, by the sources of one instruction
// set each.
//
// Errors are in ulp of the f32 result against the exact function, measured over the whole range; a
// NaN gives NaN. silu, gelu and gelu_tanh are products with an exponential: where that is
// subnormal, which makes results smaller than 2^-119, their absolute error is up to 2^-142. The
// polynomials are least-maximum fits (Lawson's iteration) of this project's own.
#include <cstdint>

namespace tenon::cpu {
namespace {

using Float = Simd::Float;
using Mask = decltype(Float{} < Float{});

TENON_INLINE Float set(float value) { return Simd::broadcast(&value); }
TENON_INLINE Float fma(Float a, Float b, Float c) { return Simd::fma(a, b, c); }

TENON_INLINE Float with_bits(Float x, std::uint32_t mask) {
  return reinterpret_cast<Float>(reinterpret_cast<Mask>(x) & static_cast<std::int32_t>(mask));
}
TENON_INLINE Float absolute(Float x) { return with_bits(x, 0x7FFFFFFFu); }
/// -|x|
TENON_INLINE Float negative_of(Float x) {
  constexpr auto sign = static_cast<std::int32_t>(0x80000000u);
  return reinterpret_cast<Float>(reinterpret_cast<Mask>(x) | sign);
}
TENON_INLINE Float copy_sign(Float magnitude, Float sign) {
  return reinterpret_cast<Float>(reinterpret_cast<Mask>(magnitude) |
                                 reinterpret_cast<Mask>(with_bits(sign, 0x80000000u)));
}
/// The upper half of the significand, whose square is exact.
TENON_INLINE Float upper_half(Float x) { return with_bits(x, 0xFFFFF000u); }

/// Whether a comparison holds in every lane.
TENON_INLINE bool all(Mask mask) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) == 0xFFFF;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(reinterpret_cast<__m256>(mask)) == 0xFF;
#else
  for (int i = 0; i < Simd::lanes; ++i) {
    if (mask[i] == 0) return false;
  }
  return true;
#endif
}

/// Horner's scheme; coefficients from the highest power down.
template <class... Rest>
TENON_INLINE Float polynomial(Float x, float first, Rest... rest) {
  Float sum = set(first);
  ((sum = fma(sum, x, set(rest))), ...);
  return sum;
}

TENON_INLINE Float square_root(Float x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#else
  for (int i = 0; i < Simd::lanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

struct Product {
  Float high, low;  // their sum is exact
};
TENON_INLINE Product exact_product(Float a, Float b) {
  const Float high = a * b;
#if defined(__FMA__)
  return {high, fma(a, b, -high)};
#else
  // Veltkamp's splitting and Dekker's product.
  const Float a1 = upper_half(a), b1 = upper_half(b);
  const Float a2 = a - a1, b2 = b - b1;
  return {high, a2 * b2 - (((high - a1 * b1) - a2 * b1) - a1 * b2)};
#endif
}

/// x 2^n for a whole n in [-152, 129]. Where no instruction does it, in two factors,
/// as neither end of the range fits one.
TENON_INLINE Float times_power_of_two(Float x, Float n) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(x, n);
#else
  const Float magic = set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Float first = fma(n, set(0.5f), magic);
  const Float second = (n - (first - magic)) + magic;
  return x * Simd::power_of_two(first) * Simd::power_of_two(second);
#endif
}

/// 1 / x for x in [1, 8], to 1 ulp.
TENON_INLINE Float near_reciprocal(Float x) {
#if defined(__AVX512F__)
  const Float r = _mm512_rcp14_ps(x);
  return fma(r, fma(-x, r, set(1.0f)), r);  // a third of a division's time
#else
  return set(1.0f) / x;
#endif
}

/// a / b for b in [1, 8], to 2 ulp.
TENON_INLINE Float near_quotient(Float a, Float b) {
#if defined(__AVX512F__)
  return a * near_reciprocal(b);
#else
  return a / b;
#endif
}

/// e^(high + low) for |low| <= 0.05, to 2 ulp; infinity and subnormal numbers where they belong.
///
/// high = n ln 2 + r with |r| <= ln 2 / 2; ln 2 is split into a part of 10 bits, whose product with
/// n is exact, and a rest. e^r by its Taylor polynomial of degree 7, whose first term left out is
/// below 1.4e-8.
template <class... Low>
TENON_INLINE Float exponential(Float high, Low... low) {
  const Float x = Simd::min(set(89.0f), Simd::max(set(-105.0f), high));
  const Float magic = set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Float n = fma(x, set(1.44269504f), magic) - magic;
  Float r = fma(n, set(-0.693359375f), x);
  r = fma(n, set(2.12194440e-4f), r);
  ((r = r + low), ...);  // none: 0
  const Float p = polynomial(r, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f);
  return times_power_of_two(fma(r * r, p, r) + set(1.0f), n);
}

/// e^(-factor a^2), factor a power of two: the square is taken in two parts, since an error of it
/// is as many times larger in the result as its value says.
TENON_INLINE Float bell(Float a, float factor) {
  const Float a1 = upper_half(a);
  return exponential(a1 * a1 * set(-factor), (a - a1) * (a + a1) * set(-factor));
}

/// Natural logarithm to 2 ulp: x = 2^k m, m within [sqrt(1/2), sqrt(2)), and with f = m - 1
/// log m = f - f^2 / 2 + f^3 P(f).
TENON_INLINE Float logarithm(Float x) {
  const Mask subnormal = x < set(0x1p-126f);
  const Float scaled = subnormal ? x * set(0x1p23f) : x;
  const Mask bits = reinterpret_cast<Mask>(scaled);
  // Exponent of scaled / sqrt(1/2), rounded down.
  const Mask exponent = (bits - 0x3F3504F3) >> 23;
  const Float f = reinterpret_cast<Float>(bits - (exponent << 23)) - set(1.0f);
  const Float k = __builtin_convertvector(exponent, Float) - (subnormal ? set(23.0f) : set(0.0f));
  const Float square = f * f;
  const Float p =
      polynomial(f, 0.0676851574f, -0.117131034f, 0.118988882f, -0.124005438f, 0.142175435f,
                 -0.166681873f, 0.200022165f, -0.250000078f, 0.333333113f);
  Float low = fma(square * f, p, k * set(-2.12194440e-4f));
  low = fma(square, set(-0.5f), low);
  Float y = fma(k, set(0.693359375f), f + low);
  y = x == set(__builtin_inff()) ? x : y;
  y = x == set(0.0f) ? set(-__builtin_inff()) : y;
  return x >= set(0.0f) ? y : (x - x) / (x - x);
}

/// 2 ulp. Below 5/8 an odd polynomial, above it 1 - 2 / (e^2x + 1).
TENON_INLINE Float hyperbolic_tangent(Float x) {
  const Float a = absolute(x), square = a * a;
  const Float p = polynomial(square, -0.00570497837f, 0.0206390787f, -0.0537397122f, 0.133314422f,
                             -0.333332819f);
  const Float small = fma(a * square, p, a);
  const Float large = set(1.0f) - set(2.0f) / (exponential(a + a) + set(1.0f));
  return copy_sign(a < set(0.625f) ? small : large, x);
}

/// Phi(-a) e^(a^2 / 2) for a in [0, 16], Phi the normal distribution: t P(t), t = 1 / (1 + a / 4),
/// relative error 1e-8 before rounding.
TENON_INLINE Float mills_ratio(Float a) {
  const Float t = near_reciprocal(fma(a, set(0.25f), set(1.0f)));
  return t * polynomial(t, 0.0171772715f, -0.066119656f, 0.0596941178f, 0.0173834771f,
                        0.0222140617f, 0.0813669867f, 0.0739028391f, 0.0950895682f, 0.0995463488f,
                        0.0997449898f);
}

/// 3 ulp.
TENON_INLINE Float error_function(Float x) {
  const Float a = Simd::min(set(10.0f), absolute(x)), square = a * a;
  const Float small = a * polynomial(square, 7.88911955e-5f, -0.000802084128f, 0.00518953534f,
                                     -0.0268544446f, 0.112836002f, -0.376126271f, 1.12837917f);
  const Float large = set(1.0f) - set(2.0f) * bell(a, 1.0f) * mills_ratio(a * set(1.41421356f));
  return copy_sign(a < set(1.0f) ? small : large, x);
}

/// factor / (1 + e^-(high + low)), to 3 ulp and without overflow on either side.
TENON_INLINE Float times_sigmoid(Float factor, Float high, Float low) {
  const Mask negative = high < set(0.0f);
  const Float e = exponential(negative ? high : -high, negative ? low : -low);
  return (negative ? factor * e : factor) / (set(1.0f) + e);
}
/// The same for high = x and low = 0, to 4 ulp.
TENON_INLINE Float times_sigmoid(Float factor, Float x) {
  const Float e = exponential(negative_of(x));
  return near_quotient(x < set(0.0f) ? factor * e : factor, set(1.0f) + e);
}
TENON_INLINE Float sigmoid(Float x) { return times_sigmoid(set(1.0f), x); }
TENON_INLINE Float silu(Float x) { return times_sigmoid(x, x); }

/// x Phi(x), to 7 ulp: from the tail Phi(-|x|) on both sides, as 1 + erf(x) cancels on the left.
TENON_INLINE Float gelu(Float x) {
  const Float a = Simd::min(set(16.0f), absolute(x));
  const Float tail = bell(a, 0.5f) * mills_ratio(a);
  return x < set(0.0f) ? x * tail : x - a * tail;
}

/// Phi(x) + x phi(x), phi the density: to 2^-22, and on the left, where it nears 0, to 8 ulp below -1.
TENON_INLINE Float gelu_derivative(Float x) {
  const Float a = Simd::min(set(16.0f), absolute(x));
  const Float b = bell(a, 0.5f), tail = b * mills_ratio(a), slope = a * b * set(0.398942280f);
  return x < set(0.0f) ? tail - slope : set(1.0f) - tail + slope;
}

/// x Phi(x) to an absolute error of 2^-22 max(1, |x|), in a third of the time: Phi(x) = 1/2 + x
/// P(t) within 5.3 of 0, t = 2 (x / 5.3)^2 - 1, and Phi is 0 or 1 beyond.
TENON_INLINE Float fast_gelu(Float x) {
  const Float near = Simd::max(set(-5.3f), Simd::min(set(5.3f), x));
  const Float t = fma(near * near, set(0.0711997151f), set(-1.0f));
  const Float p =
      polynomial(t, -0.000652027666f, 0.00166835682f, -0.00143346947f, 0.00192512863f,
                 -0.00546293193f, 0.00960014481f, -0.0133962752f, 0.018674152f, -0.0252429917f,
                 0.0321183838f, -0.0395950712f, 0.0492619276f, -0.0665183142f, 0.133392587f);
  const Float y = x * fma(near, p, set(0.5f));
  return x < set(-5.3f) ? set(0.0f) : y;
}

/// x / (1 + e^-2u), which is x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3), to 4 ulp: 2u
/// is carried in two parts, like the square in bell().
TENON_INLINE Float gelu_tanh(Float x) {
  // 2 sqrt(2 / pi) and that times 0.044715, each as f32 and what that leaves out.
  constexpr double linear = 1.5957691216057308, cubic = 0.0713548162726002;
  constexpr auto a = static_cast<float>(linear), b = static_cast<float>(cubic);
  constexpr auto a_rest = static_cast<float>(linear - static_cast<double>(a));
  constexpr auto b_rest = static_cast<float>(cubic - static_cast<double>(b));
  const Float v = Simd::min(set(12.0f), Simd::max(set(-12.0f), x));
  const Product square = exact_product(v, v);
  const Product term = exact_product(square.high, set(b));
  const Float sum = term.high + set(a);
  // What the sum rounds away (Knuth).
  const Float part = sum - term.high;
  const Float lost = (term.high - (sum - part)) + (set(a) - part);
  const Float rest =
      lost + term.low + set(a_rest) + fma(square.low, set(b), square.high * set(b_rest));
  const Product argument = exact_product(v, sum);
  return times_sigmoid(x, argument.high, fma(v, rest, argument.low));
}

/// To the nearest whole number, halves to the even one: adding 2^23 leaves no room for a fraction.
TENON_INLINE Float round_to_even(Float x) {
  const Float magic = copy_sign(set(0x1p23f), x);
  const Float whole = copy_sign((x + magic) - magic, x);
  return absolute(x) < set(0x1p23f) ? whole : x;
}

TENON_INLINE Float round_down(Float x) {
  const Float near = round_to_even(x);
  return near > x ? near - set(1.0f) : near;
}

/// A NaN stays.
TENON_INLINE Float clamp(Float x, Float low, Float high) {
  return x < low ? low : x > high ? high : x;
}

TENON_INLINE Float hard_sigmoid(Float x) {
  return clamp(x + set(3.0f), set(0.0f), set(6.0f)) / set(6.0f);
}

/// 2^x to 1.2 ulp, exact for whole numbers: x = n + r, |r| <= 1/2, exactly, and 2^r by its Taylor
/// polynomial of degree 7, whose first term left out is below 5.3e-9.
TENON_INLINE Float exponential_of_two(Float x) {
  const Float v = Simd::min(set(129.0f), Simd::max(set(-151.0f), x));
  const Float magic = set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Float n = (v + magic) - magic, r = v - n;
  const Float p = polynomial(r, 1.52527338e-05f, 0.000154035304f, 0.00133335581f, 0.00961812911f,
                             0.0555041087f, 0.240226507f);
  const Float y = fma(r * r, p, r * set(0.693147182f)) + set(1.0f);
  return times_power_of_two(y, n);
}

/// e^x - 1 to 3 ulp: with x = n ln 2 + r it is 2^n ((e^r - 1) + (1 - 2^-n)).
TENON_INLINE Float exponential_minus_one(Float x) {
  const Float v = Simd::min(set(89.0f), Simd::max(set(-20.0f), x));
  const Float magic = set(12582912.0f);
  const Float n = fma(v, set(1.44269504f), magic) - magic;
  Float r = fma(n, set(-0.693359375f), v);
  r = fma(n, set(2.12194440e-4f), r);
  const Float p = polynomial(r, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f);
  const Float less = fma(r * r, p, r);
  const Float inverse = Simd::power_of_two(Simd::max(set(-126.0f), -n) + magic);
  const Float y = times_power_of_two(less + (set(1.0f) - inverse), n);
  return absolute(x) < set(1e-10f) ? x : y;
}

/// The base-2 logarithm to 3 ulp, exact for powers of two; the steps of logarithm().
TENON_INLINE Float logarithm_of_two(Float x) {
  const Mask subnormal = x < set(0x1p-126f);
  const Float scaled = subnormal ? x * set(0x1p23f) : x;
  const Mask bits = reinterpret_cast<Mask>(scaled);
  const Mask exponent = (bits - 0x3F3504F3) >> 23;
  const Float mantissa = reinterpret_cast<Float>(bits - (exponent << 23));
  const Float k = __builtin_convertvector(exponent, Float) - (subnormal ? set(23.0f) : set(0.0f));
  const Float y = fma(logarithm(mantissa), set(1.44269504f), k);
  const Float ends = x == set(0.0f)  ? set(-__builtin_inff())
                     : x < set(0.0f) ? (x - x) / (x - x)
                                     : x;
  return x > set(0.0f) && x < set(__builtin_inff()) ? y : ends;
}

/// log(1 + x) to 4 ulp: what 1 + x rounds away comes back as a first-order term.
TENON_INLINE Float logarithm_of_next(Float x) {
  const Float u = x + set(1.0f);
  const Float y = logarithm(u) + (x - (u - set(1.0f))) / u;
  return x > set(-1.0f) && x < set(__builtin_inff()) ? y : logarithm(u);
}

/// max(x, 0) + log(1 + e^-|x|).
TENON_INLINE Float softplus(Float x) {
  const Float tail = logarithm_of_next(exponential(-absolute(x)));
  return (x < set(0.0f) ? set(0.0f) : x) + tail;
}

/// e^x / 2 to 2 ulp: infinite above 89.4, where sinh and cosh overflow.
TENON_INLINE Float exponential_halved(Float x) {
  const Float v = Simd::min(set(90.0f), Simd::max(set(-105.0f), x));
  const Float magic = set(12582912.0f);
  const Float n = fma(v, set(1.44269504f), magic) - magic;
  Float r = fma(n, set(-0.693359375f), v);
  r = fma(n, set(2.12194440e-4f), r);
  const Float p = polynomial(r, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f);
  return times_power_of_two(fma(r * r, p, r) + set(1.0f), n - set(1.0f));
}

/// 3 ulp. Below 1 the Taylor polynomial of degree 9, whose next term is below 2.2e-8 of the result.
TENON_INLINE Float hyperbolic_sine(Float x) {
  const Float a = absolute(x), square = a * a;
  const Float p = polynomial(square, 1.0f / 362880, 1.0f / 5040, 1.0f / 120, 1.0f / 6);
  const Float small = fma(a * square, p, a);
  const Float half = exponential_halved(a);
  return copy_sign(a < set(1.0f) ? small : half - set(0.25f) / half, x);
}

/// 3 ulp.
TENON_INLINE Float hyperbolic_cosine(Float x) {
  const Float half = exponential_halved(absolute(x));
  return half + set(0.25f) / half;
}

/// 6 ulp: log(a + sqrt(a^2 + 1)) as log(1 + ..); for large a log(2a).
TENON_INLINE Float area_sine(Float x) {
  const Float a = absolute(x), near = Simd::min(set(0x1p60f), a), square = near * near;
  const Float inner = near + square / (set(1.0f) + square_root(square + set(1.0f)));
  const Float large = logarithm(a) + set(0.693147182f);
  return copy_sign(a < set(0x1p14f) ? logarithm_of_next(inner) : large, x);
}

/// 6 ulp: with t = x - 1, log(1 + t + sqrt(2t + t^2)).
TENON_INLINE Float area_cosine(Float x) {
  const Float t = Simd::min(set(0x1p60f), x - set(1.0f));
  const Float inner = t + square_root(fma(t, t, t + t));
  const Float large = logarithm(x) + set(0.693147182f);
  const Float y = x < set(0x1p14f) ? logarithm_of_next(inner) : large;
  return x >= set(1.0f) ? y : (x - x) / (x - x);
}

/// 6 ulp: log(1 + 2a / (1 - a)) / 2.
TENON_INLINE Float area_tangent(Float x) {
  const Float a = absolute(x);
  const Float y = set(0.5f) * logarithm_of_next((a + a) / (set(1.0f) - a));
  return copy_sign(a < set(1e-10f) ? a : a <= set(1.0f) ? y : (a - a) / (a - a), x);
}

/// 7 ulp.
TENON_INLINE Float complementary_error(Float x) {
  const Float a = Simd::min(set(11.0f), absolute(x));
  const Float tail = set(2.0f) * bell(a, 1.0f) * mills_ratio(a * set(1.41421356f));
  return x < set(0.0f) ? set(2.0f) - tail : tail;
}

/// 4 ulp. With w = -log(1 - x^2) it is x P(w), or x P(sqrt(w)) in the tails: the form of Giles,
/// Approximating the erfinv function (2010).
TENON_INLINE Float inverse_error(Float x) {
  const Float a = absolute(x), one = set(1.0f);
  const Float w = -logarithm((one - a) * (one + a)), v = w - set(2.5f);
  Float p = polynomial(v, -8.79094261e-9f, 2.32325153e-8f, 4.66169231e-7f, -3.46270336e-6f,
                       -4.96334191e-6f, 0.000218344435f, -0.00125274189f, -0.00417738678f,
                       0.246640286f, 1.50140936f);
  const Mask is_middle = w < set(5.0f);
  if (!all(is_middle)) {
    const Float u = square_root(w) - set(3.0f);
    const Float tail =
        polynomial(u, -0.00016543117f, 8.61108575e-5f, 0.0013002284f, -0.00366014049f,
                   0.0057617977f, -0.00762530353f, 0.00943562267f, 1.00167418f, 2.83297699f);
    p = is_middle ? p : a == one ? w : tail;
  }
  return x * p;
}

}  // namespace
}  // namespace tenon::cpu
