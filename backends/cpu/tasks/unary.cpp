// Functions of one operand.
#include "../elementwise/elementwise.hpp"
#include "../elementwise/gamma.hpp"
#include "../elementwise/half_unary.hpp"
#include "../elementwise/independent.hpp"
#include "../elementwise/typed_unary.hpp"
#include "../elementwise/unary_of.hpp"
#include "point_task.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/special.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

template <class Op, Unary function>
void floats(const PointCall& call, const OpInstance& op) noexcept {
  const std::int64_t count = call.step[0] == 0 ? 1 : call.count;
  auto* y = static_cast<float*>(call.y);
  unary(function, static_cast<const float*>(call.x[0]), y, count, parameters_of(*op.as<Op>()));
  std::fill(y + count, y + call.count, *y);
}

template <Unary function>
void halves(const PointCall& call, const OpInstance&) noexcept {
  const std::int64_t count = call.step[0] == 0 ? 1 : call.count;
  auto* y = static_cast<std::uint16_t*>(call.y);
  half_unary_kernel(function)(static_cast<const std::uint16_t*>(call.x[0]), y, count);
  std::fill(y + count, y + call.count, *y);
}

/// Of f16 and bf16 by their sign's bit; `infinity`: the bits of infinity.
template <Unary function, std::uint16_t infinity>
void signs(const PointCall& call, const OpInstance&) noexcept {
  const std::int64_t count = call.step[0] == 0 ? 1 : call.count;
  const auto* x = static_cast<const std::uint16_t*>(call.x[0]);
  auto* y = static_cast<std::uint16_t*>(call.y);
  TENON_INDEPENDENT for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (function == Unary::relu) {  // a NaN stays, bit by bit
      const bool is_number = (x[i] & 0x7FFF) <= infinity, is_negative = (x[i] & 0x8000) != 0;
      y[i] = (is_number & is_negative) ? std::uint16_t{0} : x[i];
    } else {
      y[i] = static_cast<std::uint16_t>(function == Unary::neg ? x[i] ^ 0x8000 : x[i] & 0x7FFF);
    }
  }
  std::fill(y + count, y + call.count, *y);
}

template <class T, class F>
void each(const PointCall& call, F f) {
  const auto* x = static_cast<const T*>(call.x[0]);
  auto* y = static_cast<T*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) y[i] = f(x[i * call.step[0]]);
}

/// What an attribute allows of whole numbers.
std::int64_t whole(double value) {
  if (value >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  if (value < -0x1p63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

/// By the op's own definition, one element at a time.
template <class Op, class T>
void defined(const PointCall& call, const OpInstance& instance) noexcept {
  const Op& op = *instance.as<Op>();
  if constexpr (std::is_same_v<Op, Clamp>) {
    if constexpr (std::is_floating_point_v<T>) {
      each<T>(call, [&op](T x) { return x < op.min ? op.min : x > op.max ? op.max : x; });
    } else {
      const std::int64_t low = whole(std::ceil(op.min)), high = whole(std::floor(op.max));
      each<T>(call,
              [=](T x) { return static_cast<T>(std::min(std::max<std::int64_t>(x, low), high)); });
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    each<T>(call, [&op](T x) { return op.of(x); });
  } else if constexpr (requires { op.of_integer(0); }) {
    each<T>(call, [&op](T x) { return static_cast<T>(op.of_integer(x)); });
  }
}

/// The attributes as kernels of whole numbers and of f64 take them.
template <class Op>
Limits limits_of(const Op& op) {
  if constexpr (std::is_same_v<Op, Clamp>) {
    return {op.min, op.max, whole(std::ceil(op.min)), whole(std::floor(op.max))};
  } else if constexpr (requires { op.alpha; }) {
    return {op.alpha, 0, 0, 0};
  } else {
    return {};
  }
}

template <class Op, Unary function, Compute type>
void typed(const PointCall& call, const OpInstance& op) noexcept {
  const std::int64_t count = call.step[0] == 0 ? 1 : call.count;
  auto* const y = static_cast<std::byte*>(call.y);
  typed_unary_kernel(type, function)(call.x[0], y, count, limits_of(*op.as<Op>()));
  constexpr std::int64_t unit = compute_bytes(type);
  for (std::int64_t i = count; i < call.count; ++i) std::memcpy(y + i * unit, y, unit);
}

/// Vector code where there is some; else the op's own definition.
template <class Op, Unary function, Compute type, class T>
PointFunction typed_or_defined() {
  return typed_unary_kernel(type, function) == nullptr ? defined<Op, T> : typed<Op, function, type>;
}

template <class Op, Unary function>
PointStep unary_point(const Step& step) {
  const DType dtype = step.output.shape.dtype();
  if constexpr (function == Unary::neg || function == Unary::abs || function == Unary::relu) {
    if (dtype == DType::f16) {
      return {step, signs<function, 0x7C00>, Reader::As::raw, Reader::As::raw};
    }
    if (dtype == DType::bf16) {
      return {step, signs<function, 0x7F80>, Reader::As::raw, Reader::As::raw};
    }
  }
  if (dtype == DType::f16 && half_unary_kernel(function) != nullptr) {
    return {step, halves<function>, Reader::As::raw, Reader::As::raw};
  }
  return point_step(step,
                    {floats<Op, function>, typed_or_defined<Op, function, Compute::f64, double>(),
                     typed_or_defined<Op, function, Compute::i32, std::int32_t>(),
                     typed_or_defined<Op, function, Compute::i64, std::int64_t>()});
}

/// Without vector code: in f64, so that f32 results are rounded once.
template <class Op>
void defined_in_f64(const PointCall& call, const OpInstance& instance) noexcept {
  const Op& op = *instance.as<Op>();
  each<float>(call, [&op](float x) { return static_cast<float>(op.of(static_cast<double>(x))); });
}
template <class Op>
PointStep defined_point_of(const Step& step) {
  return point_step(step, {defined_in_f64<Op>, defined<Op, double>, nullptr, nullptr});
}

template <class Op, auto function>
PointStep gamma_point(const Step& step) {
  const PointFunction floats = [](const PointCall& call, const OpInstance&) noexcept {
    const std::int64_t count = call.step[0] == 0 ? 1 : call.count;
    auto* y = static_cast<float*>(call.y);
    function(static_cast<const float*>(call.x[0]), y, count);
    std::fill(y + count, y + call.count, *y);
  };
  return point_step(step, {floats, defined<Op, double>, nullptr, nullptr});
}

}  // namespace

extern const Kernel lgamma_kernel, digamma_kernel, polygamma_kernel;
constinit const Kernel lgamma_kernel = point_kernel<Lgamma, gamma_point<Lgamma, log_gamma>>();
constinit const Kernel digamma_kernel = point_kernel<Digamma, gamma_point<Digamma, digamma>>();
constinit const Kernel polygamma_kernel = point_kernel<Polygamma, defined_point_of<Polygamma>>();

#define CPU_UNARY(id, Struct)      \
  extern const Kernel id##_kernel; \
  constinit const Kernel id##_kernel = point_kernel<Struct, unary_point<Struct, Unary::id>>();
#include "../elementwise/unary.def"
#undef CPU_UNARY

}  // namespace tenon::cpu
