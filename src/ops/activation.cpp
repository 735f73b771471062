#include "ops/unary_op.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/clamp.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tenon {

double Sigmoid::of(double x) noexcept { return 1.0 / (1.0 + std::exp(-x)); }
Tensor derivative(const Sigmoid&, const Tensor&, const Tensor& y) { return y * (1 - y); }
TENON_DEFINE_UNARY(sigmoid, Sigmoid);

double Relu::of(double x) noexcept { return x < 0 ? 0.0 : x; }
std::int64_t Relu::of_integer(std::int64_t x) noexcept { return std::max<std::int64_t>(x, 0); }
template <>
std::vector<Tensor> UnaryOp<Relu>::gradient(const Backward& at) const {
  return {passed_where(is_above(at.inputs[0], 0), at.upstream)};
}
TENON_DEFINE_UNARY(relu, Relu);

double Relu6::of(double x) noexcept { return x < 0 ? 0.0 : x > 6 ? 6.0 : x; }
template <>
std::vector<Tensor> UnaryOp<Relu6>::gradient(const Backward& at) const {
  return {passed_where(is_between(at.inputs[0], 0, 6), at.upstream)};
}
TENON_DEFINE_UNARY(relu6, Relu6);

double Silu::of(double x) noexcept { return x * Sigmoid::of(x); }
Tensor derivative(const Silu&, const Tensor& x, const Tensor&) {
  const Tensor s = sigmoid(x);
  return s * (1 + x * (1 - s));
}
TENON_DEFINE_UNARY(silu, Silu);

// erfc keeps the digits that 1 + erf would cancel far below zero.
double Gelu::of(double x) noexcept { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }
Tensor derivative(const Gelu&, const Tensor& x, const Tensor&) { return gelu_derivative(x); }
TENON_DEFINE_UNARY(gelu, Gelu);

constexpr double normal_density_at_0 = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
double GeluDerivative::of(double x) noexcept {
  const double density = normal_density_at_0 * std::exp(-0.5 * x * x);
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + (density > 0 ? x * density : 0);
}
Tensor derivative(const GeluDerivative&, const Tensor& x, const Tensor&) {
  const Tensor squared = x * x;
  return normal_density_at_0 * exp(-0.5 * squared) * (2 - squared);
}
TENON_DEFINE_UNARY(gelu_derivative, GeluDerivative);

double GeluTanh::of(double x) noexcept {
  const double inner = std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}
Tensor derivative(const GeluTanh&, const Tensor& wide_x, const Tensor&) {
  constexpr double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const Tensor x = clamp(wide_x, -20, 20);  // beyond it is 0 or 1, and a square may overflow
  const Tensor squared = x * x;
  const Tensor t = tanh(scale * (x + 0.044715 * (x * squared)));
  return 0.5 * (1 + t) + 0.5 * scale * (x * (1 - t * t) * (1 + 3 * 0.044715 * squared));
}
TENON_DEFINE_UNARY(gelu_tanh, GeluTanh);

double Softplus::of(double x) noexcept {
  return std::isnan(x) ? x : std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}
Tensor derivative(const Softplus&, const Tensor& x, const Tensor&) { return sigmoid(x); }
TENON_DEFINE_UNARY(softplus, Softplus);

double Mish::of(double x) noexcept { return x * std::tanh(Softplus::of(x)); }
Tensor derivative(const Mish&, const Tensor& x, const Tensor&) {
  const Tensor t = tanh(softplus(x));
  return t + x * (1 - t * t) * sigmoid(x);
}
TENON_DEFINE_UNARY(mish, Mish);

double Hardsigmoid::of(double x) noexcept { return Relu6::of(x + 3.0) / 6.0; }
template <>
std::vector<Tensor> UnaryOp<Hardsigmoid>::gradient(const Backward& at) const {
  return {passed_where(is_between(at.inputs[0], -3, 3), at.upstream * (1.0 / 6.0))};
}
TENON_DEFINE_UNARY(hardsigmoid, Hardsigmoid);

double Hardswish::of(double x) noexcept { return x * Hardsigmoid::of(x); }
template <>
std::vector<Tensor> UnaryOp<Hardswish>::gradient(const Backward& at) const {
  const Tensor& x = at.inputs[0];
  const Tensor line = clamp(x, -3, 3) * (1.0 / 3.0) + 0.5;  // finite
  const Tensor slope = where(lt(x, scalar_like(x, 3)), line, scalar_like(x, 1));
  return {passed_where(is_above(x, -3), at.upstream * slope)};
}
TENON_DEFINE_UNARY(hardswish, Hardswish);

double LeakyRelu::of(double x) const noexcept { return x < 0 ? alpha * x : x; }
Tensor derivative(const LeakyRelu& op, const Tensor& x, const Tensor&) {
  return where(is_above(x, 0), scalar_like(x, 1), scalar_like(x, op.alpha));
}
template struct UnaryOp<LeakyRelu>;
TENON_DEFINE_OP(leaky_relu, LeakyRelu);

double Elu::of(double x) const noexcept { return x < 0 ? alpha * std::expm1(x) : x; }
Tensor derivative(const Elu& op, const Tensor& x, const Tensor& y) {
  return where(is_above(x, 0), scalar_like(x, 1), y + op.alpha);
}
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
