#include "ops/unary_op.hpp"

#include <tenon/ops/unary.hpp>

#include <cmath>
#include <numbers>

namespace tenon {

double Neg::of(double x) noexcept { return -x; }
std::int64_t Neg::of_integer(std::int64_t x) noexcept { return wrapping_subtract(0, x); }
Tensor derivative(const Neg&, const Tensor& x, const Tensor&) { return scalar_like(x, -1); }
TENON_DEFINE_UNARY(neg, Neg);

double Abs::of(double x) noexcept { return std::fabs(x); }
std::int64_t Abs::of_integer(std::int64_t x) noexcept {
  return x < 0 ? wrapping_subtract(0, x) : x;
}
Tensor derivative(const Abs&, const Tensor& x, const Tensor&) { return sign(x); }
TENON_DEFINE_UNARY(abs, Abs);

double Sign::of(double x) noexcept { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
std::int64_t Sign::of_integer(std::int64_t x) noexcept { return (x > 0) - (x < 0); }
Tensor derivative(const Sign&, const Tensor&, const Tensor&) { return {}; }
TENON_DEFINE_UNARY(sign, Sign);

double Square::of(double x) noexcept { return x * x; }
std::int64_t Square::of_integer(std::int64_t x) noexcept { return wrapping_multiply(x, x); }
Tensor derivative(const Square&, const Tensor& x, const Tensor&) { return x * 2; }
TENON_DEFINE_UNARY(square, Square);

double Sqrt::of(double x) noexcept { return std::sqrt(x); }
Tensor derivative(const Sqrt&, const Tensor&, const Tensor& y) { return 0.5 / y; }
TENON_DEFINE_UNARY(sqrt, Sqrt);

double Rsqrt::of(double x) noexcept { return 1.0 / std::sqrt(x); }
Tensor derivative(const Rsqrt&, const Tensor&, const Tensor& y) { return -0.5 * (y * y * y); }
TENON_DEFINE_UNARY(rsqrt, Rsqrt);

double Reciprocal::of(double x) noexcept { return 1.0 / x; }
Tensor derivative(const Reciprocal&, const Tensor&, const Tensor& y) { return -(y * y); }
TENON_DEFINE_UNARY(reciprocal, Reciprocal);

double Exp::of(double x) noexcept { return std::exp(x); }
Tensor derivative(const Exp&, const Tensor&, const Tensor& y) { return y; }
TENON_DEFINE_UNARY(exp, Exp);

double Exp2::of(double x) noexcept { return std::exp2(x); }
Tensor derivative(const Exp2&, const Tensor&, const Tensor& y) { return y * std::numbers::ln2; }
TENON_DEFINE_UNARY(exp2, Exp2);

double Expm1::of(double x) noexcept { return std::expm1(x); }
Tensor derivative(const Expm1&, const Tensor&, const Tensor& y) { return y + 1; }
TENON_DEFINE_UNARY(expm1, Expm1);

double Log::of(double x) noexcept { return std::log(x); }
Tensor derivative(const Log&, const Tensor& x, const Tensor&) { return reciprocal(x); }
TENON_DEFINE_UNARY(log, Log);

double Log2::of(double x) noexcept { return std::log2(x); }
Tensor derivative(const Log2&, const Tensor& x, const Tensor&) { return std::numbers::log2e / x; }
TENON_DEFINE_UNARY(log2, Log2);

double Log1p::of(double x) noexcept { return std::log1p(x); }
Tensor derivative(const Log1p&, const Tensor& x, const Tensor&) { return reciprocal(x + 1); }
TENON_DEFINE_UNARY(log1p, Log1p);

double Sin::of(double x) noexcept { return std::sin(x); }
Tensor derivative(const Sin&, const Tensor& x, const Tensor&) { return cos(x); }
TENON_DEFINE_UNARY(sin, Sin);

double Cos::of(double x) noexcept { return std::cos(x); }
Tensor derivative(const Cos&, const Tensor& x, const Tensor&) { return -sin(x); }
TENON_DEFINE_UNARY(cos, Cos);

double Tan::of(double x) noexcept { return std::tan(x); }
Tensor derivative(const Tan&, const Tensor&, const Tensor& y) { return y * y + 1; }
TENON_DEFINE_UNARY(tan, Tan);

double Asin::of(double x) noexcept { return std::asin(x); }
Tensor derivative(const Asin&, const Tensor& x, const Tensor&) { return rsqrt(1 - x * x); }
TENON_DEFINE_UNARY(asin, Asin);

double Acos::of(double x) noexcept { return std::acos(x); }
Tensor derivative(const Acos&, const Tensor& x, const Tensor&) { return -rsqrt(1 - x * x); }
TENON_DEFINE_UNARY(acos, Acos);

double Atan::of(double x) noexcept { return std::atan(x); }
Tensor derivative(const Atan&, const Tensor& x, const Tensor&) { return reciprocal(x * x + 1); }
TENON_DEFINE_UNARY(atan, Atan);

double Tanh::of(double x) noexcept { return std::tanh(x); }
Tensor derivative(const Tanh&, const Tensor&, const Tensor& y) { return 1 - y * y; }
TENON_DEFINE_UNARY(tanh, Tanh);

double Erf::of(double x) noexcept { return std::erf(x); }
Tensor derivative(const Erf&, const Tensor& x, const Tensor&) {
  return 2 * std::numbers::inv_sqrtpi * exp(-(x * x));
}
TENON_DEFINE_UNARY(erf, Erf);

double Floor::of(double x) noexcept { return std::floor(x); }
Tensor derivative(const Floor&, const Tensor&, const Tensor&) { return {}; }
TENON_DEFINE_UNARY(floor, Floor);

double Ceil::of(double x) noexcept { return std::ceil(x); }
Tensor derivative(const Ceil&, const Tensor&, const Tensor&) { return {}; }
TENON_DEFINE_UNARY(ceil, Ceil);

double Trunc::of(double x) noexcept { return std::trunc(x); }
Tensor derivative(const Trunc&, const Tensor&, const Tensor&) { return {}; }
TENON_DEFINE_UNARY(trunc, Trunc);

// Not nearbyint: that depends on the thread's rounding mode. remainder(x, 1) is exact.
double Round::of(double x) noexcept {
  return std::isfinite(x) ? std::copysign(x - std::remainder(x, 1.0), x) : x;
}
Tensor derivative(const Round&, const Tensor&, const Tensor&) { return {}; }
TENON_DEFINE_UNARY(round, Round);

}  // namespace tenon
