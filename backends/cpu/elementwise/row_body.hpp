#pragma once

// Rows. Included after a header of simd/, by the sources of one instruction set each.
#include "gathering_body.hpp"
#include "point_body.hpp"
#include "store_half_body.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {
namespace {

constexpr int wide_lanes = lanes / 2;         ///< of Doubles
constexpr int row_vectors = 16 / wide_lanes;  ///< of the 16 sums of total()

struct Itself {
  TENON_INLINE Doubles operator()(Doubles v) const { return v; }
};

/// total() of several rows at once, but for its last steps: each element of a vector is the sum of
/// those 16 / wide_lanes apart.
template <int rows, class Term>
TENON_INLINE void begin_totals(const float* const* x, std::int64_t count, Doubles* sums,
                               Term term) {
  // Loops are unrolled by name, or GCC 12 keeps the sums in memory.
  Doubles partial[static_cast<unsigned>(rows)][row_vectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows * row_vectors; ++i) {
    partial[i / row_vectors][i % row_vectors] = Doubles{};
  }
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < row_vectors; ++v) {
        partial[r][v] += term(load_as_sums<float, double>(x[r] + i + v * wide_lanes));
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < row_vectors; v += 2, i += lanes) {
    const std::int64_t left = count - i;
    if (left <= 0) continue;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const Float last = load(x[r] + i, left);
      FewFloats parts[2];
      __builtin_memcpy(parts, &last, sizeof last);
      const Doubles first = partial[r][v] + term(widened(parts[0]));
      const Doubles second = partial[r][v + 1] + term(widened(parts[1]));
      partial[r][v] = left < wide_lanes ? first_lanes<double>(left, first, partial[r][v]) : first;
      partial[r][v + 1] =
          left < lanes ? first_lanes<double>(left - wide_lanes, second, partial[r][v + 1]) : second;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int half = row_vectors / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
      for (int v = 0; v < half; ++v) partial[r][v] += partial[r][v + half];
    }
    sums[r] = partial[r][0];
  }
}

/// Sum of term(x[i]) in f64: element i belongs to sum i mod 16 on every instruction set, and the 16
/// sums are folded by halves.
template <class Term>
TENON_INLINE double total(const float* x, std::int64_t count, Term term) {
  Doubles sums;
  begin_totals<1>(&x, count, &sums, term);
  double sum[wide_lanes];
  __builtin_memcpy(sum, &sums, sizeof sum);
#pragma GCC unroll 3
  for (int half = wide_lanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
  }
  return sum[0];
}

double run_sum_row(const float* x, std::int64_t count) noexcept {
  return total(x, count, Itself{});
}

float inverse_root(double square, double eps) {
  return static_cast<float>(1.0 / __builtin_sqrt(square + eps));
}

void run_rms_norm_row(const float* x, const float* weight, float eps, float* y,
                      std::int64_t count) noexcept {
  const double squares = total(x, count, [](auto v) { return v * v; });
  const Float scale =
      set(inverse_root(squares / static_cast<double>(count), static_cast<double>(eps)));
  if (weight == nullptr) return map([=](Float v) { return v * scale; }, y, count, Array{x});
  map([=](Float v, Float w) { return v * scale * w; }, y, count, Array{x}, Array{weight});
}

void run_layer_norm_row(const float* x, const float* weight, const float* bias, float eps, float* y,
                        std::int64_t count) noexcept {
  const double mean = run_sum_row(x, count) / static_cast<double>(count);
  const double squares = total(x, count, [mean](auto v) { return (v - mean) * (v - mean); });
  const Float centre = set(static_cast<float>(mean));
  const Float scale =
      set(inverse_root(squares / static_cast<double>(count), static_cast<double>(eps)));
  const auto run = [=](auto w, auto b) {
    map([=](Float v, Float gain, Float shift) { return fma((v - centre) * scale, gain, shift); }, y,
        count, Array{x}, w, b);
  };
  const Constant one{set(1.0f)}, zero{set(0.0f)};
  if (weight != nullptr && bias != nullptr) return run(Array{weight}, Array{bias});
  if (weight != nullptr) return run(Array{weight}, zero);
  if (bias != nullptr) return run(one, Array{bias});
  run(one, zero);
}

