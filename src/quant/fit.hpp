#pragma once

#include "base/half_bits.hpp"
#include "elements.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// Scales that keep the squared error of a sub-block small, where elements have importances the sum of importance times
/// squared error.
///
/// The error as a function of the scale has a local minimum for each way of rounding. The search
/// tries a series of scales, and for the resulting codes takes the best scale by least squares.
/// Sums are f64: squares of any finite float fit, and their order is fixed.
namespace tenon::quant {

/// x / scale; 0 where the scale is zero or the ratio no finite number.
inline double ratio(double x, double scale) noexcept {
  const double value = x / scale;
  return std::isfinite(value) ? value : 0.0;
}

/// Nearest integer in [low, high], halves upward.
inline int nearest(double value, int low, int high) noexcept {
  return static_cast<int>(std::clamp<double>(value, low, high) - low + 0.5) + low;
}

/// Integers of a range as a codebook.
template <int least, int most>
struct Integers {
  static constexpr int low = least, high = most;
};
template <class Codebook>
inline constexpr bool are_integers = false;
template <int least, int most>
inline constexpr bool are_integers<Integers<least, most>> = true;

/// What follows for integers of [low, high], with AVX2 where the machine has it; `in` has a multiple of
/// 8 elements.
double squared_error(const Elements& in, double scale, int low, int high) noexcept;
float fit_scale(const Elements& in, int low, int high) noexcept;

/// The squared error of `in` under one scale.
template <class Codebook>
double squared_error(const Elements& in, double scale) noexcept {
  if constexpr (are_integers<Codebook>) {
    return squared_error(in, scale, Codebook::low, Codebook::high);
  } else {
    double sum = 0;
    for (std::size_t i = 0; i < in.x.size(); ++i) {
      const double x = in.x[i];
      const double difference = x - scale * Codebook::level(ratio(x, scale));
      sum += in.weight(i) * difference * difference;
    }
    return sum;
  }
}

/// Of x and their levels under 1 / factor: sums of products, and of the levels' squares.
struct LevelSums {
  double product, square;
};

LevelSums level_sums(const Elements& in, double factor, int low, int high) noexcept;

/// In four parts each, so that additions need not wait for one another.
template <class Codebook>
LevelSums level_sums(const Elements& in, double factor) noexcept {
  if constexpr (are_integers<Codebook>) {
    return level_sums(in, factor, Codebook::low, Codebook::high);
  } else {
    double product[4] = {}, square[4] = {};
    for (std::size_t i = 0; i < in.x.size(); i += 4) {
      for (std::size_t lane = 0; lane < 4; ++lane) {
        const double x = in.x[i + lane];
        const double level = Codebook::level(x * factor);
        const double weighted = in.weight(i + lane) * level;
        product[lane] += x * weighted;
        square[lane] += level * weighted;
      }
    }
    return {(product[0] + product[1]) + (product[2] + product[3]),
            (square[0] + square[1]) + (square[2] + square[3])};
  }
}

/// The scale, of either sign, under which levels from `low` to `high` lie closest to `in`; 0 for zeros.
/// `sums(factor)`: LevelSums.
template <class Sums>
[[gnu::always_inline]] inline float fit_scale_by(const Elements& in, int low, int high,
                                                 const Sums& sums) noexcept {
  double extreme = 0;
  for (const double x : in.x) {
    if (std::fabs(x) > std::fabs(extreme)) extreme = x;
  }
  if (extreme == 0) return 0.0f;

  // Either end of the codebook may stand for the extreme element, give or take a part of a step. Elements that count
  // little may lie far outside.
  constexpr int steps = 9;
  const int most = in.importance == nullptr ? steps : 30;
  double best_scale = extreme / low, best_gain = -1.0;
  for (const int end : {low, high}) {
    for (int step = -steps; step <= most; ++step) {
      const double target = end * (1.0 + 0.02 * step + 0.02 * std::max(step - steps, 0));
      const auto [product, square] = sums(target / extreme);
      // The error of the least-squares scale is sum x^2 - gain.
      const double gain = square > 0 ? product * product / square : 0.0;
      if (gain > best_gain) {
        best_gain = gain;
        best_scale = product / square;
      }
    }
  }
  return static_cast<float>(best_scale);
}

template <class Codebook>
float fit_scale(const Elements& in) noexcept {
  if constexpr (are_integers<Codebook>) {
    return fit_scale(in, Codebook::low, Codebook::high);
  } else {
    return fit_scale_by(in, Codebook::low, Codebook::high,
                        [&in](double factor) { return level_sums<Codebook>(in, factor); });
  }
}

/// Integer scales of a block's sub-blocks under one f16 scale.
template <std::size_t count>
struct BlockScales {
  std::uint16_t d = 0;
  int scales[count] = {};

