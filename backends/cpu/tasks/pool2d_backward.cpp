// Gradients of pools: plane by plane, each element of the upstream gradient to its window.
#include "../task.hpp"
#include "../vision/vision_kernels.hpp"
#include "real.hpp"
#include "windows.hpp"

#include <tenon/ops/pool2d.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

namespace tenon::cpu {
namespace {

/// Outputs of a row below which vectors of them gain nothing, and the longest steps along it.
constexpr std::int64_t few_outputs = 8, max_vector_stride = 2;

struct PoolTaps {
  std::int64_t begin, end;
};
PoolTaps pool_taps(const WindowAxis& axis, std::int64_t output) noexcept {
  const std::int64_t first = output * axis.stride - axis.before;
  const std::int64_t begin = first >= 0 ? 0 : (-first - 1) / axis.dilation + 1;
  const std::int64_t end =
      first >= axis.inputs ? 0 : std::min(axis.taps, (axis.inputs - 1 - first) / axis.dilation + 1);
  return {begin, std::max(begin, end)};
}

/// Where x[j * step] exceeds peak[j] or is NaN: peak[j] and places[j] become that and its place.
void take_greater_of(const float* x, std::int64_t step, std::int32_t place, std::int64_t count,
                     float* peak, std::int32_t* places) noexcept {
  vision_kernels().take_greater(x, step, place, count, peak, places);
}
void take_greater_of(const double* x, std::int64_t step, std::int32_t place, std::int64_t count,
                     double* peak, std::int32_t* places) noexcept {
  for (std::int64_t j = 0; j < count; ++j) {
    const double value = x[j * step];
    if (!(value > peak[j] || value != value)) continue;
    peak[j] = value;
    places[j] = place + static_cast<std::int32_t>(j * step);
  }
}

template <class Op, class T>
class PoolBackwardTask final : public PartwiseTask {
 public:
  PoolBackwardTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), upstream_(step.inputs[1]), y_(step.output), op_(*step.op.as<Op>()) {
    IntList dilation;
    if constexpr (requires { op_.dilation; }) dilation = op_.dilation;
    for (std::size_t i = 0; i < 2; ++i) {
      const int axis = static_cast<int>(i) + 2;
      axes_[i] = window_axis(i, x_.shape[axis], upstream_.shape[axis], op_.kernel[i], op_.stride,
                             op_.kernel[i], op_.padding, dilation);
    }
    if (is_max)
      compiler.working_memory(axes_[1].outputs * static_cast<std::int64_t>(sizeof(T) + 4));
  }

  void run(const TaskContext& context) const noexcept override {
    const auto& [rows, columns] = axes_;
    const std::int64_t plane = rows.inputs * columns.inputs;
    const std::int64_t outputs = rows.outputs * columns.outputs;
    const Range range = context.share(x_.shape[0] * x_.shape[1]);
    for (std::int64_t p = range.begin; p < range.end; ++p) {
      const T* x = context.pointer<const T>(x_) + p * plane;
      const T* upstream = context.pointer<const T>(upstream_) + p * outputs;
      T* y = context.pointer<T>(y_) + p * plane;
      std::fill_n(y, plane, T(0));
      for (std::int64_t i = 0; i < rows.outputs; ++i, upstream += columns.outputs) {
        const PoolTaps down = pool_taps(rows, i);
        if (down.begin == down.end) continue;
        if constexpr (is_max) {
          if (columns.stride > max_vector_stride || columns.outputs < few_outputs) {
            to_greatest_of_each(x, i, down, upstream, y);
          } else {
            to_greatest(context, x, i, down, upstream, y);
          }
        } else {
          to_all(i, down, upstream, y);
        }
      }
    }
  }

 private:
  static constexpr bool is_max = std::is_same_v<Op, MaxPool2dBackward>;

  /// Short rows, or long steps along them: windows one by one, the inner ones of usual sizes without branches.
  void to_greatest_of_each(const T* x, std::int64_t i, PoolTaps down, const T* upstream,
                           T* y) const noexcept {
    const auto& [rows, columns] = axes_;
    const bool is_whole = down.end - down.begin == rows.taps && rows.dilation == 1 &&
                          columns.dilation == 1 && rows.taps == columns.taps;
    for (std::int64_t j = 0; j < columns.outputs; ++j) {
      const std::int64_t left = j * columns.stride - columns.before;
      const bool is_inner = is_whole && left >= 0 && left + columns.taps <= columns.inputs;
      const std::int64_t first = (i * rows.stride - rows.before) * columns.inputs + left;
      std::int64_t place = -1;
      if (is_inner && columns.taps == 2) {
        place = greatest_of<2>(x, first, columns.inputs);
      } else if (is_inner && columns.taps == 3) {
        place = greatest_of<3>(x, first, columns.inputs);
      } else {
        const PoolTaps across = pool_taps(columns, j);
        for (std::int64_t r = down.begin; r < down.end; ++r) {
          for (std::int64_t s = across.begin; s < across.end; ++s) {
            const std::int64_t at =
                first + r * rows.dilation * columns.inputs + s * columns.dilation;
            if (place < 0 || x[at] > x[place] || x[at] != x[at]) place = at;
          }
        }
      }
      if (place >= 0) y[place] += upstream[j];
    }
  }

