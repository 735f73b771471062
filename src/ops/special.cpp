#include "ops/unary_op.hpp"

#include <tenon/ops/binary.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/special.hpp>

#include <cmath>
#include <limits>
#include <numbers>

#include <math.h>  // lgamma_r: std::lgamma writes a variable that threads would share

namespace tenon {
namespace {

using std::numbers::pi;
constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

template <class... Rest>
double horner(double x, double first, Rest... rest) noexcept {
  double sum = first;
  ((sum = sum * x + rest), ...);
  return sum;
}

/// zeta(s, x) for x > 0 and a whole s > 1: the terms up to x + k >= 10, then the Euler-Maclaurin
/// formula with B_2 .. B_20. Its error is below the next term, (s / 10)^22 of the sum for small s;
/// larger s sum more terms first.
double hurwitz_zeta(double s, double x) noexcept {
  double sum = 0;
  for (const double last = 10 + s; x < last; x += 1) sum += std::pow(x, -s);
  sum += std::pow(x, 1 - s) / (s - 1) + 0.5 * std::pow(x, -s);
  // B_2k / (2k)!
  constexpr double ratios[] = {1.0 / 12,
                               -1.0 / 720,
                               1.0 / 30240,
                               -1.0 / 1209600,
                               1.0 / 47900160,
                               -691.0 / 1307674368000.0,
                               1.0 / 74724249600.0,
                               -3617.0 / 10670622842880000.0};
  double term = s * std::pow(x, -s - 1);
  for (int k = 0; k < 8; ++k) {
    sum += ratios[k] * term;
    term *= (s + 2 * k + 1) * (s + 2 * k + 2) / (x * x);
  }
  return sum;
}

}  // namespace

double Sinh::of(double x) noexcept { return std::sinh(x); }
Tensor derivative(const Sinh&, const Tensor& x, const Tensor&) { return cosh(x); }
TENON_DEFINE_UNARY(sinh, Sinh);

double Cosh::of(double x) noexcept { return std::cosh(x); }
Tensor derivative(const Cosh&, const Tensor& x, const Tensor&) { return sinh(x); }
TENON_DEFINE_UNARY(cosh, Cosh);

double Asinh::of(double x) noexcept { return std::asinh(x); }
Tensor derivative(const Asinh&, const Tensor& x, const Tensor&) { return rsqrt(square(x) + 1.0); }
TENON_DEFINE_UNARY(asinh, Asinh);

double Acosh::of(double x) noexcept { return std::acosh(x); }
// Two factors: x^2 - 1 cancels near 1.
Tensor derivative(const Acosh&, const Tensor& x, const Tensor&) {
  return rsqrt((x - 1.0) * (x + 1.0));
}
TENON_DEFINE_UNARY(acosh, Acosh);

double Atanh::of(double x) noexcept { return std::atanh(x); }
Tensor derivative(const Atanh&, const Tensor& x, const Tensor&) {
  return reciprocal((1.0 - x) * (1.0 + x));
}
TENON_DEFINE_UNARY(atanh, Atanh);

double Erfc::of(double x) noexcept { return std::erfc(x); }
Tensor derivative(const Erfc&, const Tensor& x, const Tensor&) {
  return exp(-square(x)) * (-2 * std::numbers::inv_sqrtpi);
}
TENON_DEFINE_UNARY(erfc, Erfc);

double Erfinv::of(double x) noexcept {
  if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? std::copysign(infinite, x) : not_a_number;
  if (x == 0) return x;
  double w = -std::log1p(-x * x), y;
  if (w < 5) {
    w -= 2.5;
    y = horner(w, 2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
               -0.00125372503, -0.00417768164, 0.246640727, 1.50140941);
  } else if (w > 16) {  // beyond f32, from erfc(y) ~ e^(-y^2) / (y sqrt(pi))
    y = std::sqrt(w - std::log(std::sqrt(w) * 0.5 / std::numbers::inv_sqrtpi)) / std::fabs(x);
  } else {
    w = std::sqrt(w) - 3;
    y = horner(w, -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
               -0.0076224613, 0.00943887047, 1.00167406, 2.83297682);
  }
  y *= std::fabs(x);
  // f = erf(y) - |x|, from erfc in the tail; f''/f' = -2y.
  for (int i = 0; i < 3; ++i) {
    const double f = y < 0.5 ? std::erf(y) - std::fabs(x) : (1 - std::fabs(x)) - std::erfc(y);
    const double step = f / (2 * std::numbers::inv_sqrtpi * std::exp(-y * y));
    y -= step / (1 + y * step);
  }
  return std::copysign(y, x);
}
Tensor derivative(const Erfinv&, const Tensor&, const Tensor& y) {
  return exp(square(y)) * (0.5 / std::numbers::inv_sqrtpi);
}
TENON_DEFINE_UNARY(erfinv, Erfinv);

double Lgamma::of(double x) noexcept {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}
Tensor derivative(const Lgamma&, const Tensor& x, const Tensor&) { return digamma(x); }
TENON_DEFINE_UNARY(lgamma, Lgamma);

double Digamma::of(double x) noexcept {
  if (x == 0) return std::copysign(infinite, -x);
  if (x < 0 && (x == std::trunc(x) || std::isinf(x))) return not_a_number;
  double sum = 0;
  if (x < 0) {  // the fraction alone, which is exact, so that tan() is accurate for large x
    sum = -pi / std::tan(pi * std::remainder(x, 1.0));
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const double z = 1 / (x * x);
  const double series = z * horner(z, 1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252,
                                   -1.0 / 120, 1.0 / 12);
  return sum + std::log(x) - 0.5 / x - series;
}
Tensor derivative(const Digamma&, const Tensor& x, const Tensor&) { return polygamma(1, x); }
TENON_DEFINE_UNARY(digamma, Digamma);

TENON_DEFINE_OP(polygamma, Polygamma);

Shape Polygamma::infer(std::span<const Shape> in) const {
  require_floating(name, in[0]);   // C1
  if (order < 1 || order > 100) {  // C2
    fail(Errc::bad_attribute, name, fmt::format("order {} is not in [1, 100]", order));
  }
  return in[0];
}

double Polygamma::of(double x) const noexcept {
  if (std::isnan(x)) return x;
  if (x == infinite) return 0.0;
  const auto n = static_cast<double>(order);
  const double sign = order % 2 == 0 ? -1 : 1;
  if (x <= 0) {
    if (x == 0) return order % 2 == 0 ? std::copysign(infinite, -x) : infinite;
    if (order > 1 || x == -infinite) return not_a_number;
    const double fraction = std::remainder(x, 1.0);
    if (fraction == 0) return infinite;
    const double s = pi / std::sin(pi * fraction);
    return s * s - of(1 - x);
  }
  return sign * std::tgamma(n + 1) * hurwitz_zeta(n + 1, x);
}

void Polygamma::reference(std::span<const HostView> in, const HostView& out) const {
  map_reals(in[0], out, [this](double x) { return of(x); });
}

std::vector<Tensor> Polygamma::gradient(const Backward& at) const {
  return {at.upstream * polygamma(order + 1, at.inputs[0])};
}

Tensor polygamma(std::int64_t order, const Tensor& x, const std::source_location& where) {
  if (order == 0) return digamma(x, where);
  return record(Polygamma{.order = order}, {x}, where);
}

}  // namespace tenon
