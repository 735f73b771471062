// Functions of one operand.
#include "../elementwise/elementwise.hpp"
#include "../elementwise/half_unary.hpp"
#include "point_task.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/unary.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

template <class Op>
UnaryParameters parameters_of(const Op& op) {
  if constexpr (requires { op.alpha; }) {
    return {static_cast<float>(op.alpha), 0};
  } else if constexpr (requires { op.min; }) {
    return {static_cast<float>(op.min), static_cast<float>(op.max)};
  } else {
    return {};
  }
}

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

template <class Op, Unary function>
std::unique_ptr<Task> make(const Step& step, Compiler&) {
  if (step.output.shape.dtype() == DType::f16 && half_unary_kernel(function) != nullptr) {
    return point_task(step, halves<function>, Reader::As::raw, Reader::As::raw);
  }
  return point_task(step, PointFunctions{floats<Op, function>, defined<Op, double>,
                                         defined<Op, std::int32_t>, defined<Op, std::int64_t>});
}

}  // namespace

#define TENON_UNARY(id, Struct)    \
  extern const Kernel id##_kernel; \
  constinit const Kernel id##_kernel { op_def<Struct>, takes_everything, make<Struct, Unary::id> }

TENON_UNARY(neg, Neg);
TENON_UNARY(abs, Abs);
TENON_UNARY(sign, Sign);
TENON_UNARY(square, Square);
TENON_UNARY(sqrt, Sqrt);
TENON_UNARY(rsqrt, Rsqrt);
TENON_UNARY(reciprocal, Reciprocal);
TENON_UNARY(exp, Exp);
TENON_UNARY(exp2, Exp2);
TENON_UNARY(expm1, Expm1);
TENON_UNARY(log, Log);
TENON_UNARY(log2, Log2);
TENON_UNARY(log1p, Log1p);
TENON_UNARY(sin, Sin);
TENON_UNARY(cos, Cos);
TENON_UNARY(tan, Tan);
TENON_UNARY(asin, Asin);
TENON_UNARY(acos, Acos);
TENON_UNARY(atan, Atan);
TENON_UNARY(tanh, Tanh);
TENON_UNARY(erf, Erf);
TENON_UNARY(floor, Floor);
TENON_UNARY(ceil, Ceil);
TENON_UNARY(trunc, Trunc);
TENON_UNARY(round, Round);
TENON_UNARY(sigmoid, Sigmoid);
TENON_UNARY(relu, Relu);
TENON_UNARY(relu6, Relu6);
TENON_UNARY(silu, Silu);
TENON_UNARY(gelu, Gelu);
TENON_UNARY(gelu_tanh, GeluTanh);
TENON_UNARY(softplus, Softplus);
TENON_UNARY(mish, Mish);
TENON_UNARY(hardsigmoid, Hardsigmoid);
TENON_UNARY(hardswish, Hardswish);
TENON_UNARY(leaky_relu, LeakyRelu);
TENON_UNARY(elu, Elu);
TENON_UNARY(clamp, Clamp);

#undef TENON_UNARY

}  // namespace tenon::cpu
