#pragma once

// Rows. Included after a header of simd/, by the sources of one instruction set each.
#include "point_body.hpp"
#include "typed.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {
namespace {

/// Sum of term(x[i]) in f64: element i belongs to sum i mod 16 on every instruction set, and the 16
/// sums are folded by halves.
template <class Term>
TENON_INLINE double total(const float* x, std::int64_t count, Term term) {
  constexpr int sums = 16, wide = Simd::lanes / 2, vectors = sums / wide;
  Doubles partial[vectors] = {};
  std::int64_t i = 0;
  for (; i + sums <= count; i += sums) {
    for (int v = 0; v < vectors; ++v) {
      FewFloats part;
      __builtin_memcpy(&part, x + i + v * wide, sizeof part);
      partial[v] += term(widened(part));
    }
  }
  double sum[sums];
  __builtin_memcpy(sum, partial, sizeof sum);
  for (int j = 0; i < count; ++i, ++j) sum[j] += term(static_cast<double>(x[i]));
  for (int half = sums / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
  }
  return sum[0];
}

double run_sum_row(const float* x, std::int64_t count) noexcept {
  return total(x, count, [](auto v) { return v; });
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

/// The 16 sums of total() for each of some columns, whose elements come row by row.
struct ColumnSums {
  static constexpr int sums = 16;
  double partial[sums][column_block] = {};

  TENON_INLINE void add(const float* row, std::int64_t columns, std::int64_t number) {
    double* const part = partial[number % sums];
    for (std::int64_t c = 0; c < columns; ++c) part[c] += static_cast<double>(row[c]);
  }
  TENON_INLINE const double* fold(std::int64_t columns) {
    for (int half = sums / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) {
        for (std::int64_t c = 0; c < columns; ++c) partial[j][c] += partial[j + half][c];
      }
    }
    return partial[0];
  }
};

void column_peaks(const Columns& x, float* peak) {
  for (std::int64_t c = 0; c < x.columns; ++c) peak[c] = -__builtin_inff();
  for (std::int64_t i = 0; i < x.rows; ++i) {
    map([](Float v, Float best) { return greater(v, best); }, peak, x.columns,
        Array{x.from + i * x.step}, Array{peak});
  }
}

void run_softmax_columns(const Columns& x, float* y, std::int64_t y_step) noexcept {
  float peak[column_block], scale[column_block];
  column_peaks(x, peak);
  ColumnSums sums;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    float* const row = y + i * y_step;
    map([](Float v, Float most) { return exponential(v - most); }, row, x.columns,
        Array{x.from + i * x.step}, Array{peak});
    sums.add(row, x.columns, i);
  }
  const double* const sum = sums.fold(x.columns);
  for (std::int64_t c = 0; c < x.columns; ++c) scale[c] = static_cast<float>(1.0 / sum[c]);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    float* const row = y + i * y_step;
    map([](Float v, Float by) { return v * by; }, row, x.columns, Array{row}, Array{scale});
  }
}

void run_log_softmax_columns(const Columns& x, float* y, std::int64_t y_step) noexcept {
  constexpr std::int64_t block = 128;  // as run_log_softmax_row
  float peak[column_block], scale[column_block], powers[column_block];
  double sum[column_block] = {};
  column_peaks(x, peak);
  for (std::int64_t first = 0; first < x.rows; first += block) {
    ColumnSums sums;
    const std::int64_t last = x.rows - first < block ? x.rows : first + block;
    for (std::int64_t i = first; i < last; ++i) {
      map([](Float v, Float most) { return exponential(v - most); }, powers, x.columns,
          Array{x.from + i * x.step}, Array{peak});
      sums.add(powers, x.columns, i - first);
    }
    const double* const part = sums.fold(x.columns);
    for (std::int64_t c = 0; c < x.columns; ++c) sum[c] += part[c];
  }
  for (std::int64_t c = 0; c < x.columns; ++c) scale[c] = static_cast<float>(sum[c]);
  map([](Float v) { return logarithm(v); }, scale, x.columns, Array{scale});
  for (std::int64_t i = 0; i < x.rows; ++i) {
    map([](Float v, Float most, Float by) { return (v - most) - by; }, y + i * y_step, x.columns,
        Array{x.from + i * x.step}, Array{peak}, Array{scale});
  }
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
