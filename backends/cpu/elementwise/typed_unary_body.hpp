#pragma once

// Functions of whole numbers and of f64. Included after a header of simd/, by the sources of one instruction set each.
#include "independent.hpp"
#include "math_f64_body.hpp"
#include "typed_unary.hpp"

#include <cstdint>
#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

template <class T, class F>
[[gnu::always_inline]] inline void map_each(const void* x, void* y, std::int64_t count, F f) {
  const auto* from = static_cast<const T*>(x);
  auto* to = static_cast<T*>(y);
  TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) to[i] = f(from[i]);
}

template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
void run_neg(const void* x, void* y, std::int64_t count, const Limits&) noexcept {
  using U = Wrapping<T>;
  map_each<T>(x, y, count, [](T v) { return static_cast<T>(U{0} - static_cast<U>(v)); });
}
template <class T>
void run_abs(const void* x, void* y, std::int64_t count, const Limits&) noexcept {
  using U = Wrapping<T>;
  map_each<T>(x, y, count,
              [](T v) { return v < 0 ? static_cast<T>(U{0} - static_cast<U>(v)) : v; });
}
template <class T>
void run_sign(const void* x, void* y, std::int64_t count, const Limits&) noexcept {
  map_each<T>(x, y, count, [](T v) { return static_cast<T>((v > 0) - (v < 0)); });
}
template <class T>
void run_square(const void* x, void* y, std::int64_t count, const Limits&) noexcept {
  using U = Wrapping<T>;
  map_each<T>(x, y, count,
              [](T v) { return static_cast<T>(static_cast<U>(v) * static_cast<U>(v)); });
}
template <class T>
void run_relu(const void* x, void* y, std::int64_t count, const Limits&) noexcept {
  map_each<T>(x, y, count, [](T v) { return v < 0 ? T{0} : v; });
}
/// Of limits beyond T those of T.
template <class T>
void run_clamp(const void* x, void* y, std::int64_t count, const Limits& limits) noexcept {
  const std::int64_t least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  const auto low = static_cast<T>(limits.whole_low < least ? least : limits.whole_low);
  const auto high = static_cast<T>(limits.whole_high > most ? most : limits.whole_high);
  map_each<T>(x, y, count, [=](T v) {
    v = v < low ? low : v;
    return v > high ? high : v;
  });
}

template <class T>
TypedUnary find_whole_unary(Unary op) noexcept {
  switch (op) {
    case Unary::neg:
      return run_neg<T>;
    case Unary::abs:
      return run_abs<T>;
    case Unary::sign:
      return run_sign<T>;
    case Unary::square:
      return run_square<T>;
    case Unary::relu:
      return run_relu<T>;
    case Unary::clamp:
      return run_clamp<T>;
    default:
      return nullptr;
  }
}

/// y = f(x, limits), a vector at a time; the rest of an array through the same instructions, filled up with zeros.
template <class F>
void map_f64(const void* x, void* y, std::int64_t count, const Limits& limits) noexcept {
  constexpr std::int64_t lanes = Simd::lanes / 2;
  const auto* from = static_cast<const double*>(x);
  auto* to = static_cast<double*>(y);
  const F f;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Doubles v;
    __builtin_memcpy(&v, from + i, sizeof v);
    v = f(v, limits);
    __builtin_memcpy(to + i, &v, sizeof v);
  }
  if (i == count) return;
  Doubles v{};
  const std::size_t rest = static_cast<std::size_t>(count - i) * sizeof(double);
  __builtin_memcpy(&v, from + i, rest);
  v = f(v, limits);
  __builtin_memcpy(to + i, &v, rest);
}

TENON_INLINE Doubles within(Doubles x, double low, double high) {
  x = x < low ? Doubles{} + low : x;
  return x > high ? Doubles{} + high : x;
}

#define TENON_F64(Name, ...)                                                                  \
  struct Name {                                                                               \
    TENON_INLINE Doubles operator()(Doubles x, [[maybe_unused]] const Limits& limits) const { \
      return __VA_ARGS__;                                                                     \
    }                                                                                         \
  }