  /// As a decoder computes it.
  float scale(int b) const noexcept { return widen_half(d) * static_cast<float>(scales[b]); }
};

/// Integers of [low, high] for the scales under fit.d, the best ones up to 1 from the wanted; returns the error.
template <class Codebook, std::size_t count>
double choose_scales(const Elements& in, const float (&wanted)[count], int low, int high,
                     BlockScales<count>& fit) noexcept {
  constexpr std::size_t length = 256 / count;
  const double d = widen_half(fit.d);
  double sum = 0;
  for (std::size_t b = 0; b < count; ++b) {
    const Elements part = in.part(b * length, length);
    const int middle = nearest(ratio(wanted[b], d), low, high);
    double least = INFINITY;
    for (const int candidate : {middle, middle - 1, middle + 1}) {
      if (candidate < low || candidate > high) continue;
      const double error = squared_error<Codebook>(part, d * candidate);
      if (error < least) {
        least = error;
        fit.scales[b] = candidate;
      }
    }
    sum += least;
  }
  return sum;
}

/// The f16 scale of least squares for the integers and levels of a fit.
template <class Codebook, std::size_t count>
std::uint16_t refined_scale(const Elements& in, const BlockScales<count>& fit) noexcept {
  constexpr std::size_t length = 256 / count;
  double product = 0, square = 0;
  for (std::size_t b = 0; b < count; ++b) {
    const double scale = fit.scales[b];
    const LevelSums sums =
        level_sums<Codebook>(in.part(b * length, length), ratio(1, fit.scale(static_cast<int>(b))));
    product += sums.product * scale;
    square += sums.square * scale * scale;
  }
  return square > 0 ? to_half(static_cast<float>(product / square)).bits : fit.d;
}

/// Fits each of `count` sub-blocks of a block of 256, then rounds its scale to an integer of [low,
/// high], where low is the longer end, times an f16. With importances several f16 are tried: the
/// scales of sub-blocks that count more have to be closer to the wanted ones.
template <class Codebook, std::size_t count>
BlockScales<count> fit_scales(const Elements& in, int low, int high) noexcept {
  constexpr std::size_t length = 256 / count;
  float wanted[count];
  float largest = 0;
  for (std::size_t b = 0; b < count; ++b) {
    wanted[b] = fit_scale<Codebook>(in.part(b * length, length));
    if (std::fabs(wanted[b]) > std::fabs(largest)) largest = wanted[b];
  }

  BlockScales<count> fit;
  fit.d = to_half(largest / static_cast<float>(low)).bits;
  double least = choose_scales<Codebook>(in, wanted, low, high, fit);
  if (in.importance == nullptr) return fit;
  for (const float part : {1.0f, 0.9f, 0.8f, 1.15f, 1.35f}) {
    BlockScales<count> next;
    next.d = to_half(largest / (static_cast<float>(low) * part)).bits;
    for (int round = 0; round < 3; ++round) {
      const double error = choose_scales<Codebook>(in, wanted, low, high, next);
      if (error < least) {
        least = error;
        fit = next;
      }
      const std::uint16_t refined = refined_scale<Codebook>(in, next);
      if (refined == next.d) break;
      next.d = refined;
    }
  }
  return fit;
}

/// x ~ scale q - min with q in [0, high]; both at least 0.
struct Affine {
  double scale = 0, min = 0;
};

/// The best such pair found for `in`.
Affine fit_affine(const Elements& in, int high) noexcept;

/// Code of x under the pair.
inline int affine_code(double x, Affine pair, int high) noexcept {
  return nearest(ratio(x + pair.min, pair.scale), 0, high);
}

/// Of codes q of elements x: sums of 1, q, q^2, x and x q, each times the importance.
struct CodeSums {
  double count, q1, q2, x1, xq;
};

/// Of the codes under the pair.
CodeSums code_sums(const Elements& in, Affine pair, int high) noexcept;

/// The squared error of `in` under the pair.
double squared_error(const Elements& in, Affine pair, int high) noexcept;

/// Integer scales and mins of a block's sub-blocks under one f16 scale each.
template <std::size_t count>
struct BlockAffine {
  std::uint16_t d = 0, dmin = 0;
  int scales[count] = {}, mins[count] = {};

