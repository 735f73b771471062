#pragma once

// Pools of one plane of an image: the rows under a window are folded into one line, which windows
// of the same output row share, and then windows slide along that. Included after a header of simd/.
#include "convolution_kernels.hpp"
#include "window_taps.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// One more value of a window; a NaN stays.
template <PoolOp op>
TENON_INLINE Float take(Float sum, Float value) {
  if constexpr (op == PoolOp::max) return value == value ? Simd::max(value, sum) : value;
  return sum + value;
}
template <PoolOp op>
TENON_INLINE float take(float sum, float value) {
  if constexpr (op == PoolOp::max) return value > sum || value != value ? value : sum;
  return sum + value;
}

/// `lanes` values side by side, or every other of 2 lanes - 1.
TENON_INLINE Float load_outputs(const float* x, std::int64_t stride) {
  if (stride == 1) return Simd::load_float(x);
#if defined(__AVX512F__)
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_permutex2var_ps(_mm512_loadu_ps(x), even, _mm512_loadu_ps(x + 15));
#elif defined(__AVX2__)
  const __m256 both = _mm256_shuffle_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 7), 0xD8);
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(both), 0xD8));
#else
  float values[Simd::lanes];
  for (int i = 0; i < Simd::lanes; ++i) values[i] = x[2 * i];
  return Simd::load_float(values);
#endif
}

/// Some adjacent outputs, of any number of rows.
template <PoolOp op>
class PlaneWindows {
 public:
  /// Columns that a line has room for.
  static constexpr std::int64_t room = 2048;
  /// How many columns a window covers.
  static std::int64_t reach(const WindowAxis& columns) {
    return (columns.taps - 1) * columns.dilation + 1;
  }
  /// How many outputs may lie side by side; 0: their windows are too wide.
  static std::int64_t max_outputs(const WindowAxis& columns) {
    const std::int64_t beyond = room - reach(columns);
    return beyond < 0 ? 0 : beyond / columns.stride + 1;
  }

  /// Outputs [first, first + count) of each row.
  PlaneWindows(const PlaneJob& job, std::int64_t first, std::int64_t count)
      : job_(job), first_(first), count_(count) {
    const WindowAxis& columns = job.columns;
    const std::int64_t left = first * columns.stride - columns.before;
    const std::int64_t span = (count - 1) * columns.stride + reach(columns);
    const std::int64_t end = columns.inputs - left;
    begin_ = left < 0 ? -left : 0;
    end_ = end < span ? end : span;
    from_ = job.x + left;
    // The padding stays the same for every row. Up to a vector behind the last output is computed,
    // too, and not stored.
    for (std::int64_t c = 0; c < span + 2 * Simd::lanes; ++c) line_[c] = start;
    if constexpr (op == PoolOp::mean) {
      for (std::int64_t j = 0; j < count; ++j) {
        const Taps taps = taps_inside(columns, first + j);
        taps_[j] = static_cast<float>(taps.end - taps.begin);
      }
      for (std::int64_t j = count; j < count + Simd::lanes; ++j) taps_[j] = 1;
    }
  }

  void row(std::int64_t i) {
    const Taps rows = taps_inside(job_.rows, i);
    fold(i * job_.rows.stride - job_.rows.before, rows);
    float* const y = job_.y + i * job_.columns.outputs + first_;
    if (job_.columns.stride <= 2) {
      slide(y, rows);
    } else {
      leap(y, rows);
    }
  }

 private:
  static constexpr bool is_max = op == PoolOp::max;
  static constexpr float start = is_max ? -__builtin_inff() : 0.0f;

