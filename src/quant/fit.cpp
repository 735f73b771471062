#include "fit.hpp"

namespace tenon::quant {

double squared_error(std::span<const float> in, Affine pair, int high) noexcept {
  double sum = 0;
  for (const double x : in) {
    const double difference = x - (pair.scale * affine_code(x, pair, high) - pair.min);
    sum += difference * difference;
  }
  return sum;
}

Affine fit_affine(std::span<const float> in, int high) noexcept {
  const auto [least, most] = std::minmax_element(in.begin(), in.end());
  const double bottom = std::min(0.0, static_cast<double>(*least));  // a min cannot lift values
  const double top = std::max(0.0, static_cast<double>(*most));
  if (top == bottom) return {};

  const double count = static_cast<double>(in.size());
  Affine best{(top - bottom) / high, -bottom};
  double best_error = squared_error(in, best, high);
  constexpr int steps = 12;
  for (int step = -steps; step <= steps; ++step) {
    // From a range slightly wider than that of the values to one that cuts off the outermost.
    const double scale = (top - bottom) / (high + 0.08 * step);
    double q1 = 0, q2 = 0, x1 = 0, xq = 0;
    for (const double x : in) {
      const double q = affine_code(x, {scale, -bottom}, high);
      q1 += q;
      q2 += q * q;
      x1 += x;
      xq += x * q;
    }
    // Least squares of x = scale q - min, and through the origin where the min would be negative.
    const double determinant = count * q2 - q1 * q1;
    if (determinant <= 0) continue;
    Affine pair{(count * xq - x1 * q1) / determinant, (q1 * xq - q2 * x1) / determinant};
    if (pair.min < 0) pair = {q2 > 0 ? xq / q2 : 0.0, 0.0};
    if (!(pair.scale > 0)) continue;
    const double error = squared_error(in, pair, high);
    if (error < best_error) {
      best_error = error;
      best = pair;
    }
  }
  return best;
}

}  // namespace tenon::quant
