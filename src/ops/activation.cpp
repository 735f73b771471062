#include "ops/unary_op.hpp"

#include <tenon/ops/activation.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tenon {

double Sigmoid::of(double x) noexcept { return 1.0 / (1.0 + std::exp(-x)); }
TENON_DEFINE_UNARY(sigmoid, Sigmoid);

double Relu::of(double x) noexcept { return x < 0 ? 0.0 : x; }
std::int64_t Relu::of_integer(std::int64_t x) noexcept { return std::max<std::int64_t>(x, 0); }
TENON_DEFINE_UNARY(relu, Relu);

double Relu6::of(double x) noexcept { return x < 0 ? 0.0 : x > 6 ? 6.0 : x; }
TENON_DEFINE_UNARY(relu6, Relu6);

double Silu::of(double x) noexcept { return x * Sigmoid::of(x); }
TENON_DEFINE_UNARY(silu, Silu);

// erfc keeps the digits that 1 + erf would cancel far below zero.
double Gelu::of(double x) noexcept { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }
TENON_DEFINE_UNARY(gelu, Gelu);

double GeluTanh::of(double x) noexcept {
  const double inner = std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}
TENON_DEFINE_UNARY(gelu_tanh, GeluTanh);

double Softplus::of(double x) noexcept {
  return std::isnan(x) ? x : std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}
TENON_DEFINE_UNARY(softplus, Softplus);

double Mish::of(double x) noexcept { return x * std::tanh(Softplus::of(x)); }
TENON_DEFINE_UNARY(mish, Mish);

double Hardsigmoid::of(double x) noexcept { return Relu6::of(x + 3.0) / 6.0; }
TENON_DEFINE_UNARY(hardsigmoid, Hardsigmoid);

double Hardswish::of(double x) noexcept { return x * Hardsigmoid::of(x); }
TENON_DEFINE_UNARY(hardswish, Hardswish);

double LeakyRelu::of(double x) const noexcept { return x < 0 ? alpha * x : x; }
template struct UnaryOp<LeakyRelu>;
TENON_DEFINE_OP(leaky_relu, LeakyRelu);

double Elu::of(double x) const noexcept { return x < 0 ? alpha * std::expm1(x) : x; }
template struct UnaryOp<Elu>;
TENON_DEFINE_OP(elu, Elu);

Tensor leaky_relu(const Tensor& x, double alpha, const std::source_location& where) {
  LeakyRelu op;
  op.alpha = alpha;
  return record(op, {x}, where);
}

Tensor elu(const Tensor& x, double alpha, const std::source_location& where) {
  Elu op;
  op.alpha = alpha;
  return record(op, {x}, where);
}

}  // namespace tenon