  void fold(std::int64_t top, Taps rows) {
    const std::int64_t step = job_.rows.dilation * job_.row_step;
    const float* const from = from_ + top * job_.row_step;
    for (std::int64_t c = begin_; c < end_; c += Simd::lanes) {
      Float sum = Simd::broadcast(&start);
      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        sum = take<op>(sum, load_channels(from + r * step + c, end_ - c));
      }
      store_channels(line_ + c, sum, end_ - c);
    }
  }

  void slide(float* y, Taps rows) const {
    const WindowAxis& columns = job_.columns;
    for (std::int64_t j = 0; j < count_; j += Simd::lanes) {
      Float sum = Simd::broadcast(&start);
      const float* const x = line_ + j * columns.stride;
      for (std::int64_t s = 0; s < columns.taps; ++s) {
        sum = take<op>(sum, load_outputs(x + s * columns.dilation, columns.stride));
      }
      if constexpr (!is_max) {
        const float height = divisor_rows(rows);
        const Float width = op == PoolOp::mean ? Simd::load_float(taps_ + j) : all_taps();
        sum /= width * Simd::broadcast(&height);
      }
      store_channels(y + j, sum, count_ - j);
    }
  }

  /// Outputs too far apart for vectors.
  void leap(float* y, Taps rows) const {
    const WindowAxis& columns = job_.columns;
    const float height = divisor_rows(rows);
    for (std::int64_t j = 0; j < count_; ++j) {
      float sum = start;
      const float* const x = line_ + j * columns.stride;
      for (std::int64_t s = 0; s < columns.taps; ++s) {
        sum = take<op>(sum, x[s * columns.dilation]);
      }
      const float width = op == PoolOp::mean ? taps_[j] : static_cast<float>(columns.taps);
      y[j] = is_max ? sum : sum / (width * height);
    }
  }

  float divisor_rows(Taps rows) const {
    return static_cast<float>(op == PoolOp::mean ? rows.end - rows.begin : job_.rows.taps);
  }
  Float all_taps() const {
    const auto count = static_cast<float>(job_.columns.taps);
    return Simd::broadcast(&count);
  }

  const PlaneJob& job_;
  std::int64_t first_, count_;
  std::int64_t begin_ = 0, end_ = 0;  // the part of the line that is inside the image
  const float* from_ = nullptr;       // where the line begins in row 0, perhaps before the row
  float line_[room + 2 * Simd::lanes];
  float taps_[op == PoolOp::mean ? room + Simd::lanes : 1];
};

/// One output with a window of any width.
template <PoolOp op>
void one_window(const PlaneJob& job, std::int64_t i, std::int64_t j) {
  const Taps rows = taps_inside(job.rows, i), columns = taps_inside(job.columns, j);
  const std::int64_t top = i * job.rows.stride - job.rows.before;
  const std::int64_t left = j * job.columns.stride - job.columns.before;
  float sum = op == PoolOp::max ? -__builtin_inff() : 0.0f;
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const float* const x = job.x + (top + r * job.rows.dilation) * job.row_step + left;
    for (std::int64_t s = columns.begin; s < columns.end; ++s) {
      sum = take<op>(sum, x[s * job.columns.dilation]);
    }
  }
  const std::int64_t taps = op == PoolOp::mean
                                ? (rows.end - rows.begin) * (columns.end - columns.begin)
                                : job.rows.taps * job.columns.taps;
  job.y[i * job.columns.outputs + j] = op == PoolOp::max ? sum : sum / static_cast<float>(taps);
}

template <PoolOp op>
void window_rows(const PlaneJob& job, std::int64_t first, std::int64_t last) {
  const std::int64_t outputs = job.columns.outputs;
  const std::int64_t most = PlaneWindows<op>::max_outputs(job.columns);
  if (most == 0) {
    for (std::int64_t i = first; i < last; ++i) {
      for (std::int64_t j = 0; j < outputs; ++j) one_window<op>(job, i, j);
    }
    return;
  }
  for (std::int64_t j = 0; j < outputs; j += most) {
    PlaneWindows<op> windows(job, j, most < outputs - j ? most : outputs - j);
    for (std::int64_t i = first; i < last; ++i) windows.row(i);
  }
}

void run_plane_pool(PoolOp op, const PlaneJob& job, std::int64_t first,
                    std::int64_t last) noexcept {
  switch (op) {
    case PoolOp::max:
      return window_rows<PoolOp::max>(job, first, last);
    case PoolOp::mean:
      return window_rows<PoolOp::mean>(job, first, last);
    case PoolOp::padded_mean:
      return window_rows<PoolOp::padded_mean>(job, first, last);
  }
}

}  // namespace
}  // namespace tenon::cpu