TENON_F64(NegF64, -x);
TENON_F64(AbsF64, absolute_f64(x));
TENON_F64(SignF64, x > 0.0 ? Doubles{} + 1.0 : x < 0.0 ? Doubles{} - 1.0 : x);
TENON_F64(SquareF64, x* x);
TENON_F64(ReluF64, x < 0.0 ? Doubles{} : x);
TENON_F64(ClampF64, within(x, limits.low, limits.high));
TENON_F64(SqrtF64, square_root(x));
TENON_F64(RsqrtF64, 1.0 / square_root(x));
TENON_F64(ReciprocalF64, 1.0 / x);
TENON_F64(FloorF64, rounded_f64<1>(x));
TENON_F64(CeilF64, rounded_f64<2>(x));
TENON_F64(TruncF64, rounded_f64<3>(x));
TENON_F64(RoundF64, rounded_f64<0>(x));
TENON_F64(Relu6F64, within(x, 0, 6));
TENON_F64(HardsigmoidF64, within(x + 3.0, 0, 6) / 6.0);
TENON_F64(HardswishF64, x*(within(x + 3.0, 0, 6) / 6.0));
TENON_F64(LeakyReluF64, x < 0.0 ? limits.low * x : x);
TENON_F64(EluF64, x < 0.0 ? limits.low * expm1_f64(x) : x);
TENON_F64(ExpF64, exponential_f64(x));
TENON_F64(Exp2F64, exp2_f64(x));
TENON_F64(Expm1F64, expm1_f64(x));
TENON_F64(LogF64, log_f64(x));
TENON_F64(Log2F64, log2_f64(x));
TENON_F64(Log1pF64, log1p_f64(x));
TENON_F64(TanF64, tan_f64(x));
TENON_F64(ErfinvF64, erfinv_f64(x));
TENON_F64(SinF64, sine_f64<0>(x));
TENON_F64(CosF64, sine_f64<1>(x));
TENON_F64(TanhF64, tanh_f64(x));
TENON_F64(ErfF64, erf_f64(x));
TENON_F64(ErfcF64, erfc_f64(x));
TENON_F64(SinhF64, sinh_f64(x));
TENON_F64(CoshF64, cosh_f64(x));
TENON_F64(AtanhF64, atanh_f64(x));
TENON_F64(AtanF64, atan_f64(x));
TENON_F64(AsinF64, asin_f64(x, square_root((1.0 - x) * (1.0 + x))));
TENON_F64(AcosF64, acos_f64(square_root((1.0 - x) / (1.0 + x))));
TENON_F64(SigmoidF64, sigmoid_f64(x));
TENON_F64(SiluF64, x* sigmoid_f64(x));
TENON_F64(SoftplusF64, softplus_f64(x));
TENON_F64(MishF64, mish_f64(x));
TENON_F64(GeluF64, gelu_f64(x));
TENON_F64(GeluTanhF64, gelu_tanh_f64(x));
#undef TENON_F64

TypedUnary find_f64_unary(Unary op) noexcept {
  switch (op) {
#define TENON_CASE(id, Name) \
  case Unary::id:            \
    return map_f64<Name>;
    TENON_CASE(neg, NegF64)
    TENON_CASE(abs, AbsF64)
    TENON_CASE(sign, SignF64)
    TENON_CASE(square, SquareF64)
    TENON_CASE(relu, ReluF64)
    TENON_CASE(clamp, ClampF64)
    TENON_CASE(sqrt, SqrtF64)
    TENON_CASE(rsqrt, RsqrtF64)
    TENON_CASE(reciprocal, ReciprocalF64)
    TENON_CASE(floor, FloorF64)
    TENON_CASE(ceil, CeilF64)
    TENON_CASE(trunc, TruncF64)
    TENON_CASE(round, RoundF64)
    TENON_CASE(relu6, Relu6F64)
    TENON_CASE(hardsigmoid, HardsigmoidF64)
    TENON_CASE(hardswish, HardswishF64)
    TENON_CASE(leaky_relu, LeakyReluF64)
    TENON_CASE(elu, EluF64)
    TENON_CASE(exp, ExpF64)
    TENON_CASE(exp2, Exp2F64)
    TENON_CASE(expm1, Expm1F64)
    TENON_CASE(log, LogF64)
    TENON_CASE(log2, Log2F64)
    TENON_CASE(log1p, Log1pF64)
    TENON_CASE(tan, TanF64)
    TENON_CASE(erfinv, ErfinvF64)
    TENON_CASE(sin, SinF64)
    TENON_CASE(cos, CosF64)
    TENON_CASE(tanh, TanhF64)
    TENON_CASE(erf, ErfF64)
    TENON_CASE(erfc, ErfcF64)
    TENON_CASE(sinh, SinhF64)
    TENON_CASE(cosh, CoshF64)
    TENON_CASE(atanh, AtanhF64)
    TENON_CASE(atan, AtanF64)
    TENON_CASE(asin, AsinF64)
    TENON_CASE(acos, AcosF64)
    TENON_CASE(sigmoid, SigmoidF64)
    TENON_CASE(silu, SiluF64)
    TENON_CASE(softplus, SoftplusF64)
    TENON_CASE(mish, MishF64)
    TENON_CASE(gelu, GeluF64)
    TENON_CASE(gelu_tanh, GeluTanhF64)
#undef TENON_CASE
    default:
      return nullptr;
  }
}

TypedUnary find_typed_unary(Compute type, Unary op) noexcept {
  switch (type) {
    case Compute::i32:
      return find_whole_unary<std::int32_t>(op);
    case Compute::i64:
      return find_whole_unary<std::int64_t>(op);
    case Compute::f64:
      return find_f64_unary(op);
    case Compute::f32:
      break;
  }
  return nullptr;
}

}  // namespace
}  // namespace tenon::cpu