/// Numbers 0, 1, .. of lanes.
template <int... i>
TENON_INLINE Mask lane_numbers(std::integer_sequence<int, i...>) {
  return Mask{i...};
}
template <int half, class V, int... i>
TENON_INLINE V halves_exchanged(const V& a, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, a, (i ^ half)...);
}
/// In every lane what is picked of all.
template <int half, class Pick>
TENON_INLINE Float picked(Float a, Pick pick) {
  const Float b = pick(halves_exchanged<half>(a, std::make_integer_sequence<int, lanes>()), a);
  if constexpr (half > 1) {
    return picked<half / 2>(b, pick);
  } else {
    return b;
  }
}

/// Whether a NaN has been among some vectors.
class NotNumbers {
 public:
#if defined(__AVX512F__)
  TENON_INLINE void look(Float a, Float b) {
    seen_ = static_cast<__mmask16>(seen_ | _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q));
  }
  TENON_INLINE bool any() const { return seen_ != 0; }

 private:
  __mmask16 seen_ = 0;
#elif defined(__AVX2__)
  TENON_INLINE void look(Float a, Float b) {
    seen_ = _mm256_or_ps(seen_, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
  }
  TENON_INLINE bool any() const { return _mm256_movemask_ps(seen_) != 0; }

 private:
  Float seen_ = {};
#else
  TENON_INLINE void look(Float a, Float b) { seen_ |= (a != a) | (b != b); }
  TENON_INLINE bool any() const { return !all(seen_ == 0); }

 private:
  Mask seen_ = {};
#endif
};

struct Largest {
  static constexpr float start = -__builtin_inff();
  TENON_INLINE Float operator()(Float a, Float b) const { return Simd::max(a, b); }
};
struct Smallest {
  static constexpr float start = __builtin_inff();
  TENON_INLINE Float operator()(Float a, Float b) const { return Simd::min(a, b); }
};

/// What is picked of the elements that are a multiple of `lanes` apart. Picks see no NaN that counts:
/// these are looked for apart, which takes less time.
template <class Pick>
TENON_INLINE Float pick_lanes(const float* x, std::int64_t count, Pick pick, NotNumbers& bad) {
  constexpr std::int64_t vectors = 4;  // so many picks do not wait for each other
  const Float none = set(Pick::start);
  Float some[vectors] = {none, none, none, none};
  const auto take = [&](std::int64_t v, Float a, Float b) {
    some[v] = pick(a, some[v]);
    some[v + 1] = pick(b, some[v + 1]);
    bad.look(a, b);
  };
  std::int64_t i = 0;
  for (; i + vectors * lanes <= count; i += vectors * lanes) {
    take(0, Simd::load_float(x + i), Simd::load_float(x + i + lanes));
    take(2, Simd::load_float(x + i + 2 * lanes), Simd::load_float(x + i + 3 * lanes));
  }
  if (i + 2 * lanes <= count) {
    take(0, Simd::load_float(x + i), Simd::load_float(x + i + lanes));
    i += 2 * lanes;
  }
  if (i + lanes <= count) {
    take(2, Simd::load_float(x + i), none);
    i += lanes;
  }
  if (i < count) {
    const auto left = static_cast<std::int32_t>(count - i);
    const Mask is_there = lane_numbers(std::make_integer_sequence<int, lanes>()) < left;
    take(0, is_there ? load(x + i, left) : none, none);
  }
  return pick(pick(some[0], some[1]), pick(some[2], some[3]));
}

template <class Pick>
TENON_INLINE float extreme(const float* x, std::int64_t count) {
  NotNumbers bad;
  const Float best = pick_lanes(x, count, Pick{}, bad);
  return bad.any() ? __builtin_nanf("") : picked<lanes / 2>(best, Pick{})[0];
}
float run_max_row(const float* x, std::int64_t count) noexcept {
  return extreme<Largest>(x, count);
}
float run_min_row(const float* x, std::int64_t count) noexcept {
  return extreme<Smallest>(x, count);
}

