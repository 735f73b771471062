#pragma once

// Sines and their inverses, to 3 ulp. Included after math_body.hpp. The polynomials are those of
// Cephes' single-precision functions (Moshier, 1992).
#include "math_body.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

using Doubles = double __attribute__((vector_size(4 * Simd::lanes)));
using Longs = std::int64_t __attribute__((vector_size(4 * Simd::lanes)));
using FewFloats = float __attribute__((vector_size(2 * Simd::lanes)));
using FewWords = std::int32_t __attribute__((vector_size(2 * Simd::lanes)));

// Conversions, of which GCC 12 makes several instructions each.
TENON_INLINE Doubles widened(FewFloats x) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(x);
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(x);
#else
  return __builtin_convertvector(x, Doubles);
#endif
}
TENON_INLINE FewFloats narrowed(Doubles x) {
#if defined(__AVX512F__)
  return _mm512_cvtpd_ps(x);
#elif defined(__AVX2__)
  return _mm256_cvtpd_ps(x);
#else
  return __builtin_convertvector(x, FewFloats);
#endif
}

TENON_INLINE Doubles square_root(Doubles x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_pd(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(x);
#else
  for (int i = 0; i < Simd::lanes / 2; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
#endif
}

/// Whether a lane of a comparison is true.
TENON_INLINE bool is_any(Longs mask) {
#if defined(__AVX512F__)
  return _mm512_movepi64_mask(reinterpret_cast<__m512i>(mask)) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_pd(reinterpret_cast<__m256d>(mask)) != 0;
#else
  for (int i = 0; i < Simd::lanes / 2; ++i) {
    if (mask[i] != 0) return true;
  }
  return false;
#endif
}

/// x = quarter pi / 2 + rest, |rest| <= pi / 4; of `quarter` the lowest two bits count.
struct Angle {
  Float rest;
  Mask quarter;
};

/// For |x| <= 2^20, where f64 leaves rest relatively exact: no f32 in that range comes closer to a
/// multiple of pi / 2 than 1e-9.
TENON_INLINE Angle reduce_angle(Float x) {
  constexpr int half = Simd::lanes / 2;
  float in[Simd::lanes], rest[Simd::lanes];
  std::int32_t quarter[Simd::lanes];
  Simd::store_float(in, x);
  for (int part = 0; part < 2; ++part) {
    FewFloats few;
    __builtin_memcpy(&few, in + part * half, sizeof few);
    const Doubles wide = widened(few);
    const Doubles magic = Doubles{} + 0x1.8p52;
    const Doubles n = (wide * 0.63661977236758134308 + magic) - magic;
    const Doubles r = (wide - n * 0x1.921fb54400000p+0) - n * 0x1.0b4611a626331p-34;
    const FewFloats narrow = narrowed(r);
    const FewWords whole = __builtin_convertvector(n, FewWords);
    __builtin_memcpy(rest + part * half, &narrow, sizeof narrow);
    __builtin_memcpy(quarter + part * half, &whole, sizeof whole);
  }
  Angle angle;
  angle.rest = Simd::load_float(rest);
  __builtin_memcpy(&angle.quarter, quarter, sizeof quarter);
  return angle;
}

#if defined(__FMA__)
/// For |x| <= small_angle, in f32: pi / 2 is split into three parts. x - n high is exact, as both
/// are multiples of 2^-24 and their difference is below 1; the other two steps round once each.
constexpr float small_angle = 0x1p13f;
TENON_INLINE Angle reduce_small_angle(Float x) {
  const Float magic = set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Float shifted = fma(x, set(0.636619772f), magic);
  const Float n = shifted - magic;
  Float rest = fma(n, set(-0x1.921fb6p+0f), x);
  rest = fma(n, set(0x1.777a5cp-25f), rest);
  rest = fma(n, set(0x1.ee59dap-50f), rest);
  return {rest, reinterpret_cast<Mask>(shifted)};
}
#endif

/// Lanes beyond the range of reduce_angle by the C library, each on its own.
template <class Function>
TENON_INLINE Float far_lanes(Float x, Float y, Function f) {
  if (all(absolute(x) <= set(0x1p20f))) [[likely]]
    return y;
  float in[Simd::lanes], out[Simd::lanes];
  Simd::store_float(in, x);
  Simd::store_float(out, y);
  for (int i = 0; i < Simd::lanes; ++i) {
    if (!(__builtin_fabsf(in[i]) <= 0x1p20f)) {
      out[i] = static_cast<float>(f(static_cast<double>(in[i])));
    }
  }
  return Simd::load_float(out);
}
/// What reduce_angle is given: far lanes hold 0.
TENON_INLINE Float near_lanes(Float x) { return absolute(x) <= set(0x1p20f) ? x : set(0.0f); }

TENON_INLINE Float sine_polynomial(Float r) {
  const Float square = r * r;
  return fma(r * square, polynomial(square, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f),
             r);
}
TENON_INLINE Float cosine_polynomial(Float r) {
  const Float square = r * r;
  const Float tail =
      polynomial(square, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f);
  return fma(square * square, tail, fma(square, set(-0.5f), set(1.0f)));
}

/// The sine of rest + (quarter + turns) pi / 2.
TENON_INLINE Float sine_of(const Angle& angle, int turns) {
  const Mask quarter = angle.quarter + turns;
  const Float y = (quarter & 1) != 0 ? cosine_polynomial(angle.rest) : sine_polynomial(angle.rest);
  return (quarter & 2) != 0 ? -y : y;
}

/// of(angle) where x is in range, far(x) elsewhere. What a lane gives depends on that lane alone.
template <class OfAngle, class Far>
TENON_INLINE Float of_angle(Float x, OfAngle of, Far far) {
#if defined(__FMA__)
  const Mask is_small = absolute(x) <= set(small_angle);
  const Float small = of(reduce_small_angle(x));
  if (all(is_small)) [[likely]]
    return small;
  const Float large = far_lanes(x, of(reduce_angle(near_lanes(x))), far);
  return is_small ? small : large;
#else
  return far_lanes(x, of(reduce_angle(near_lanes(x))), far);
#endif
}

TENON_INLINE Float sine(Float x) {
  return of_angle(
      x, [](const Angle& angle) { return sine_of(angle, 0); },
      [](double v) { return __builtin_sin(v); });
}
TENON_INLINE Float cosine(Float x) {
  return of_angle(
      x, [](const Angle& angle) { return sine_of(angle, 1); },
      [](double v) { return __builtin_cos(v); });
}
TENON_INLINE Float tangent(Float x) {
  return of_angle(
      x, [](const Angle& angle) { return sine_of(angle, 0) / sine_of(angle, 1); },
      [](double v) { return __builtin_tan(v); });
}

TENON_INLINE Float arc_tangent(Float x) {
  const Float a = absolute(x);
  const Mask large = a > set(2.414213562f), middle = a > set(0.4142135624f);
  const Float start = large ? set(1.57079633f) : middle ? set(0.785398163f) : set(0.0f);
  const Float v = large ? set(-1.0f) / a : middle ? (a - set(1.0f)) / (a + set(1.0f)) : a;
  const Float square = v * v;
  const Float p = polynomial(square, 8.05374449538e-2f, -1.38776856032e-1f, 1.99777106478e-1f,
                             -3.33329491539e-1f);
  return copy_sign(start + fma(v * square, p, v), x);
}

/// asin(v) for |v| <= 1/2.
TENON_INLINE Float small_arc_sine(Float v) {
  const Float square = v * v;
  const Float p = polynomial(square, 4.2163199048e-2f, 2.4181311049e-2f, 4.5470025998e-2f,
                             7.4953002686e-2f, 1.6666752422e-1f);
  return fma(v * square, p, v);
}
/// sqrt((1 - a) / 2): asin(a) = pi / 2 - 2 asin of it.
TENON_INLINE Float half_chord(Float a) { return square_root((set(1.0f) - a) * set(0.5f)); }
TENON_INLINE Float arc_sine(Float x) {
  const Float a = absolute(x);
  const Float large = set(1.57079633f) - set(2.0f) * small_arc_sine(half_chord(a));
  return a > set(0.5f) ? copy_sign(large, x) : small_arc_sine(x);
}
TENON_INLINE Float arc_cosine(Float x) {
  const Float a = absolute(x);
  const Float angle = set(2.0f) * small_arc_sine(half_chord(a));
  const Float large = x < set(0.0f) ? set(3.14159265f) - angle : angle;
  return a > set(0.5f) ? large : set(1.57079633f) - small_arc_sine(x);
}

}  // namespace
}  // namespace tenon::cpu
