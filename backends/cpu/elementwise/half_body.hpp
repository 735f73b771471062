#pragma once

// Functions of f16: widened, computed to about 2^-14 in f32, and rounded, a vector at a time.
// Included after a simd_*.hpp, by the sources of one instruction set each.
//
// Arguments beyond those whose result f16 can tell from its limit are cut off; the products that
// are then 0 times the argument give NaN for an infinite one, as f32's functions do. The
// polynomials are least-maximum fits (Lawson's iteration) of this project's own.
#include "half_unary.hpp"
#include "math_body.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// e^x within 2^-18 of it for x in [-30, 30], which f16's exponential does not leave: 2^n times a
/// polynomial of degree 4.
TENON_INLINE Float half_exponential(Float x) {
  const Float near = Simd::max(set(-30.0f), Simd::min(set(30.0f), x));
  const Float magic = set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Float n = fma(near, set(1.44269504f), magic);
  const Float f = fma(near, set(1.44269504f), magic - n);
  const Float p =
      polynomial(f, 0.0095701002f, 0.0559178605f, 0.240247449f, 0.693121807f, 0.999999264f);
  return p * Simd::power_of_two(n);
}

/// 1 / x within 2^-14.
TENON_INLINE Float half_reciprocal(Float x) {
#if defined(__AVX512F__)
  return _mm512_rcp14_ps(x);
#else
  const Float r = _mm256_rcp_ps(x);  // within 1.5 2^-12
  return r * fma(-x, r, set(2.0f));
#endif
}

TENON_INLINE Float half_sigmoid(Float x) {
  return half_reciprocal(half_exponential(-x) + set(1.0f));
}

/// x / (1 + e^-u).
TENON_INLINE Float half_gate(Float x, Float u) {
  return x * (u < set(-30.0f) ? set(0.0f) : half_sigmoid(u));
}

/// Below 0.6 an odd polynomial, above it 1 - 2 / (e^2x + 1).
TENON_INLINE Float half_tanh(Float x) {
  const Float a = absolute(x), square = a * a;
  const Float small =
      a * fma(square, polynomial(square, -0.0438464f, 0.132028133f, -0.333307445f), set(1.0f));
  const Float large = fma(set(-2.0f), half_sigmoid(set(-2.0f) * a), set(1.0f));
  return copy_sign(a < set(0.6f) ? small : large, x);
}

TENON_INLINE void store_f16(std::uint16_t* y, Float v) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm512_cvtps_ph(v, nearest));
#else
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_cvtps_ph(v, nearest));
#endif
}

/// The rest of an array goes through the same instructions, filled up with zeros.
template <class F>
TENON_INLINE void map_halves(F f, const std::uint16_t* x, std::uint16_t* y, std::int64_t count) {
  constexpr std::int64_t lanes = Simd::lanes;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store_f16(y + i, f(Simd::load_f16(x + i)));
  if (i == count) return;
  std::uint16_t rest[lanes] = {};
  const std::size_t bytes = static_cast<std::size_t>(count - i) * sizeof(std::uint16_t);
  __builtin_memcpy(rest, x + i, bytes);
  store_f16(rest, f(Simd::load_f16(rest)));
  __builtin_memcpy(y + i, rest, bytes);
}

void run_half_exp(const std::uint16_t* x, std::uint16_t* y, std::int64_t count) noexcept {
  map_halves([](Float v) { return half_exponential(v); }, x, y, count);
}
void run_half_tanh(const std::uint16_t* x, std::uint16_t* y, std::int64_t count) noexcept {
  map_halves([](Float v) { return half_tanh(v); }, x, y, count);
}
void run_half_sigmoid(const std::uint16_t* x, std::uint16_t* y, std::int64_t count) noexcept {
  map_halves([](Float v) { return half_sigmoid(v); }, x, y, count);
}
void run_half_silu(const std::uint16_t* x, std::uint16_t* y, std::int64_t count) noexcept {
  map_halves([](Float v) { return half_gate(v, v); }, x, y, count);
}

constexpr HalfUnaryKernels half_unary_kernels{run_half_exp, run_half_tanh, run_half_sigmoid,
                                              run_half_silu};

}  // namespace
}  // namespace tenon::cpu