void run_softmax_row(const float* x, float* y, std::int64_t count) noexcept {
  const Float peak = set(run_max_row(x, count));
  map([=](Float v) { return exponential(v - peak); }, y, count, Array{x});
  const Float scale = set(static_cast<float>(1.0 / run_sum_row(y, count)));
  map([=](Float v) { return v * scale; }, y, count, Array{y});
}

void run_log_softmax_row(const float* x, float* y, std::int64_t count) noexcept {
  constexpr std::int64_t block = 128;
  const Float peak = set(run_max_row(x, count));
  double sum = 0;
  for (std::int64_t i = 0; i < count; i += block) {
    const std::int64_t n = count - i < block ? count - i : block;
    float powers[block];
    map([=](Float v) { return exponential(v - peak); }, powers, n, Array{x + i});
    sum += run_sum_row(powers, n);
  }
  // Both subtracted one after the other: their sum would round away digits of the smaller one.
  float part[lanes];
  Simd::store_float(part, logarithm(set(static_cast<float>(sum))));
  const Float scale = set(part[0]);
  map([=](Float v) { return (v - peak) - scale; }, y, count, Array{x});
}

/// Rows of f32, f16 or bf16, `step` bytes apart.
template <class T>
struct RowsOf {
  const char* from;
  std::int64_t step;
  /// Elements of row i from column c on, of which `left` are there.
  TENON_INLINE Float at(std::int64_t i, std::int64_t c, std::int64_t left) const {
    const auto* const x = reinterpret_cast<const T*>(from + i * step) + c;
    if constexpr (is_half<T>) {
      if (left >= lanes) return load_halves(x);
      T padded[lanes] = {};
      __builtin_memcpy(padded, x, static_cast<std::size_t>(left) * sizeof(T));
      return load_halves(padded);
    } else {
      return load(x, left);
    }
  }
};
template <class T>
struct ResultRowsOf {
  char* to;
  std::int64_t step;
  TENON_INLINE void put(std::int64_t i, std::int64_t c, std::int64_t left, Float v) const {
    auto* const y = reinterpret_cast<T*>(to + i * step) + c;
    if constexpr (is_half<T>) {
      std::uint16_t bits[lanes];
      std::is_same_v<T, F16Bits> ? store_f16(bits, v) : store_bf16(bits, v);
      if (left >= lanes) {
        __builtin_memcpy(y, bits, sizeof bits);
      } else {
        __builtin_memcpy(y, bits, static_cast<std::size_t>(left) * sizeof(T));
      }
    } else {
      store(y, v, left);
    }
  }
};

/// Adjacent columns, `vectors` vectors of them or less.
template <int vectors>
struct ColumnStrip {
  static constexpr int sums = 16;  // of total(), for each column
  Float peak[static_cast<unsigned>(vectors)];
  Doubles partial[sums][2 * static_cast<unsigned>(vectors)];

