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

namespace {

/// Of codes q of elements x: sums of 1, q, q^2, x and x q.
struct Sums {
  double count, q1, q2, x1, xq;
};

/// With the codes under y = q / factor + bottom. In two parts each, so that additions need not wait
/// for one another.
Sums sums_of(std::span<const float> in, double bottom, double factor, int high) noexcept {
  double q1[2] = {}, q2[2] = {}, x1[2] = {}, xq[2] = {};
  if (!std::isfinite(factor)) factor = 0;
  for (std::size_t i = 0; i < in.size(); i += 2) {
    for (std::size_t lane = 0; lane < 2; ++lane) {
      const double x = in[i + lane];
      const double q = nearest((x - bottom) * factor, 0, high);
      q1[lane] += q;
      q2[lane] += q * q;
      x1[lane] += x;
      xq[lane] += x * q;
    }
  }
  return {static_cast<double>(in.size()), q1[0] + q1[1], q2[0] + q2[1], x1[0] + x1[1],
          xq[0] + xq[1]};
}

struct Gain {
  Affine pair;
  double gain;  ///< sum x^2 less the squared error
};

/// Least squares of x = scale q - min, and through the origin where the min would be negative.
Gain gain_of(const Sums& s) noexcept {
  if (s.q2 == 0) {
    const double min = std::max(0.0, -s.x1 / s.count);
    return {{0, min}, -min * s.x1};
  }
  const double determinant = s.count * s.q2 - s.q1 * s.q1;
  Affine pair{s.xq / s.q2, 0};
  if (determinant > 0) {
    const double min = (s.q1 * s.xq - s.q2 * s.x1) / determinant;
    if (min >= 0) pair = {(s.count * s.xq - s.x1 * s.q1) / determinant, min};
  }
  if (!(pair.scale > 0)) return {{}, 0};
  return {pair, pair.scale * s.xq - pair.min * s.x1};
}

}  // namespace

Affine fit_affine(std::span<const float> in, int high) noexcept {
  const auto [least, most] = std::minmax_element(in.begin(), in.end());
  const double bottom = std::min(0.0, static_cast<double>(*least));  // a min cannot lift values
  const double top = std::max(0.0, static_cast<double>(*most));
  if (top == bottom) return {};

  Affine best;
  double gain = 0;
  constexpr int steps = 12;
  for (int step = -steps; step <= steps; ++step) {
    // From a range slightly wider than that of the values to one that cuts off the outermost.
    const double factor = (high + 0.08 * step) / (top - bottom);
    const Gain fit = gain_of(sums_of(in, bottom, factor, high));
    if (fit.gain > gain) {
      gain = fit.gain;
      best = fit.pair;
    }
  }
  // The codes that are nearest under these, and theirs.
  for (int round = 0; round < 2 && best.scale > 0; ++round) {
    const Gain fit = gain_of(sums_of(in, -best.min, 1 / best.scale, high));
    if (!(fit.gain > gain)) break;
    gain = fit.gain;
    best = fit.pair;
  }
  return best;
}

}  // namespace tenon::quant
