#pragma once

// Pools of one plane of an image. Included after a simd_*.hpp.
#include "kernels.hpp"
#include "window_taps.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

template <PoolOp op, class T>
TENON_INLINE T take(T sum, T value) {
  if constexpr (op == PoolOp::max) return ((value > sum) | (value != value)) ? value : sum;
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

template <PoolOp op>
struct WindowRow {
  const PlaneJob& job;
  const float* line;  // input row of tap row 0, before the left padding
  Taps rows;
  float* y;

  static constexpr bool is_mean = op == PoolOp::mean || op == PoolOp::padded_mean;
  static constexpr float infinity = __builtin_inff();
  float start() const { return op == PoolOp::max ? -infinity : 0.0f; }
  float divisor(std::int64_t columns) const {
    const std::int64_t all = job.rows.taps * job.columns.taps;
    const std::int64_t count = op == PoolOp::padded_mean ? all : (rows.end - rows.begin) * columns;
    return static_cast<float>(count);
  }

  void one(std::int64_t j) const {
    const Taps columns = taps_inside(job.columns, j);
    float sum = start();
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      const float* x = line + r * job.rows.dilation * job.row_step + j * job.columns.stride;
      for (std::int64_t s = columns.begin; s < columns.end; ++s) {
        sum = take<op>(sum, x[s * job.columns.dilation]);
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
        for (int v = 0; v < vectors; ++v) {
          const float* from = x + s * job.columns.dilation + v * Simd::lanes * job.columns.stride;
          sum[v] = take<op>(sum[v], load_outputs(from, job.columns.stride));
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

template <PoolOp op>
void window_rows(const PlaneJob& job, std::int64_t first, std::int64_t last) {
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
