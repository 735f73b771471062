// Gradients of pools: plane by plane, each element of the upstream gradient to its window.
#include "../task.hpp"
#include "../vision/vision_kernels.hpp"
#include "windows.hpp"

#include <tenon/ops/pool2d.hpp>

#include <algorithm>

namespace tenon::cpu {
namespace {

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

/// Calls spread(first input row, its taps, first input column, its taps, upstream element).
template <class Op>
class PoolBackwardTask final : public Task {
 public:
  explicit PoolBackwardTask(const Step& step)
      : x_(step.inputs[0]), upstream_(step.inputs[1]), y_(step.output), op_(*step.op.as<Op>()) {
    IntList dilation;
    if constexpr (requires { op_.dilation; }) dilation = op_.dilation;
    for (std::size_t i = 0; i < 2; ++i) {
      const int axis = static_cast<int>(i) + 2;
      axes_[i] = window_axis(i, x_.shape[axis], upstream_.shape[axis], op_.kernel[i], op_.stride,
                             op_.kernel[i], op_.padding, dilation);
    }
  }

  void run(const TaskContext& context) const noexcept override {
    const auto& [rows, columns] = axes_;
    const std::int64_t plane = rows.inputs * columns.inputs;
    const std::int64_t outputs = rows.outputs * columns.outputs;
    const Range range = context.share(x_.shape[0] * x_.shape[1]);
    for (std::int64_t p = range.begin; p < range.end; ++p) {
      const float* x = context.pointer<const float>(x_) + p * plane;
      const float* upstream = context.pointer<const float>(upstream_) + p * outputs;
      float* y = context.pointer<float>(y_) + p * plane;
      std::fill_n(y, plane, 0.0f);
      for (std::int64_t i = 0; i < rows.outputs; ++i) {
        const PoolTaps down = pool_taps(rows, i);
        const std::int64_t row = i * rows.stride - rows.before;
        for (std::int64_t j = 0; j < columns.outputs; ++j) {
          const PoolTaps across = pool_taps(columns, j);
          const std::int64_t first = row * columns.inputs + j * columns.stride - columns.before;
          spread(x, first, down, across, *upstream++, y);
        }
      }
    }
  }

 private:
  std::int64_t place(std::int64_t first, std::int64_t r, std::int64_t s) const noexcept {
    return first + r * axes_[0].dilation * axes_[1].inputs + s * axes_[1].dilation;
  }

  void spread(const float* x, std::int64_t first, PoolTaps down, PoolTaps across, float amount,
              float* y) const noexcept {
    if (down.begin == down.end || across.begin == across.end) return;
    if constexpr (requires { op_.count_include_pad; }) {
      const std::int64_t inside = (down.end - down.begin) * (across.end - across.begin);
      const std::int64_t count = op_.count_include_pad ? axes_[0].taps * axes_[1].taps : inside;
      const float part = amount / static_cast<float>(count);
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        for (std::int64_t s = across.begin; s < across.end; ++s) y[place(first, r, s)] += part;
      }
    } else {
      std::int64_t best = place(first, down.begin, across.begin);
      float peak = x[best];
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        for (std::int64_t s = across.begin; s < across.end; ++s) {
          const std::int64_t at = place(first, r, s);
          if (x[at] > peak || x[at] != x[at]) {
            peak = x[at];
            best = at;
          }
        }
      }
      y[best] += amount;
    }
  }

  Operand x_, upstream_, y_;
  Op op_;
  std::array<WindowAxis, 2> axes_{};
};

std::optional<std::string> refuses_pool2d_backward(const Step& step) {
  if (auto why = needs_f32(step)) return why;
  if (auto why = needs_dense(step.inputs[0], "x")) return why;
  return needs_dense(step.inputs[1], "upstream");
}

}  // namespace

extern const Kernel max_pool2d_backward_kernel, avg_pool2d_backward_kernel;
constinit const Kernel max_pool2d_backward_kernel{op_def<MaxPool2dBackward>,
                                                  refuses_pool2d_backward,
                                                  make_task<PoolBackwardTask<MaxPool2dBackward>>};
constinit const Kernel avg_pool2d_backward_kernel{op_def<AvgPool2dBackward>,
                                                  refuses_pool2d_backward,
                                                  make_task<PoolBackwardTask<AvgPool2dBackward>>};

}  // namespace tenon::cpu
