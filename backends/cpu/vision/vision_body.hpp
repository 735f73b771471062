#pragma once

// Rows of images. Included after a header of simd/, by the sources of one instruction set each.
#include "vision_kernels.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

using Float = Simd::Float;
constexpr std::int64_t row_lanes = Simd::lanes;

TENON_INLINE Float all_of(float value) { return Simd::broadcast(&value); }

/// The elements j of a row of windows whose tap, `first` elements after the row's first, is inside.
struct Span {
  std::int64_t begin, end;
};
TENON_INLINE Span inside(std::int64_t first, const WindowAxis& across) {
  const std::int64_t begin = first >= 0 ? 0 : (-first + across.stride - 1) / across.stride;
  std::int64_t end = first >= across.inputs ? 0 : (across.inputs - 1 - first) / across.stride + 1;
  end = end < across.outputs ? end : across.outputs;
  return {begin, end < begin ? begin : end};
}

TENON_INLINE void add_row(const float* x, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + row_lanes <= count; i += row_lanes) {
    Simd::store_float(y + i, Simd::add(Simd::load_float(y + i), Simd::load_float(x + i)));
  }
  for (; i < count; ++i) y[i] += x[i];
}

#if defined(__AVX512F__)
TENON_INLINE void interleave(Float a, Float b, Float& low, Float& high) {
  low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  high =
      __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif defined(__AVX2__)
TENON_INLINE void interleave(Float a, Float b, Float& low, Float& high) {
  low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
TENON_INLINE void interleave(Float a, Float b, Float& low, Float& high) {
  low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
#endif

/// y[2 i] += a[i], y[2 i + 1] += b[i].
TENON_INLINE void add_pairs(const float* a, const float* b, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + row_lanes <= count; i += row_lanes) {
    Float low, high;
    interleave(Simd::load_float(a + i), Simd::load_float(b + i), low, high);
    float* const to = y + 2 * i;
    Simd::store_float(to, Simd::add(Simd::load_float(to), low));
    Simd::store_float(to + row_lanes, Simd::add(Simd::load_float(to + row_lanes), high));
  }
  for (; i < count; ++i) {
    y[2 * i] += a[i];
    y[2 * i + 1] += b[i];
  }
}

void run_fold_row(const float* from, std::int64_t tap_step, const WindowAxis& across,
                  float* to) noexcept {
  const std::int64_t stride = across.stride;
  const auto add_tap = [&](std::int64_t s, std::int64_t begin, std::int64_t end) {
    const float* x = from + s * tap_step;
    float* y = to + s * across.dilation - across.before;
    if (stride == 1) return add_row(x + begin, y + begin, end - begin);
    for (std::int64_t j = begin; j < end; ++j) y[j * stride] += x[j];
  };
  for (std::int64_t s = 0; s < across.taps; ++s) {
    const std::int64_t first = s * across.dilation - across.before;
    const Span one = inside(first, across);
    if (stride == 2 && across.dilation == 1 && s + 1 < across.taps) {
      const Span two = inside(first + 1, across);
      const std::int64_t begin = one.begin > two.begin ? one.begin : two.begin;
      const std::int64_t end = one.end < two.end ? one.end : two.end;
      if (begin < end) {
        // At the ends one of the taps may be inside alone.
        add_tap(s, one.begin, begin);
        add_tap(s + 1, two.begin, begin);
        add_pairs(from + s * tap_step + begin, from + (s + 1) * tap_step + begin,
                  to + first + 2 * begin, end - begin);
        add_tap(s, end, one.end);
        add_tap(s + 1, end, two.end);
        ++s;
        continue;
      }
    }
    add_tap(s, one.begin, one.end);
  }
}

/// The sum of what arrives at `place` of the result.
TENON_INLINE float folded_at(const FoldedRows& from, const WindowAxis& across, float start,
                             std::int64_t place) {
  float sum = start;
  const std::int64_t stride = across.stride, whole = place + across.before;
  // Without dilation, only every stride-th tap is at an element.
  const bool is_dense = across.dilation == 1;
  const std::int64_t first = is_dense ? whole % stride : 0, apart = is_dense ? stride : 1;
  for (std::int64_t k = 0; k < from.count; ++k) {
    for (std::int64_t s = first; s < across.taps; s += apart) {
      const std::int64_t at = whole - s * across.dilation;
      if (at < 0) break;
      const std::int64_t j = at / stride;
      if (j * stride != at || j >= across.outputs) continue;
      sum += from.rows[k][s * from.tap_step + j];
    }
  }
  return sum;
}

/// The sums of taps `phase`, phase + apart, ...: of a vector of places whose first one takes
/// element `at` of tap `phase`, and one element before it for each further tap times `shift`.
TENON_INLINE Float folded_vector(const FoldedRows& from, std::int64_t taps, std::int64_t phase,
                                 std::int64_t apart, std::int64_t shift, std::int64_t at,
                                 Float sum) {
  for (std::int64_t k = 0; k < from.count; ++k) {
    const float* x = from.rows[k] + phase * from.tap_step + at;
    for (std::int64_t s = phase; s < taps; s += apart) {
      sum = Simd::add(sum, Simd::load_float(x));
      x += apart * from.tap_step - shift;
    }
  }
  return sum;
}

/// Calls vector(i) for vectors that cover [begin, end), the last one moved back; false for none.
template <class Visit>
TENON_INLINE bool cover(std::int64_t begin, std::int64_t end, Visit vector) {
  if (end - begin < row_lanes) return false;
  std::int64_t i = begin;
  for (; i + row_lanes <= end; i += row_lanes) vector(i);
  if (i < end) vector(end - row_lanes);
  return true;
}

/// Every element is summed up whole, in the order of rows and taps.
void run_fold_rows(const FoldedRows& from, const WindowAxis& across, float start,
                   float* to) noexcept {
  const Float first = all_of(start);
  const std::int64_t reach = (across.taps - 1) * across.dilation, width = across.inputs;
  // The places [begin, end) where every tap arrives.
  std::int64_t begin = 0, end = 0;
  if (across.stride == 1) {
    begin = reach - across.before > 0 ? reach - across.before : 0;
    end = across.outputs - across.before < width ? across.outputs - across.before : width;
    const bool is_done = cover(begin, end, [&](std::int64_t place) {
      Simd::store_float(to + place, folded_vector(from, across.taps, 0, 1, across.dilation,
                                                  place + across.before, first));
    });
    if (!is_done) end = begin;
  } else if (across.dilation == 1) {
    // Place stride m + phase - before takes taps phase, phase + stride, ..., elements m, m - 1, ...
    const std::int64_t stride = across.stride, before = across.before;
    std::int64_t least = reach / stride, beyond = across.outputs;
    if (stride * least < before) least = (before + stride - 1) / stride;
    if (stride * beyond - before > width) beyond = (width + before) / stride;
    const auto phase_at = [&](std::int64_t phase, std::int64_t m) {
      return folded_vector(from, across.taps, phase, stride, 1, m, first);
    };
    const bool is_done = cover(least, beyond, [&](std::int64_t m) {
      float* const place = to + stride * m - before;
      if (stride == 2) {
        Float low, high;
        interleave(phase_at(0, m), phase_at(1, m), low, high);
        Simd::store_float(place, low);
        Simd::store_float(place + row_lanes, high);
        return;
      }
      for (std::int64_t phase = 0; phase < stride; ++phase) {
        float sums[row_lanes];
        Simd::store_float(sums, phase_at(phase, m));
        for (std::int64_t i = 0; i < row_lanes; ++i) place[i * stride + phase] = sums[i];
      }
    });
    begin = stride * least - before;
    end = is_done ? stride * beyond - before : begin;
  }
  if (begin > width) begin = end = width;
  for (std::int64_t i = 0; i < begin; ++i) to[i] = folded_at(from, across, start, i);
  for (std::int64_t i = end; i < width; ++i) to[i] = folded_at(from, across, start, i);
}

template <int step>
TENON_INLINE void take_greater_of(const float* x, std::int64_t apart, std::int32_t place,
                                  std::int64_t count, float* peak, std::int32_t* places) {
  if (step > 0) apart = step;
  for (std::int64_t j = 0; j < count; ++j) {
    const float value = x[j * apart];
    const bool greater = (value > peak[j]) | (value != value);
    peak[j] = greater ? value : peak[j];
    places[j] = greater ? place + static_cast<std::int32_t>(j * apart) : places[j];
  }
}

void run_take_greater(const float* x, std::int64_t step, std::int32_t place, std::int64_t count,
                      float* peak, std::int32_t* places) noexcept {
  if (step == 1) return take_greater_of<1>(x, step, place, count, peak, places);
  if (step == 2) return take_greater_of<2>(x, step, place, count, peak, places);
  take_greater_of<0>(x, step, place, count, peak, places);
}

template <int taps>
void mix_taps(const float* x, const RowMix& mix, float* y) {
  const std::int64_t count = mix.count;
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = mix.weights[i] * x[mix.inputs[i]];
    for (int k = 1; k < taps; ++k) sum += mix.weights[k * count + i] * x[mix.inputs[k * count + i]];
    y[i] = sum;
  }
}

void run_mix_row(const float* x, const RowMix& mix, float* y) noexcept {
  if (mix.weights == nullptr) {
    for (std::int64_t i = 0; i < mix.count; ++i) y[i] = x[mix.inputs[i]];
    return;
  }
  switch (mix.taps) {
    case 1:
      return mix_taps<1>(x, mix, y);
    case 2:
      return mix_taps<2>(x, mix, y);
    default:
      return mix_taps<4>(x, mix, y);
  }
}

void run_unmix_row(const float* y, const RowMix& mix, float* x) noexcept {
  for (std::int64_t k = 0; k < mix.taps; ++k) {
    const std::int32_t* inputs = mix.inputs + k * mix.count;
    const float* weights = mix.weights == nullptr ? nullptr : mix.weights + k * mix.count;
    for (std::int64_t i = 0; i < mix.count; ++i) {
      x[inputs[i]] += weights == nullptr ? y[i] : weights[i] * y[i];
    }
  }
}

template <int taps>
TENON_INLINE void mix_some_rows(const float* const* rows, const float* weights, float* y,
                                std::int64_t count) {
  std::int64_t i = 0;
  for (; i + row_lanes <= count; i += row_lanes) {
    Float sum = Simd::mul(all_of(weights[0]), Simd::load_float(rows[0] + i));
    for (int k = 1; k < taps; ++k) {
      sum = Simd::fma(all_of(weights[k]), Simd::load_float(rows[k] + i), sum);
    }
    Simd::store_float(y + i, sum);
  }
  for (; i < count; ++i) {
    float sum = weights[0] * rows[0][i];
    for (int k = 1; k < taps; ++k) sum = __builtin_fmaf(weights[k], rows[k][i], sum);
    y[i] = sum;
  }
}

void run_add_scaled(const float* x, float factor, float* y, std::int64_t count) noexcept {
  const Float times = all_of(factor);
  std::int64_t i = 0;
  for (; i + row_lanes <= count; i += row_lanes) {
    Simd::store_float(y + i, Simd::fma(times, Simd::load_float(x + i), Simd::load_float(y + i)));
  }
  for (; i < count; ++i) y[i] = __builtin_fmaf(factor, x[i], y[i]);
}

void run_mix_rows(const float* const* rows, const float* weights, std::int64_t taps, float* y,
                  std::int64_t count) noexcept {
  switch (taps) {
    case 1:
      return mix_some_rows<1>(rows, weights, y, count);
    case 2:
      return mix_some_rows<2>(rows, weights, y, count);
    case 4:
      return mix_some_rows<4>(rows, weights, y, count);
    default:
      mix_some_rows<1>(rows, weights, y, count);
      for (std::int64_t k = 1; k < taps; ++k) run_add_scaled(rows[k], weights[k], y, count);
  }
}

void run_scale_row(const float* x, float centre, float factor, float shift, float* y,
                   std::int64_t count) noexcept {
  const Float middle = all_of(centre), times = all_of(factor), plus = all_of(shift);
  std::int64_t i = 0;
  for (; i + row_lanes <= count; i += row_lanes) {
    Simd::store_float(y + i, Simd::fma(times, Simd::load_float(x + i) - middle, plus));
  }
  for (; i < count; ++i) y[i] = __builtin_fmaf(factor, x[i] - centre, shift);
}

/// In blocks whose sums are f32, 16 at a time on every instruction set; blocks add up in f64.
void run_add_moments(const float* x, float centre, std::int64_t count, double* sums) noexcept {
  constexpr std::int64_t block = 1024;
  constexpr int vectors = 16 / Simd::lanes;
  const Float middle = all_of(centre);
  while (count > 0) {
    const std::int64_t n = count < block ? count : block;
    Float first[vectors], second[vectors];
    for (int v = 0; v < vectors; ++v) first[v] = second[v] = Simd::zero_float();
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      for (int v = 0; v < vectors; ++v) {
        const Float value = Simd::sub(Simd::load_float(x + i + v * row_lanes), middle);
        first[v] = Simd::add(first[v], value);
        second[v] = Simd::fma(value, value, second[v]);
      }
    }
    float parts_of[2][16];
    for (int v = 0; v < vectors; ++v) {
      Simd::store_float(parts_of[0] + v * row_lanes, first[v]);
      Simd::store_float(parts_of[1] + v * row_lanes, second[v]);
    }
    for (int j = 0; i < n; ++i, ++j) {
      const float value = x[i] - centre;
      parts_of[0][j] += value;
      parts_of[1][j] = __builtin_fmaf(value, value, parts_of[1][j]);
    }
    for (int m = 0; m < 2; ++m) {
      double sum = 0;
      for (int j = 0; j < 16; ++j) sum += static_cast<double>(parts_of[m][j]);
      sums[m] += sum;
    }
    x += n;
    count -= n;
  }
}

}  // namespace
}  // namespace tenon::cpu
