#include "fit.hpp"

#include <cstring>

// Functions whose bodies are compiled four times, for every machine and for AVX2, and without importances
// and with them: `name`(parameters), the first of which are Elements `in`, calls
// `name`_in_lanes<Weights>(arguments). There are no fused operations, so that both have the same results;
// registers of 512 bits gain nothing here.
#define TENON_BY_WEIGHTS(name, arguments) \
  (in.importance == nullptr ? name##_in_lanes<Ones> arguments : name##_in_lanes<Lanes> arguments)
#if defined(__x86_64__)
#define TENON_IN_LANES(Result, name, parameters, arguments)                        \
  [[gnu::target("avx2")]] static Result name##_avx2 parameters noexcept {          \
    return TENON_BY_WEIGHTS(name, arguments);                                      \
  }                                                                                \
  Result name parameters noexcept {                                                \
    return has_avx2() ? name##_avx2 arguments : TENON_BY_WEIGHTS(name, arguments); \
  }
#else
#define TENON_IN_LANES(Result, name, parameters, arguments) \
  Result name parameters noexcept { return TENON_BY_WEIGHTS(name, arguments); }
#endif
#define TENON_LANES_BODY [[gnu::always_inline]] static inline

namespace tenon::quant {

#if defined(__x86_64__)
static bool has_avx2() noexcept { return __builtin_cpu_supports("avx2") != 0; }
#endif

/// Four doubles: a register of AVX2, two of SSE2. Given by reference, since vectors are passed
/// differently from one instruction set to another.
constexpr std::size_t lanes = 4;
typedef double Lanes [[gnu::vector_size(lanes * sizeof(double))]];
typedef float Floats [[gnu::vector_size(lanes * sizeof(float))]];
typedef std::int32_t Integers32 [[gnu::vector_size(lanes * sizeof(std::int32_t))]];

TENON_LANES_BODY void load(const float* in, Lanes& x) noexcept {
  Floats floats;
  std::memcpy(&floats, in, sizeof floats);
  x = __builtin_convertvector(floats, Lanes);
}

/// Sums of eight parts, so that additions need not wait for one another.
using Parts = Lanes[2];
TENON_LANES_BODY double sum_of(const Parts& parts) noexcept {
  const Lanes &a = parts[0], &b = parts[1];
  return ((a[0] + a[1]) + (a[2] + a[3])) + ((b[0] + b[1]) + (b[2] + b[3]));
}

/// The importances of four elements that count alike.
struct Ones {};
TENON_LANES_BODY void multiply(Lanes&, const Ones&) noexcept {}
TENON_LANES_BODY void multiply(Lanes& x, const Lanes& weights) noexcept { x *= weights; }
TENON_LANES_BODY void load_weights(const Elements&, std::size_t, Ones&) noexcept {}
TENON_LANES_BODY void load_weights(const Elements& in, std::size_t first, Lanes& weights) noexcept {
  load(in.importance + first, weights);
}

/// Calls `visit(x, weights, part)` with all elements, four at a time; part: 0 and 1 in turn.
template <class Weights, class Visit>
TENON_LANES_BODY void each_four(const Elements& in, const Visit& visit) noexcept {
  for (std::size_t i = 0; i < in.x.size(); i += 2 * lanes) {
    Lanes x, next;
    Weights weights, next_weights;
    load(in.x.data() + i, x);
    load(in.x.data() + i + lanes, next);
    load_weights(in, i, weights);
    load_weights(in, i + lanes, next_weights);
    visit(x, weights, 0);
    visit(next, next_weights, 1);
  }
}

/// As nearest(), of every lane.
TENON_LANES_BODY void round_lanes(Lanes& value, double low, double high) noexcept {
  const Lanes lows = low - Lanes{}, highs = high - Lanes{};
  value = value < lows ? lows : value;
  value = value > highs ? highs : value;
  const Integers32 steps = __builtin_convertvector(value - low + 0.5, Integers32);
  value = __builtin_convertvector(steps, Lanes) + low;
}
/// As ratio(), of every lane.
TENON_LANES_BODY void divide_lanes(Lanes& x, double scale) noexcept {
  x = x / scale;
  x = x - x == 0.0 ? x : Lanes{};
}

template <class Weights>
TENON_LANES_BODY double squared_error_in_lanes(const Elements& in, double scale, int low,
                                               int high) noexcept {
  Parts sum{};
  each_four<Weights>(in, [&](const Lanes& x, const auto& weights, int part) {
    Lanes level = x;
    divide_lanes(level, scale);
    round_lanes(level, low, high);
    const Lanes difference = x - scale * level;
    Lanes weighted = difference;
    multiply(weighted, weights);
    sum[part] += weighted * difference;
  });
  return sum_of(sum);
}
TENON_IN_LANES(double, squared_error, (const Elements& in, double scale, int low, int high),
               (in, scale, low, high))

template <class Weights>
TENON_LANES_BODY double squared_error_in_lanes(const Elements& in, Affine pair, int high) noexcept {
  Parts sum{};
  each_four<Weights>(in, [&](const Lanes& x, const auto& weights, int part) {
    Lanes code = x + pair.min;
    divide_lanes(code, pair.scale);
    round_lanes(code, 0, high);
    const Lanes difference = x - (pair.scale * code - pair.min);
    Lanes weighted = difference;
    multiply(weighted, weights);
    sum[part] += weighted * difference;
  });
  return sum_of(sum);
}
TENON_IN_LANES(double, squared_error, (const Elements& in, Affine pair, int high), (in, pair, high))

template <class Weights>
TENON_LANES_BODY LevelSums level_sums_in_lanes(const Elements& in, double factor, int low,
                                               int high) noexcept {
  Parts product{}, square{};
  each_four<Weights>(in, [&](const Lanes& x, const auto& weights, int part) {
    Lanes level = x * factor;
    round_lanes(level, low, high);
    Lanes weighted = level;
    multiply(weighted, weights);
    product[part] += x * weighted;
    square[part] += level * weighted;
  });
  return {sum_of(product), sum_of(square)};
}
TENON_IN_LANES(LevelSums, level_sums, (const Elements& in, double factor, int low, int high),
               (in, factor, low, high))

template <class Weights>
TENON_LANES_BODY float fit_scale_in_lanes(const Elements& in, int low, int high) noexcept {
  return fit_scale_by(in, low, high, [&](double factor) {
    return level_sums_in_lanes<Weights>(in, factor, low, high);
  });
}
TENON_IN_LANES(float, fit_scale, (const Elements& in, int low, int high), (in, low, high))

/// The sums without codes.
TENON_LANES_BODY CodeSums totals_of(const Elements& in) noexcept {
  CodeSums totals{};
  for (std::size_t i = 0; i < in.x.size(); ++i) {
    totals.count += in.weight(i);
    totals.x1 += in.weight(i) * static_cast<double>(in.x[i]);
  }
  return totals;
}

/// With the codes under x = q / factor + bottom; `totals`: the sums of 1 and x.
template <class Weights>
TENON_LANES_BODY CodeSums sums_of(const Elements& in, const CodeSums& totals, double bottom,
                                  double factor, int high) noexcept {
  Parts q1{}, q2{}, xq{};
  if (!std::isfinite(factor)) factor = 0;
  each_four<Weights>(in, [&](const Lanes& x, const auto& weights, int part) {
    Lanes q = (x - bottom) * factor;
    round_lanes(q, 0, high);
    Lanes weighted = q;
    multiply(weighted, weights);
    q1[part] += weighted;
    q2[part] += q * weighted;
    xq[part] += x * weighted;
  });
  return {totals.count, sum_of(q1), sum_of(q2), totals.x1, sum_of(xq)};
}

template <class Weights>
TENON_LANES_BODY CodeSums code_sums_in_lanes(const Elements& in, Affine pair, int high) noexcept {
  return sums_of<Weights>(in, totals_of(in), -pair.min, 1 / pair.scale, high);
}
TENON_IN_LANES(CodeSums, code_sums, (const Elements& in, Affine pair, int high), (in, pair, high))

struct Gain {
  Affine pair;
  double gain;  ///< sum x^2, each times the importance, less the error
};

/// Least squares of x = scale q - min, and through the origin where the min would be negative.
TENON_LANES_BODY Gain gain_of(const CodeSums& s) noexcept {
  if (s.q2 == 0) {
    const double min = s.x1 < 0 ? -s.x1 / s.count : 0.0;
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

template <class Weights>
TENON_LANES_BODY Affine fit_affine_in_lanes(const Elements& in, int high) noexcept {
  float least = in.x[0], most = in.x[0];
  for (const float x : in.x) {
    least = x < least ? x : least;
    most = x > most ? x : most;
  }
  // A min cannot lift values.
  const double bottom = least < 0 ? static_cast<double>(least) : 0.0;
  const double top = most > 0 ? static_cast<double>(most) : 0.0;
  if (top == bottom) return {};

  const CodeSums totals = totals_of(in);
  Affine best;
  double gain = 0;
  constexpr int steps = 12;
  for (int step = -steps; step <= steps; ++step) {
    // From a range slightly wider than that of the values to one that cuts off the outermost.
    const double factor = (high + 0.08 * step) / (top - bottom);
    const Gain fit = gain_of(sums_of<Weights>(in, totals, bottom, factor, high));
    if (fit.gain > gain) {
      gain = fit.gain;
      best = fit.pair;
    }
  }
  if (in.importance != nullptr) {  // elements that count little may lie outside
    constexpr int cuts = 6;
    const double cut = 0.4 / cuts * (top - bottom);
    for (int low = 0; low <= cuts; ++low) {
      for (int high_cuts = 0; high_cuts <= cuts; ++high_cuts) {
        const double from = bottom + cut * low, range = top - cut * high_cuts - from;
        const Gain fit = gain_of(sums_of<Weights>(in, totals, from, high / range, high));
        if (fit.gain > gain) {
          gain = fit.gain;
          best = fit.pair;
        }
      }
    }
  }
  // The codes that are nearest under these, and theirs.
  for (int round = 0; round < 2 && best.scale > 0; ++round) {
    const Gain fit = gain_of(sums_of<Weights>(in, totals, -best.min, 1 / best.scale, high));
    if (!(fit.gain > gain)) break;
    gain = fit.gain;
    best = fit.pair;
  }
  return best;
}
TENON_IN_LANES(Affine, fit_affine, (const Elements& in, int high), (in, high))

}  // namespace tenon::quant
