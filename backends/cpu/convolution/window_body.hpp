#pragma once

// Windows that slide over one plane: depthwise convolutions and pools. Included after a simd_*.hpp.
#include "kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

using Float = Simd::Float;

struct Taps {
  std::int64_t begin, end;
};
/// The taps of an output that fall inside.
TENON_INLINE Taps taps_inside(const WindowAxis& axis, std::int64_t output) {
  const std::int64_t first = output * axis.stride - axis.before;
  const std::int64_t begin = first >= 0 ? 0 : (-first - 1) / axis.dilation + 1;
  if (first >= axis.inputs) return {0, 0};
  std::int64_t end = (axis.inputs - 1 - first) / axis.dilation + 1;
  end = end < axis.taps ? end : axis.taps;
  return {begin, end < begin ? begin : end};
}

template <WindowOp op, class T>
TENON_INLINE T take(T sum, T value, T weight) {
  if constexpr (op == WindowOp::weighted_sum) return value * weight + sum;
  if constexpr (op == WindowOp::max) return ((value > sum) | (value != value)) ? value : sum;
  return sum + value;
}

/// `lanes` outputs side by side, whose taps are `stride` apart.
TENON_INLINE Float load_outputs(const float* x, std::int64_t stride) {
  if (stride == 1) return Simd::load_float(x);
  float values[Simd::lanes];
  if (stride == 2) {
    for (int i = 0; i < Simd::lanes; ++i) values[i] = x[2 * i];
  } else {
    for (int i = 0; i < Simd::lanes; ++i) values[i] = x[i * stride];
  }
  return Simd::load_float(values);
}

template <WindowOp op>
struct WindowRow {
  const WindowJob& job;
  const float* line;  // input row of tap row 0, before the left padding
  Taps rows;
  float* y;

  static constexpr bool is_mean = op == WindowOp::mean || op == WindowOp::padded_mean;
  static constexpr float infinity = __builtin_inff();
  float start() const {
    return op == WindowOp::weighted_sum ? job.bias : op == WindowOp::max ? -infinity : 0.0f;
  }
  float divisor(std::int64_t columns) const {
    const std::int64_t all = job.rows.taps * job.columns.taps;
    const std::int64_t count =
        op == WindowOp::padded_mean ? all : (rows.end - rows.begin) * columns;
    return static_cast<float>(count);
  }

  void one(std::int64_t j) const {
    const Taps columns = taps_inside(job.columns, j);
    float sum = start();
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      const float* x = line + r * job.rows.dilation * job.row_step + j * job.columns.stride;
      for (std::int64_t s = columns.begin; s < columns.end; ++s) {
        const float weight =
            op == WindowOp::weighted_sum ? job.weights[r * job.columns.taps + s] : 0.0f;
        sum = take<op>(sum, x[s * job.columns.dilation], weight);
      }
    }
    y[j] = is_mean ? sum / divisor(columns.end - columns.begin) : sum;
  }

  /// Outputs whose column taps all fall inside.
  template <int vectors>
  void many(std::int64_t j) const {
    const float first = start();
    Float sum[static_cast<std::size_t>(vectors)];
    for (int v = 0; v < vectors; ++v) sum[v] = Simd::broadcast(&first);
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      const float* x = line + r * job.rows.dilation * job.row_step + j * job.columns.stride;
      for (std::int64_t s = 0; s < job.columns.taps; ++s) {
        const Float weight = op == WindowOp::weighted_sum
                                 ? Simd::broadcast(job.weights + r * job.columns.taps + s)
                                 : Simd::zero_float();
        for (int v = 0; v < vectors; ++v) {
          const float* from = x + s * job.columns.dilation + v * Simd::lanes * job.columns.stride;
          sum[v] = take<op>(sum[v], load_outputs(from, job.columns.stride), weight);
        }
      }
    }
    const float count = divisor(job.columns.taps);
    for (int v = 0; v < vectors; ++v) {
      Simd::store_float(y + j + v * Simd::lanes,
                        is_mean ? sum[v] / Simd::broadcast(&count) : sum[v]);
    }
  }
};

template <WindowOp op>
void window_rows(const WindowJob& job, std::int64_t first, std::int64_t last) {
  const WindowAxis& columns = job.columns;
  // Outputs [begin, end) have all their column taps inside.
  const std::int64_t begin = (columns.before + columns.stride - 1) / columns.stride;
  const std::int64_t reach = columns.inputs - 1 - (columns.taps - 1) * columns.dilation;
  std::int64_t end = reach + columns.before < 0 ? 0 : (reach + columns.before) / columns.stride + 1;
  end = end < columns.outputs ? end : columns.outputs;
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t top = i * job.rows.stride - job.rows.before;
    const WindowRow<op> row{job, job.x + top * job.row_step - columns.before,
                            taps_inside(job.rows, i), job.y + i * columns.outputs};
    std::int64_t j = 0;
    for (; j < columns.outputs && j < begin; ++j) row.one(j);
    for (; j + 2 * Simd::lanes <= end; j += 2 * Simd::lanes) row.template many<2>(j);
    for (; j + Simd::lanes <= end; j += Simd::lanes) row.template many<1>(j);
    for (; j < columns.outputs; ++j) row.one(j);
  }
}

void run_window(WindowOp op, const WindowJob& job, std::int64_t first, std::int64_t last) noexcept {
  switch (op) {
    case WindowOp::weighted_sum:
      return window_rows<WindowOp::weighted_sum>(job, first, last);
    case WindowOp::max:
      return window_rows<WindowOp::max>(job, first, last);
    case WindowOp::mean:
      return window_rows<WindowOp::mean>(job, first, last);
    case WindowOp::padded_mean:
      return window_rows<WindowOp::padded_mean>(job, first, last);
  }
}

}  // namespace
}  // namespace tenon::cpu