  /// f(vector, its first column, how many columns are left from there).
  template <class F>
  TENON_INLINE static void each(std::int64_t columns, F f) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) f(v, v * lanes, columns - v * lanes);
  }

  /// The greatest numbers: a NaN makes the sum of powers NaN and with it the whole column.
  template <class In>
  TENON_INLINE void find_peaks(const In& x, std::int64_t rows, std::int64_t columns) {
    Float most[static_cast<unsigned>(vectors)];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) most[v] = set(-__builtin_inff());
    for (std::int64_t i = 0; i < rows; ++i) {
      each(columns, [&](int v, std::int64_t c, std::int64_t left) {
        most[v] = Simd::max(x.at(i, c, left), most[v]);
      });
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) peak[v] = most[v];
  }

  /// To sum number % 16 of vector v, of which it is the first or not.
  template <bool is_first>
  TENON_INLINE void add(int v, Float powers, std::int64_t number) {
    FewFloats parts[2];
    __builtin_memcpy(parts, &powers, sizeof powers);
    Doubles* const part = partial[number % sums] + 2 * v;
    part[0] = is_first ? widened(parts[0]) : part[0] + widened(parts[0]);
    part[1] = is_first ? widened(parts[1]) : part[1] + widened(parts[1]);
  }
  /// The sums of power(row, vector, its first column, columns left from there) over some rows.
  template <class F>
  TENON_INLINE void add_rows(std::int64_t rows, std::int64_t columns, F power) {
    std::int64_t i = 0;
    for (; i < rows && i < sums; ++i) {
      each(columns, [&](int v, std::int64_t c, std::int64_t left) {
        add<true>(v, power(i, v, c, left), i);
      });
    }
    for (; i < rows; ++i) {
      each(columns, [&](int v, std::int64_t c, std::int64_t left) {
        add<false>(v, power(i, v, c, left), i);
      });
    }
    fold(rows);
  }
  /// To partial[0], by halves; powers are not negative, so that sums without any need not be added.
  TENON_INLINE void fold(std::int64_t rows) {
    for (int half = sums / 2; half > 0; half /= 2) {
      for (int j = 0; j < half && j + half < rows; ++j) {
        for (int v = 0; v < 2 * vectors; ++v) partial[j][v] += partial[j + half][v];
      }
    }
  }
  /// f of the folded sums, rounded.
  template <class F>
  TENON_INLINE Float of_sums(int v, F f) const {
    const FewFloats parts[2] = {narrowed(f(partial[0][2 * v])), narrowed(f(partial[0][2 * v + 1]))};
    Float all;
    __builtin_memcpy(&all, parts, sizeof all);
    return all;
  }
};

/// Columns [c, c + columns) of some rows; `powers` may be y.
template <int vectors, class T>
TENON_INLINE void softmax_strip(std::int64_t rows, std::int64_t columns, RowsOf<T> x,
                                ResultRowsOf<float> powers, ResultRowsOf<T> y) {
  ColumnStrip<vectors> strip;
  strip.find_peaks(x, rows, columns);
  strip.add_rows(rows, columns, [&](std::int64_t i, int v, std::int64_t c, std::int64_t left) {
    const Float power = exponential(x.at(i, c, left) - strip.peak[v]);
    powers.put(i, c, left, power);
    return power;
  });
  Float scale[static_cast<unsigned>(vectors)];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    scale[v] = strip.of_sums(v, [](Doubles sum) { return 1.0 / sum; });
  }
  const RowsOf<float> made{powers.to, powers.step};
  for (std::int64_t i = 0; i < rows; ++i) {
    strip.each(columns, [&](int v, std::int64_t c, std::int64_t left) {
      y.put(i, c, left, made.at(i, c, left) * scale[v]);
    });
  }
}

template <int vectors, class T>
TENON_INLINE void log_softmax_strip(std::int64_t rows, std::int64_t columns, RowsOf<T> x,
                                    ResultRowsOf<float>, ResultRowsOf<T> y) {
  constexpr std::int64_t block = 128;  // as run_log_softmax_row
  ColumnStrip<vectors> strip;
  strip.find_peaks(x, rows, columns);
  Doubles sums[2 * static_cast<unsigned>(vectors)] = {};
  for (std::int64_t first = 0; first < rows; first += block) {
    const std::int64_t some = rows - first < block ? rows - first : block;
    strip.add_rows(some, columns, [&](std::int64_t i, int v, std::int64_t c, std::int64_t left) {
      return exponential(x.at(first + i, c, left) - strip.peak[v]);
    });
    for (int v = 0; v < 2 * vectors; ++v) sums[v] += strip.partial[0][v];
  }
  for (int v = 0; v < 2 * vectors; ++v) strip.partial[0][v] = sums[v];
  Float scale[static_cast<unsigned>(vectors)];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    scale[v] = logarithm(strip.of_sums(v, [](Doubles sum) { return sum; }));
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    strip.each(columns, [&](int v, std::int64_t c, std::int64_t left) {
      y.put(i, c, left, (x.at(i, c, left) - strip.peak[v]) - scale[v]);
    });
  }
}

