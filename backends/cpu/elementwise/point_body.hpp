#pragma once

// Element by element. Included after a header of simd/, by the sources of one instruction set each.
//
// Whole vectors and the rest of an array, padded with zeros, go through the same instructions: an
// element's bits do not depend on its position in an array.
#include "elementwise.hpp"
#include "math_body.hpp"
#include "pair_body.hpp"
#include "trigonometry_body.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

constexpr std::int64_t lanes = Simd::lanes;

TENON_INLINE Float load(const float* x, std::int64_t count) {
  if (count >= lanes) return Simd::load_float(x);
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), x);
#elif defined(__AVX2__)
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i few = _mm256_set1_epi32(static_cast<int>(count));
  return _mm256_maskload_ps(x, _mm256_cmpgt_epi32(few, numbers));
#else
  float pad[lanes] = {};
  __builtin_memcpy(pad, x, static_cast<std::size_t>(count) * sizeof(float));
  return Simd::load_float(pad);
#endif
}
TENON_INLINE void store(float* y, Float v, std::int64_t count) {
  if (count >= lanes) return Simd::store_float(y, v);
  float pad[lanes];
  Simd::store_float(pad, v);
  __builtin_memcpy(y, pad, static_cast<std::size_t>(count) * sizeof(float));
}

/// An input of map(): an array, or one number for every element.
struct Array {
  const float* x;
  TENON_INLINE Float at(std::int64_t i, std::int64_t count) const { return load(x + i, count); }
};
struct Constant {
  Float value;
  TENON_INLINE Float at(std::int64_t, std::int64_t) const { return value; }
};

/// y = f(inputs...); y may be one of the inputs.
template <class F, class... Inputs>
TENON_INLINE void map(F f, float* y, std::int64_t count, Inputs... inputs) {
  for (std::int64_t i = 0; i < count; i += lanes) {
    store(y + i, f(inputs.at(i, count - i)...), count - i);
  }
}

/// Calls use(f) with the vector function of an op.
template <class Use>
TENON_INLINE void with_function(Unary op, UnaryParameters parameters, Use use) {
  const Float p = set(parameters.p), q = set(parameters.q);
  switch (op) {
    case Unary::neg:
      return use([](Float x) { return -x; });
    case Unary::abs:
      return use([](Float x) { return absolute(x); });
    case Unary::square:
      return use([](Float x) { return x * x; });
    case Unary::sqrt:
      return use([](Float x) { return square_root(x); });
    case Unary::rsqrt:
      return use([](Float x) { return set(1.0f) / square_root(x); });
    case Unary::reciprocal:
      return use([](Float x) { return set(1.0f) / x; });
    case Unary::exp:
      return use([](Float x) { return exponential(x); });
    case Unary::log:
      return use([](Float x) { return logarithm(x); });
    case Unary::tanh:
      return use([](Float x) { return hyperbolic_tangent(x); });
    case Unary::erf:
      return use([](Float x) { return error_function(x); });
    case Unary::sigmoid:
      return use([](Float x) { return sigmoid(x); });
    case Unary::relu:
      return use([](Float x) { return x <= set(0.0f) ? set(0.0f) : x; });
    case Unary::silu:
      return use([](Float x) { return silu(x); });
    case Unary::gelu:
      return use([](Float x) { return gelu(x); });
    case Unary::gelu_derivative:
      return use([](Float x) { return gelu_derivative(x); });
    case Unary::gelu_tanh:
      return use([](Float x) { return gelu_tanh(x); });
    case Unary::sign:
      return use([](Float x) {
        return x > set(0.0f) ? set(1.0f) : x < set(0.0f) ? set(-1.0f) : x;
      });
    case Unary::floor:
      return use([](Float x) { return round_down(x); });
    case Unary::ceil:
      return use([](Float x) { return -round_down(-x); });
    case Unary::trunc:
      return use([](Float x) { return copy_sign(round_down(absolute(x)), x); });
    case Unary::round:
      return use([](Float x) { return round_to_even(x); });
    case Unary::exp2:
      return use([](Float x) { return exponential_of_two(x); });
    case Unary::expm1:
      return use([](Float x) { return exponential_minus_one(x); });
    case Unary::log2:
      return use([](Float x) { return logarithm_of_two(x); });
    case Unary::log1p:
      return use([](Float x) { return logarithm_of_next(x); });
    case Unary::sin:
      return use([](Float x) { return sine(x); });
    case Unary::cos:
      return use([](Float x) { return cosine(x); });
    case Unary::tan:
      return use([](Float x) { return tangent(x); });
    case Unary::asin:
      return use([](Float x) { return arc_sine(x); });
    case Unary::acos:
      return use([](Float x) { return arc_cosine(x); });
    case Unary::atan:
      return use([](Float x) { return arc_tangent(x); });
    case Unary::sinh:
      return use([](Float x) { return hyperbolic_sine(x); });
    case Unary::cosh:
      return use([](Float x) { return hyperbolic_cosine(x); });
    case Unary::asinh:
      return use([](Float x) { return area_sine(x); });
    case Unary::acosh:
      return use([](Float x) { return area_cosine(x); });
    case Unary::atanh:
      return use([](Float x) { return area_tangent(x); });
    case Unary::erfc:
      return use([](Float x) { return complementary_error(x); });
    case Unary::erfinv:
      return use([](Float x) { return inverse_error(x); });
    case Unary::relu6:
      return use([](Float x) { return clamp(x, set(0.0f), set(6.0f)); });
    case Unary::softplus:
      return use([](Float x) { return softplus(x); });
    case Unary::mish:
      return use([](Float x) { return x * hyperbolic_tangent(softplus(x)); });
    case Unary::hardsigmoid:
      return use([](Float x) { return hard_sigmoid(x); });
    case Unary::hardswish:
      return use([](Float x) { return x * hard_sigmoid(x); });
    case Unary::leaky_relu:
      return use([p](Float x) { return x < set(0.0f) ? x * p : x; });
    case Unary::elu:
      return use([p](Float x) { return x < set(0.0f) ? exponential_minus_one(x) * p : x; });
    case Unary::clamp:
      return use([p, q](Float x) { return clamp(x, p, q); });
    case Unary::fast_gelu:
      return use([](Float x) { return fast_gelu(x); });
  }
}

