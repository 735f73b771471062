#pragma once

// log |gamma(x)| and its derivative. Included after point_body.hpp.
//
// In f64, where Stirling's series at x >= 8 and a product that leads there cancel to 2e-15 near the zeros
// at 1 and 2: 2 ulp of the f32 result there, and elsewhere one result in 400 is not the nearest number.
#include "point_body.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

/// Coefficients from the highest power down.
template <class... Rest>
TENON_INLINE Doubles polynomial(Doubles x, double first, Rest... rest) {
  Doubles sum = doubles(first);
  ((sum = sum * x + rest), ...);
  return sum;
}

/// The natural logarithm of a normal number above 0, to 2 ulp: with as many terms of the series of atanh
/// as f64 shows.
TENON_INLINE Doubles natural_logarithm(Doubles x) {
  const auto [k, s] = logarithm_parts(x);
  const Doubles z = s * s;
  const Doubles p = polynomial(z, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11,
                               2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3);
  // ln 2 in two parts: the product of the first one with k is exact.
  const Doubles low = s * z * p + k * 1.9082149292705877e-10;
  return k * 0.69314718036912382 + (low + 2.0 * s);
}

/// |sin(pi r)| for |r| <= 1/2, by its Taylor polynomial.
TENON_INLINE Doubles sine_of_half_turns(Doubles r) {
  const Doubles x = r * 3.14159265358979323846, square = x * x;
  const Doubles p = polynomial(square, 1.0 / 51090942171709440000.0, -1.0 / 121645100408832000.0,
                               1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0,
                               -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
  const Doubles y = x + x * square * p;
  return y < 0.0 ? -y : y;
}

/// Of a number that is one of f32.
TENON_INLINE Doubles log_gamma(Doubles x) {
  const Doubles infinity = doubles(__builtin_inf());
  const Longs reflects = x < 0.5;
  const Doubles w = reflects ? 1.0 - x : x;
  const Longs is_low = w < 8.0;
  Doubles product = w;
  for (int i = 1; i < 8; ++i) product *= w + static_cast<double>(i);
  product = is_low ? product : doubles(1);

  const Doubles z = is_low ? w + 8.0 : w, inverse = 1.0 / z;
  const Doubles series =
      inverse * polynomial(inverse * inverse, -3617.0 / 122400, 1.0 / 156, -691.0 / 360360,
                           1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12);
  // log(2 pi) / 2
  Doubles y = (z - 0.5) * natural_logarithm(z) - z + (series + 0.91893853320467274178);
  if (is_any(reflects | is_low)) {
    Longs is_pole = Longs{};
    if (is_any(reflects)) {
      // gamma(x) gamma(1 - x) = pi / sin(pi x).
      const Doubles r = x - ((x + 0x1.8p52) - 0x1.8p52);
      const Doubles reflected = product * 3.14159265358979323846 / sine_of_half_turns(r);
      product = reflects ? reflected : product;
      is_pole = reflects & ((r == 0.0) | (w > 0x1p24));  // numbers beyond 2^24 are whole
    }
    const Doubles other = natural_logarithm(is_pole ? doubles(1) : product);
    y = reflects ? other - y : y - other;
    y = is_pole ? infinity : y;
  }
  y = ((x == 1.0) | (x == 2.0)) ? doubles(0) : y;
  return (x == infinity) ? infinity : y;
}

/// The derivative of log |gamma(x)|, of a number that is one of f32.
TENON_INLINE Doubles digamma(Doubles x) {
  const Longs reflects = x < 0.0;
  const Doubles w = reflects ? 1.0 - x : x;
  const Longs is_low = w < 8.0;
  // The sum of 1 / (w + i) is the derivative of their product by the product.
  Doubles product = w, derivative = doubles(1);
  for (int i = 1; i < 8; ++i) {
    const Doubles factor = w + static_cast<double>(i);
    derivative = derivative * factor + product;
    product *= factor;
  }
  const Doubles z = is_low ? w + 8.0 : w, inverse = 1.0 / z, square = inverse * inverse;
  const Doubles series =
      square * polynomial(square, -3617.0 / 8160, 1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240,
                          1.0 / 252, -1.0 / 120, 1.0 / 12);
  Doubles y = natural_logarithm(z) - 0.5 * inverse - series;
  y = is_low ? y - derivative / product : y;
  if (is_any(reflects)) {
    // That of 1 - x, less pi / tan(pi x).
    const Doubles r = x - ((x + 0x1.8p52) - 0x1.8p52), a = r < 0.0 ? -r : r;
    const Doubles slope =
        3.14159265358979323846 * sine_of_half_turns(0.5 - a) / sine_of_half_turns(r);
    const Longs is_pole = reflects & ((r == 0.0) | (w > 0x1p24));  // numbers beyond 2^24 are whole
    y = reflects ? y - (r < 0.0 ? -slope : slope) : y;
    y = is_pole ? doubles(__builtin_nan("")) : y;
  }
  const Doubles infinity = doubles(__builtin_inf());
  return (x == infinity) ? infinity : y;
}

void run_log_gamma(const float* x, float* y, std::int64_t count) noexcept {
  map([](Float v) { return in_doubles([](Doubles a) { return log_gamma(a); }, v); }, y, count,
      Array{x});
}

void run_digamma(const float* x, float* y, std::int64_t count) noexcept {
  map([](Float v) { return in_doubles([](Doubles a) { return digamma(a); }, v); }, y, count,
      Array{x});
}

}  // namespace
}  // namespace tenon::cpu
