#pragma once

#include "half.hpp"

#include <tenon/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// Scales that keep the squared error of a sub-block small.
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
double squared_error(std::span<const float> in, double scale, int low, int high) noexcept;
float fit_scale(std::span<const float> in, int low, int high) noexcept;

/// The squared error of `in` under one scale.
template <class Codebook>
double squared_error(std::span<const float> in, double scale) noexcept {
  if constexpr (are_integers<Codebook>) {
    return squared_error(in, scale, Codebook::low, Codebook::high);
  } else {
    double sum = 0;
    for (const double x : in) {
      const double difference = x - scale * Codebook::level(ratio(x, scale));
      sum += difference * difference;
    }
    return sum;
  }
}

/// Of x and their levels under 1 / factor: sums of products, and of the levels' squares.
struct LevelSums {
  double product, square;
};

/// In four parts each, so that additions need not wait for one another.
template <class Codebook>
LevelSums level_sums(std::span<const float> in, double factor) noexcept {
  double product[4] = {}, square[4] = {};
  for (std::size_t i = 0; i < in.size(); i += 4) {
    for (std::size_t lane = 0; lane < 4; ++lane) {
      const double x = in[i + lane];
      const double level = Codebook::level(x * factor);
      product[lane] += x * level;
      square[lane] += level * level;
    }
  }
  return {(product[0] + product[1]) + (product[2] + product[3]),
          (square[0] + square[1]) + (square[2] + square[3])};
}

/// The scale, of either sign, under which levels from `low` to `high` lie closest to `in`; 0 for zeros.
/// `sums(factor)`: LevelSums.
template <class Sums>
[[gnu::always_inline]] inline float fit_scale_by(std::span<const float> in, int low, int high,
                                                 const Sums& sums) noexcept {
  double extreme = 0;
  for (const double x : in) {
    if (std::fabs(x) > std::fabs(extreme)) extreme = x;
  }
  if (extreme == 0) return 0.0f;

  // Either end of the codebook may stand for the extreme element, give or take a part of a step.
  constexpr int steps = 9;
  double best_scale = extreme / low, best_gain = -1.0;
  for (const int end : {low, high}) {
    for (int step = -steps; step <= steps; ++step) {
      const double target = end * (1.0 + 0.02 * step);
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
float fit_scale(std::span<const float> in) noexcept {
  if constexpr (are_integers<Codebook>) {
    return fit_scale(in, Codebook::low, Codebook::high);
  } else {
    return fit_scale_by(in, Codebook::low, Codebook::high,
                        [in](double factor) { return level_sums<Codebook>(in, factor); });
  }
}

/// Integer scales of a block's sub-blocks under one f16 scale.
template <std::size_t count>
struct BlockScales {
  std::uint16_t d = 0;
  int scales[count] = {};

  /// As a decoder computes it.
  float scale(int b) const noexcept { return widen(d) * static_cast<float>(scales[b]); }
};

/// Fits each of `count` sub-blocks of a block of 256, then rounds its scale to an integer of [low,
/// high], where low is the longer end, times an f16.
template <class Codebook, std::size_t count>
BlockScales<count> fit_scales(const float* in, int low, int high) noexcept {
  constexpr std::size_t length = 256 / count;
  float wanted[count];
  float largest = 0;
  for (std::size_t b = 0; b < count; ++b) {
    wanted[b] = fit_scale<Codebook>({in + b * length, length});
    if (std::fabs(wanted[b]) > std::fabs(largest)) largest = wanted[b];
  }

  BlockScales<count> fit;
  fit.d = to_half(largest / static_cast<float>(low)).bits;
  const double d = widen(fit.d);
  for (std::size_t b = 0; b < count; ++b) {
    const std::span<const float> part{in + b * length, length};
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
  }
  return fit;
}

/// x ~ scale q - min with q in [0, high]; both at least 0.
struct Affine {
  double scale = 0, min = 0;
};

/// The best such pair found for `in`.
Affine fit_affine(std::span<const float> in, int high) noexcept;

/// Code of x under the pair.
inline int affine_code(double x, Affine pair, int high) noexcept {
  return nearest(ratio(x + pair.min, pair.scale), 0, high);
}

/// The squared error of `in` under the pair.
double squared_error(std::span<const float> in, Affine pair, int high) noexcept;

/// Integer scales and mins of a block's sub-blocks under one f16 scale each.
template <std::size_t count>
struct BlockAffine {
  std::uint16_t d = 0, dmin = 0;
  int scales[count] = {}, mins[count] = {};

  /// As a decoder computes it.
  Affine pair(int b) const noexcept {
    return {widen(d) * static_cast<float>(scales[b]), widen(dmin) * static_cast<float>(mins[b])};
  }
};

/// Fits each of `count` sub-blocks of a block of 256 with codes [0, high], then rounds its scale
/// and its min to integers of [0, range].
template <std::size_t count>
BlockAffine<count> fit_affines(const float* in, int high, int range) noexcept {
  constexpr std::size_t length = 256 / count;
  Affine wanted[count];
  double largest_scale = 0, largest_min = 0;
  for (std::size_t b = 0; b < count; ++b) {
    wanted[b] = fit_affine({in + b * length, length}, high);
    largest_scale = std::max(largest_scale, wanted[b].scale);
    largest_min = std::max(largest_min, wanted[b].min);
  }

  BlockAffine<count> fit;
  fit.d = to_half(static_cast<float>(largest_scale / range)).bits;
  fit.dmin = to_half(static_cast<float>(largest_min / range)).bits;
  const double d = widen(fit.d), dmin = widen(fit.dmin);
  for (std::size_t b = 0; b < count; ++b) {
    const std::span<const float> part{in + b * length, length};
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
  }
  return fit;
}

}  // namespace tenon::quant