void run_unary(Unary op, const float* x, float* y, std::int64_t count,
               UnaryParameters parameters) noexcept {
  with_function(op, parameters, [=](auto f) { map(f, y, count, Array{x}); });
}

void run_unary_rows(Unary op, float* y, std::int64_t stride, std::int64_t rows,
                    std::int64_t columns, UnaryParameters parameters) noexcept {
  with_function(op, parameters, [=](auto f) {
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = y + r * stride;
      map(f, row, columns, Array{row});
    }
  });
}

void run_gated(Unary op, const float* gate, const float* up, float* y,
               std::int64_t count) noexcept {
  with_function(op, {}, [=](auto f) {
    map([f](Float g, Float u) { return f(g) * u; }, y, count, Array{gate}, Array{up});
  });
}

template <class F>
TENON_INLINE void map_pairs(F f, const float* a, std::int64_t a_step, const float* b,
                            std::int64_t b_step, float* y, std::int64_t count) {
  if (count <= 0) return;
  if (a_step != 0 && b_step != 0) return map(f, y, count, Array{a}, Array{b});
  if (a_step != 0) return map(f, y, count, Array{a}, Constant{set(*b)});
  if (b_step != 0) return map(f, y, count, Constant{set(*a)}, Array{b});
  map(f, y, count, Constant{set(*a)}, Constant{set(*b)});
}

/// As maximum and minimum: a where it is the greater (smaller) or NaN, else b.
TENON_INLINE Float greater(Float a, Float b) { return ((a > b) | (a != a)) ? a : b; }
TENON_INLINE Float smaller(Float a, Float b) { return ((a < b) | (a != a)) ? a : b; }

void run_binary(Binary op, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step,
                float* y, std::int64_t count) noexcept {
  const auto run = [=](auto f) { map_pairs(f, a, a_step, b, b_step, y, count); };
  switch (op) {
    case Binary::add:
      return run([](Float p, Float q) { return p + q; });
    case Binary::sub:
      return run([](Float p, Float q) { return p - q; });
    case Binary::mul:
      return run([](Float p, Float q) { return p * q; });
    case Binary::div:
      return run([](Float p, Float q) { return p / q; });
    case Binary::minimum:
      return run([](Float p, Float q) { return smaller(p, q); });
    case Binary::maximum:
      return run([](Float p, Float q) { return greater(p, q); });
    case Binary::pow:
      return run([](Float p, Float q) { return power(p, q); });
    case Binary::remainder:
      return run([](Float p, Float q) { return floored_modulus(p, q); });
    case Binary::fmod:
      return run([](Float p, Float q) { return truncated_modulus(p, q); });
    case Binary::atan2:
      return run([](Float p, Float q) { return arc_tangent_of(p, q); });
    case Binary::hypot:
      return run([](Float p, Float q) { return hypotenuse(p, q); });
  }
}

}  // namespace
}  // namespace tenon::cpu