  /// The place of the first of the greatest, or of the last NaN, in a window that lies inside.
  template <int taps>
  static std::int64_t greatest_of(const T* x, std::int64_t first, std::int64_t row) noexcept {
    T best = x[first];
    std::int64_t place = first;
#pragma GCC unroll 3
    for (int r = 0; r < taps; ++r) {
#pragma GCC unroll 3
      for (int s = 0; s < taps; ++s) {
        const std::int64_t at = first + r * row + s;
        const T value = x[at];
        const bool takes = (value > best) | (value != value);
        best = takes ? value : best;
        place = takes ? at : place;
      }
    }
    return place;
  }

  /// Tap by tap along the row of outputs; outputs whose tap is outside keep what they have.
  void to_greatest(const TaskContext& context, const T* x, std::int64_t i, PoolTaps down,
                   const T* upstream, T* y) const noexcept {
    const auto& [rows, columns] = axes_;
    auto* peak = reinterpret_cast<T*>(context.working_memory());
    auto* places = reinterpret_cast<std::int32_t*>(peak + columns.outputs);
    std::fill_n(peak, columns.outputs, -std::numeric_limits<T>::infinity());
    std::fill_n(places, columns.outputs, -1);
    for (std::int64_t r = down.begin; r < down.end; ++r) {
      const std::int64_t row = i * rows.stride + r * rows.dilation - rows.before;
      for (std::int64_t s = 0; s < columns.taps; ++s) {
        const std::int64_t first = s * columns.dilation - columns.before;
        const std::int64_t begin = std::min(
            columns.outputs, first >= 0 ? 0 : (-first + columns.stride - 1) / columns.stride);
        const std::int64_t end = first >= columns.inputs
                                     ? begin
                                     : std::clamp((columns.inputs - 1 - first) / columns.stride + 1,
                                                  begin, columns.outputs);
        const std::int64_t at = row * columns.inputs + first + begin * columns.stride;
        // The first element counts even if it is -inf.
        if (r == down.begin) {
          for (std::int64_t j = begin; j < end; ++j) {
            if (places[j] < 0) {
              places[j] = static_cast<std::int32_t>(at + (j - begin) * columns.stride);
            }
          }
        }
        take_greater_of(x + at, columns.stride, static_cast<std::int32_t>(at), end - begin,
                        peak + begin, places + begin);
      }
    }
    for (std::int64_t j = 0; j < columns.outputs; ++j) {
      if (places[j] >= 0) y[places[j]] += upstream[j];
    }
  }

  void to_all(std::int64_t i, PoolTaps down, const T* upstream, T* y) const noexcept {
    const auto& [rows, columns] = axes_;
    for (std::int64_t j = 0; j < columns.outputs; ++j) {
      const PoolTaps across = pool_taps(columns, j);
      std::int64_t count = (down.end - down.begin) * (across.end - across.begin);
      if constexpr (requires { op_.count_include_pad; }) {
        if (op_.count_include_pad) count = rows.taps * columns.taps;
      }
      const T part = upstream[j] / static_cast<T>(count);
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        T* row = y + (i * rows.stride + r - rows.before) * columns.inputs + j * columns.stride -
                 columns.before;
        for (std::int64_t s = across.begin; s < across.end; ++s) row[s] += part;
      }
    }
  }

  Operand x_, upstream_, y_;
  Op op_;
  std::array<WindowAxis, 2> axes_{};
};

template <class T>
using MaxBackwardTask = PoolBackwardTask<MaxPool2dBackward, T>;
template <class T>
using AvgBackwardTask = PoolBackwardTask<AvgPool2dBackward, T>;

std::optional<std::string> refuses_pool2d_backward(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  if (auto why = needs_dense(step.inputs[0], "x")) return why;
  const Shape& x = step.inputs[0].shape;
  if (x[3] > 0 && x[2] > (std::int64_t{1} << 30) / x[3])
    return "a plane of more than 2^30 elements";
  return needs_dense(step.inputs[1], "upstream");
}

}  // namespace

extern const Kernel max_pool2d_backward_kernel, avg_pool2d_backward_kernel;
constinit const Kernel max_pool2d_backward_kernel{
    op_def<MaxPool2dBackward>, refuses_pool2d_backward, make_real_task<MaxBackwardTask>};
constinit const Kernel avg_pool2d_backward_kernel{
    op_def<AvgPool2dBackward>, refuses_pool2d_backward, make_real_task<AvgBackwardTask>};

}  // namespace tenon::cpu
