#pragma once

// Functions of f16: widened, computed to about 2^-14 in f32, and rounded, a vector at a time.
// Included after a header of simd/, by the sources of one instruction set each.
//
// Arguments beyond those whose result f16 can tell from its limit are cut off; the products that
// are then 0 times the argument give NaN for an infinite one, as f32's functions do. The
// polynomials are least-maximum fits (Lawson's iteration) of this project's own.
#include "half_segments.hpp"
#include "half_unary.hpp"
#include "math_body.hpp"
#include "store_half_body.hpp"

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

#if defined(__AVX512F__)
/// A table of half_segments.hpp in registers: looking up 16 coefficients is one instruction.
template <std::size_t powers>
class SegmentTable {
 public:
  explicit SegmentTable(const Segments<powers>& table) : scale_(set(table.scale)) {
    for (std::size_t i = 0; i < powers; ++i) {
      low_[i] = Simd::load_float(table.by_power[i]);
      high_[i] = Simd::load_float(table.by_power[i] + Simd::lanes);
    }
  }

  /// At a >= 0 within the last segment.
  TENON_INLINE Float at(Float a) const {
    const Float magic = set(12582912.0f);  // as above; the low bits are the segment
    const Float n = fma(a, scale_, magic);
    const Float t = fma(a, scale_, magic - n);
    Float value = look_up(powers - 1, n);
    for (std::size_t i = powers - 1; i-- > 0;) value = fma(value, t, look_up(i, n));
    return value;
  }
  /// x times the function that is at(-x) below 0 and 1 - at(x) above; at the last segment it is 0.
  TENON_INLINE Float gate(Float x) const {
    const Float tail = at(Simd::min(set(31.0f) / scale_, absolute(x)));
    return x * (x < set(0.0f) ? tail : set(1.0f) - tail);
  }

 private:
  TENON_INLINE Float look_up(std::size_t power, Float n) const {
    return _mm512_permutex2var_ps(low_[power], _mm512_castps_si512(n), high_[power]);
  }

  Float scale_;
  Float low_[powers], high_[powers];
};

/// f(x) for every number, f made once.
auto half_tanh() {
  return [slope = SegmentTable(tanh_slope)](Float x) {
    const Float near = Simd::max(set(-4.6f), Simd::min(set(4.6f), x));
    return near * slope.at(absolute(near));
  };
}
auto half_gelu() {
  return [tail = SegmentTable(normal_tail)](Float x) { return tail.gate(x); };
}
auto half_gelu_tanh() {
  return [tail = SegmentTable(gelu_tanh_tail)](Float x) { return tail.gate(x); };
}
#else
/// Below 0.6 an odd polynomial, above it 1 - 2 / (e^2x + 1).
auto half_tanh() {
  return [](Float x) {
    const Float a = absolute(x), square = a * a;
    const Float small =
        a * fma(square, polynomial(square, -0.0438464f, 0.132028133f, -0.333307445f), set(1.0f));
    const Float large = fma(set(-2.0f), half_sigmoid(set(-2.0f) * a), set(1.0f));
    return copy_sign(a < set(0.6f) ? small : large, x);
  };
}
/// x Phi(x), where Phi(x) = 1 / (1 + e^-u) with u an odd function, and the result 0 below -5.9.
auto half_gelu() {
  return [](Float x) {
    const Float near = Simd::max(set(-5.9f), Simd::min(set(5.9f), x));
    const Float u = near * polynomial(near * near, 1.74996073e-9f, -1.56393469e-7f, 5.47497757e-6f,
                                      -8.46515977e-5f, -1.95774381e-4f, 0.0729434714f, 1.59560287f);
    return half_gate(x, x < set(-5.9f) ? set(-31.0f) : u);
  };
}
auto half_gelu_tanh() {
  return [](Float x) {
    const Float near = Simd::max(set(-9.0f), Simd::min(set(9.0f), x));
    return half_gate(x, near * fma(near * near, set(0.0713548163f), set(1.59576912f)));
  };
}
#endif

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
  map_halves(half_tanh(), x, y, count);
}
void run_half_sigmoid(const std::uint16_t* x, std::uint16_t* y, std::int64_t count) noexcept {
  map_halves([](Float v) { return half_sigmoid(v); }, x, y, count);
}
void run_half_silu(const std::uint16_t* x, std::uint16_t* y, std::int64_t count) noexcept {
  map_halves([](Float v) { return half_gate(v, v); }, x, y, count);
}

void run_half_gelu(const std::uint16_t* x, std::uint16_t* y, std::int64_t count) noexcept {
  map_halves(half_gelu(), x, y, count);
}
void run_half_gelu_tanh(const std::uint16_t* x, std::uint16_t* y, std::int64_t count) noexcept {
  map_halves(half_gelu_tanh(), x, y, count);
}

constexpr HalfUnaryKernels half_unary_kernels{run_half_exp,  run_half_tanh, run_half_sigmoid,
                                              run_half_silu, run_half_gelu, run_half_gelu_tanh};

}  // namespace
}  // namespace tenon::cpu
