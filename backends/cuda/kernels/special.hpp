// Functions that neither CUDA nor the CPU's library has.
#pragma once

#include "kernels/values.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tenon::cuda {

template <class T, std::size_t count>
TENON_DEVICE T horner(T x, const T (&coefficients)[count]) {
  T sum = coefficients[0];
  for (std::size_t i = 1; i < count; ++i) sum = sum * x + coefficients[i];
  return sum;
}

/// Giles, Approximating the erfinv function (2011), table 5: within 3 eps.
TENON_DEVICE float erfinv_of(float x) {
  if (!(fabsf(x) < 1)) return fabsf(x) == 1 ? copysignf(infinity(), x) : infinity() - infinity();
  const float w = -logf((1.0f - x) * (1.0f + x));
  if (w < 5) {
    const float near[] = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                          -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                          -0.00417768164f,  0.246640727f,    1.50140941f};
    return x * horner(w - 2.5f, near);
  }
  const float far[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                       -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                       0.00943887047f,   1.00167406f,     2.83297682f};
  return x * horner(sqrtf(w) - 3.0f, far);
}

inline constexpr double pi = 3.14159265358979323846;

/// Abramowitz and Stegun, 6.3.5, 6.3.7 and 6.3.18; in double, since terms cancel around the zeros.
TENON_DEVICE float digamma_of(float value) {
  if (value == 0) return copysignf(infinity(), -value);
  if (value < 0 && value == truncf(value)) return infinity() - infinity();
  double x = static_cast<double>(value), sum = 0;
  if (x < 0) {
    sum = -pi / tan(pi * (x - rint(x)));
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const double z = 1 / (x * x);
  const double terms[] = {1.0 / 12,  -691.0 / 32760, 1.0 / 132, -1.0 / 240,
                          1.0 / 252, -1.0 / 120,     1.0 / 12};
  return static_cast<float>(sum + log(x) - 0.5 / x - z * horner(z, terms));
}

/// zeta(s, x) for x > 0 and a whole s > 1: the Euler-Maclaurin formula behind the first terms.
TENON_DEVICE double hurwitz_zeta(double s, double x) {
  double sum = 0;
  for (const double last = 10 + s; x < last; x += 1) sum += pow(x, -s);
  const double power = pow(x, -s);
  sum += power * x / (s - 1) + 0.5 * power;
  const double ratios[] = {1.0 / 12,       -1.0 / 720,     1.0 / 30240,
                           -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000.0};
  double term = s * power / x;
  for (int k = 0; k < 6; ++k) {
    sum += ratios[k] * term;
    term *= (s + 2 * k + 1) * (s + 2 * k + 2) / (x * x);
  }
  return sum;
}

/// `order`: whole, in [1, 100].
TENON_DEVICE float polygamma_of(float value, float order) {
  if (value != value) return value;
  if (value == infinity()) return 0;
  const bool is_even = fmodf(order, 2.0f) == 0;
  const double n = static_cast<double>(order), x = static_cast<double>(value);
  if (value == 0) return is_even ? copysignf(infinity(), -value) : infinity();
  if (value < 0) {
    if (order > 1 || value == -infinity()) return infinity() - infinity();
    const double fraction = x - rint(x);
    if (fraction == 0) return infinity();
    const double s = pi / sin(pi * fraction);
    return static_cast<float>(s * s - hurwitz_zeta(2, 1 - x));
  }
  double factor = is_even ? -1 : 1;
  for (double i = 2; i <= n; i += 1) factor *= i;
  return static_cast<float>(factor * hurwitz_zeta(n + 1, x));
}

}  // namespace tenon::cuda