  /// As a decoder computes it.
  Affine pair(int b) const noexcept {
    return {widen_half(d) * static_cast<float>(scales[b]),
            widen_half(dmin) * static_cast<float>(mins[b])};
  }
};

/// Integers of [0, range] for scales and mins under fit.d and fit.dmin, the best ones up to 1 from the wanted;
/// returns the error.
template <std::size_t count>
double choose_affines(const Elements& in, const Affine (&wanted)[count], int high, int range,
                      BlockAffine<count>& fit) noexcept {
  constexpr std::size_t length = 256 / count;
  const double d = widen_half(fit.d), dmin = widen_half(fit.dmin);
  double sum = 0;
  for (std::size_t b = 0; b < count; ++b) {
    const Elements part = in.part(b * length, length);
    const int scale = nearest(ratio(wanted[b].scale, d), 0, range);
    const int min = nearest(ratio(wanted[b].min, dmin), 0, range);
    double least = INFINITY;
    for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, range); ++s) {
      for (int m = std::max(min - 1, 0); m <= std::min(min + 1, range); ++m) {
        const double error = squared_error(part, {d * s, dmin * m}, high);
        if (error < least) {
          least = error;
          fit.scales[b] = s;
          fit.mins[b] = m;
        }
      }
    }
    sum += least;
  }
  return sum;
}

/// Sets the f16 scales to those of least squares for the integers and codes of a fit. Returns whether they changed;
/// they do not where those are of no use.
template <std::size_t count>
bool refine(const Elements& in, int high, BlockAffine<count>& fit) noexcept {
  constexpr std::size_t length = 256 / count;
  double s2 = 0, sm = 0, m2 = 0, sx = 0, mx = 0;
  for (std::size_t b = 0; b < count; ++b) {
    const double s = fit.scales[b], m = fit.mins[b];
    const CodeSums sums =
        code_sums(in.part(b * length, length), fit.pair(static_cast<int>(b)), high);
    s2 += s * s * sums.q2;
    sm += s * m * sums.q1;
    m2 += m * m * sums.count;
    sx += s * sums.xq;
    mx += m * sums.x1;
  }
  const double determinant = s2 * m2 - sm * sm;
  double d = s2 > 0 ? sx / s2 : 0.0, dmin = widen_half(fit.dmin);
  if (determinant > 0) {
    d = (sx * m2 - sm * mx) / determinant;
    dmin = (sm * sx - s2 * mx) / determinant;
  }
  if (!(d > 0 && dmin >= 0)) return false;
  const std::uint16_t old_d = fit.d, old_dmin = fit.dmin;
  fit.d = to_half(static_cast<float>(d)).bits;
  fit.dmin = to_half(static_cast<float>(dmin)).bits;
  return fit.d != old_d || fit.dmin != old_dmin;
}

/// Fits each of `count` sub-blocks of a block of 256 with codes [0, high], then rounds its scale
/// and its min to integers of [0, range]. With importances as fit_scales().
template <std::size_t count>
BlockAffine<count> fit_affines(const Elements& in, int high, int range) noexcept {
  constexpr std::size_t length = 256 / count;
  Affine wanted[count];
  double largest_scale = 0, largest_min = 0;
  for (std::size_t b = 0; b < count; ++b) {
    wanted[b] = fit_affine(in.part(b * length, length), high);
    largest_scale = std::max(largest_scale, wanted[b].scale);
    largest_min = std::max(largest_min, wanted[b].min);
  }

  BlockAffine<count> fit;
  fit.d = to_half(static_cast<float>(largest_scale / range)).bits;
  fit.dmin = to_half(static_cast<float>(largest_min / range)).bits;
  double least = choose_affines(in, wanted, high, range, fit);
  if (in.importance == nullptr) return fit;
  for (const double part : {1.0, 0.9, 1.2}) {
    BlockAffine<count> next;
    next.d = to_half(static_cast<float>(largest_scale / (range * part))).bits;
    next.dmin = to_half(static_cast<float>(largest_min / (range * part))).bits;
    for (int round = 0; round < 3; ++round) {
      const double error = choose_affines(in, wanted, high, range, next);
      if (error < least) {
        least = error;
        fit = next;
      }
      if (!refine(in, high, next)) break;
    }
  }
  return fit;
}

}  // namespace tenon::quant