struct SoftmaxStrip {
  template <int vectors, class... Rest>
  TENON_INLINE static void run(Rest... rest) {
    softmax_strip<vectors>(rest...);
  }
};
struct LogSoftmaxStrip {
  template <int vectors, class... Rest>
  TENON_INLINE static void run(Rest... rest) {
    log_softmax_strip<vectors>(rest...);
  }
};

template <class T, class Strip>
void for_each_strip(const Columns& x, void* to, std::int64_t to_step, float* powers) {
  std::int64_t c = 0;
  const auto run = [&]<int vectors>(Width<vectors>, std::int64_t columns) {
    const std::int64_t first = c * static_cast<std::int64_t>(sizeof(T));
    const RowsOf<T> from{static_cast<const char*>(x.from) + first, x.step};
    const ResultRowsOf<T> y{static_cast<char*>(to) + first, to_step};
    if constexpr (is_half<T>) {
      const ResultRowsOf<float> made{reinterpret_cast<char*>(powers), 4 * vectors * lanes};
      Strip::template run<vectors>(x.rows, columns, from, made, y);
    } else {
      Strip::template run<vectors>(x.rows, columns, from, y, y);
    }
    c += columns;
  };
  while (c + 4 * lanes <= x.columns) run(Width<4>{}, 4 * lanes);
  if (c + 2 * lanes <= x.columns) run(Width<2>{}, 2 * lanes);
  if (c + lanes <= x.columns) run(Width<1>{}, lanes);
  if (c < x.columns) run(Width<1>{}, x.columns - c);
}

template <class Strip>
void softmax_columns_by(const Columns& x, void* y, std::int64_t y_step, float* powers) {
  if (x.dtype == DType::f16) return for_each_strip<F16Bits, Strip>(x, y, y_step, powers);
  if (x.dtype == DType::bf16) return for_each_strip<Bf16Bits, Strip>(x, y, y_step, powers);
  for_each_strip<float, Strip>(x, y, y_step, powers);
}
void run_softmax_columns(const Columns& x, void* y, std::int64_t y_step, float* powers) noexcept {
  softmax_columns_by<SoftmaxStrip>(x, y, y_step, powers);
}
void run_log_softmax_columns(const Columns& x, void* y, std::int64_t y_step,
                             float* powers) noexcept {
  softmax_columns_by<LogSoftmaxStrip>(x, y, y_step, powers);
}

void rotate_apart(const float* x, const float* cosines, const float* sines, std::int64_t pairs,
                  float* y) {
  std::int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const Float a = Simd::load_float(x + i), b = Simd::load_float(x + pairs + i);
    const Float c = Simd::load_float(cosines + i), s = Simd::load_float(sines + i);
    Simd::store_float(y + i, fma(a, c, -(b * s)));
    Simd::store_float(y + pairs + i, fma(b, c, a * s));
  }
  if (i == pairs) return;
  const std::int64_t rest = pairs - i;
  const Float a = load(x + i, rest), b = load(x + pairs + i, rest);
  const Float c = load(cosines + i, rest), s = load(sines + i, rest);
  store(y + i, fma(a, c, -(b * s)), rest);
  store(y + pairs + i, fma(b, c, a * s), rest);
}

void rotate_interleaved(const float* x, const float* cosines, const float* sines,
                        std::int64_t pairs, float* y) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * cosines[i] - b * sines[i];
    y[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

void run_rotate_row(const float* x, const float* cosines, const float* sines, std::int64_t pairs,
                    bool interleaved, float* y, std::int64_t size) noexcept {
  (interleaved ? rotate_interleaved : rotate_apart)(x, cosines, sines, pairs, y);
  if (x == y || size <= 2 * pairs) return;
  __builtin_memcpy(y + 2 * pairs, x + 2 * pairs,
                   static_cast<std::size_t>(size - 2 * pairs) * sizeof(float));
}

}  // namespace
}  // namespace tenon::cpu
