#include "fit.hpp"

#include <cstring>

// Functions whose bodies are compiled twice, for every machine and for AVX2: `name`(parameters) calls
// `name`_in_lanes(arguments). There are no fused operations, so that both have the same results;
// registers of 512 bits gain nothing here.
#if defined(__x86_64__)
#define TENON_IN_LANES(Result, name, parameters, arguments)                \
  [[gnu::target("avx2")]] static Result name##_avx2 parameters noexcept {  \
    return name##_in_lanes arguments;                                      \
  }                                                                        \
  Result name parameters noexcept {                                        \
    return has_avx2() ? name##_avx2 arguments : name##_in_lanes arguments; \
  }
#else
#define TENON_IN_LANES(Result, name, parameters, arguments) \
  Result name parameters noexcept { return name##_in_lanes arguments; }
#endif
#define TENON_LANES_BODY [[gnu::always_inline]] static inline

namespace tenon::quant {

#if defined(__x86_64__)
static bool has_avx2() noexcept {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#endif

/// Four doubles: a register of AVX2, two of SSE2. Given by reference, since vectors are passed
/// differently from one instruction set to another.
constexpr std::size_t lanes = 4;
typedef double Lanes [[gnu::vector_size(lanes * sizeof(double))]];
typedef float Floats [[gnu::vector_size(lanes * sizeof(float))]];
typedef std::int32_t Integers32 [[gnu::vector_size(lanes * sizeof(std::int32_t))]];

TENON_LANES_BODY void load(std::span<const float> in, std::size_t first, Lanes& x) noexcept {
  Floats floats;
  std::memcpy(&floats, in.data() + first, sizeof floats);
  x = __builtin_convertvector(floats, Lanes);
}

/// Sums of eight parts, so that additions need not wait for one another.
using Parts = Lanes[2];
TENON_LANES_BODY double sum_of(const Parts& parts) noexcept {
  const Lanes &a = parts[0], &b = parts[1];
  return ((a[0] + a[1]) + (a[2] + a[3])) + ((b[0] + b[1]) + (b[2] + b[3]));
}

/// Calls `visit(x, part)` with all elements, four at a time; part: 0 and 1 in turn.
template <class Visit>
TENON_LANES_BODY void each_four(std::span<const float> in, const Visit& visit) noexcept {
  for (std::size_t i = 0; i < in.size(); i += 2 * lanes) {
    Lanes x, next;
    load(in, i, x);
    load(in, i + lanes, next);
    visit(x, 0);
    visit(next, 1);
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

TENON_LANES_BODY double squared_error_in_lanes(std::span<const float> in, double scale, int low,
                                               int high) noexcept {
  Parts sum{};
  each_four(in, [&](const Lanes& x, int part) {
    Lanes level = x;
    divide_lanes(level, scale);
    round_lanes(level, low, high);
    const Lanes difference = x - scale * level;
    sum[part] += difference * difference;
  });
  return sum_of(sum);
}
TENON_IN_LANES(double, squared_error, (std::span<const float> in, double scale, int low, int high),
               (in, scale, low, high))

TENON_LANES_BODY double squared_error_in_lanes(std::span<const float> in, Affine pair,
                                               int high) noexcept {
  Parts sum{};
  each_four(in, [&](const Lanes& x, int part) {
    Lanes code = x + pair.min;
    divide_lanes(code, pair.scale);
    round_lanes(code, 0, high);
    const Lanes difference = x - (pair.scale * code - pair.min);
    sum[part] += difference * difference;
  });
  return sum_of(sum);
}
TENON_IN_LANES(double, squared_error, (std::span<const float> in, Affine pair, int high),
               (in, pair, high))

TENON_LANES_BODY float fit_scale_in_lanes(std::span<const float> in, int low, int high) noexcept {
  return fit_scale_by(in, low, high, [&](double factor) {
    Parts product{}, square{};
    each_four(in, [&](const Lanes& x, int part) {
      Lanes level = x * factor;
      round_lanes(level, low, high);
      product[part] += x * level;
      square[part] += level * level;
    });
    return LevelSums{sum_of(product), sum_of(square)};
  });
}
TENON_IN_LANES(float, fit_scale, (std::span<const float> in, int low, int high), (in, low, high))

/// Of codes q of elements x: sums of 1, q, q^2, x and x q.
struct Sums {
  double count, q1, q2, x1, xq;
};

/// With the codes under x = q / factor + bottom.
TENON_LANES_BODY Sums sums_of(std::span<const float> in, double x1, double bottom, double factor,
                              int high) noexcept {
  Parts q1{}, q2{}, xq{};
  if (!std::isfinite(factor)) factor = 0;
  each_four(in, [&](const Lanes& x, int part) {
    Lanes q = (x - bottom) * factor;
    round_lanes(q, 0, high);
    q1[part] += q;
    q2[part] += q * q;
    xq[part] += x * q;
  });
  return {static_cast<double>(in.size()), sum_of(q1), sum_of(q2), x1, sum_of(xq)};
}

struct Gain {
  Affine pair;
  double gain;  ///< sum x^2 less the squared error
};

/// Least squares of x = scale q - min, and through the origin where the min would be negative.
TENON_LANES_BODY Gain gain_of(const Sums& s) noexcept {
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

TENON_LANES_BODY Affine fit_affine_in_lanes(std::span<const float> in, int high) noexcept {
  float least = in[0], most = in[0];
  for (const float x : in) {
    least = x < least ? x : least;
    most = x > most ? x : most;
  }
  // A min cannot lift values.
  const double bottom = least < 0 ? static_cast<double>(least) : 0.0;
  const double top = most > 0 ? static_cast<double>(most) : 0.0;
  if (top == bottom) return {};

  double x1 = 0;
  for (const float x : in) x1 += static_cast<double>(x);
  Affine best;
  double gain = 0;
  constexpr int steps = 12;
  for (int step = -steps; step <= steps; ++step) {
    // From a range slightly wider than that of the values to one that cuts off the outermost.
    const double factor = (high + 0.08 * step) / (top - bottom);
    const Gain fit = gain_of(sums_of(in, x1, bottom, factor, high));
    if (fit.gain > gain) {
      gain = fit.gain;
      best = fit.pair;
    }
  }
  // The codes that are nearest under these, and theirs.
  for (int round = 0; round < 2 && best.scale > 0; ++round) {
    const Gain fit = gain_of(sums_of(in, x1, -best.min, 1 / best.scale, high));
    if (!(fit.gain > gain)) break;
    gain = fit.gain;
    best = fit.pair;
  }
  return best;
}
TENON_IN_LANES(Affine, fit_affine, (std::span<const float> in, int high), (in, high))

}  // namespace tenon::quant
