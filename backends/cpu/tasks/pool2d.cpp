#include "../convolution/channels_last.hpp"
#include "../int8/max_pool.hpp"
#include "../task.hpp"
#include "image_task.hpp"
#include "windows.hpp"

#include <tenon/ops/pool2d.hpp>

#include <algorithm>

namespace tenon::cpu {
namespace {

/// Images with their channels last by pixels, others plane by plane.
class PoolTask final : public Task {
 public:
  PoolTask(const Step& step, PoolOp op, const IntList& kernel, const IntList& stride,
           const IntList& padding, const IntList& dilation)
      : x_(step.inputs[0]), y_(step.output), op_(op) {
    const auto axis = [&](int i) {
      const auto at = static_cast<std::size_t>(i);
      return window_axis(at, x_.shape[2 + i], y_.shape[2 + i], kernel[at], stride, kernel[at],
                         padding, dilation);
    };
    rows_ = axis(0);
    columns_ = axis(1);
    channels_last_ = x_.shape[1] > 1 && has_channels_last(x_) && has_channels_last(y_);
  }

  void run(const TaskContext& context) const noexcept override {
    channels_last_ ? pixels(context) : planes(context);
  }

 private:
  void pixels(const TaskContext& context) const noexcept {
    const std::int64_t rows = rows_.outputs;
    const Image<const float> x = image_of(x_, context.pointer<const float>(x_));
    const Image<float> y = image_of(y_, context.pointer<float>(y_));
    Range range = context.share(x_.shape[0] * rows);
    while (range.begin < range.end) {
      const std::int64_t image = range.begin / rows, first = range.begin % rows;
      const std::int64_t last = std::min(rows, first + range.end - range.begin);
      const PoolJob job{moved(x, image * (x_.strides[0] / 4)),
                        moved(y, image * (y_.strides[0] / 4)), x_.shape[1], rows_, columns_};
      convolution_kernels().pool(op_, job, {first, last, 0, columns_.outputs, 0, x_.shape[1]});
      range.begin += last - first;
    }
  }

  void planes(const TaskContext& context) const noexcept {
    const std::int64_t channels = x_.shape[1], rows = rows_.outputs;
    PlaneJob job{};
    job.row_step = x_.strides[2] / 4;
    job.rows = rows_;
    job.columns = columns_;
    const auto* x = context.pointer<const float>(x_);
    auto* y = context.pointer<float>(y_);
    Range range = context.share(x_.shape[0] * channels * rows);
    while (range.begin < range.end) {
      const std::int64_t plane = range.begin / rows, first = range.begin % rows;
      const std::int64_t last = std::min(rows, first + range.end - range.begin);
      job.x = x + plane / channels * (x_.strides[0] / 4) + plane % channels * (x_.strides[1] / 4);
      job.y = y + plane * rows * columns_.outputs;
      convolution_kernels().plane_pool(op_, job, first, last);
      range.begin += last - first;
    }
  }

  Operand x_, y_;
  PoolOp op_;
  WindowAxis rows_{}, columns_{};
  bool channels_last_ = false;
};

std::optional<std::string> refuses_pool2d(const Step& step) {
  if (auto why = needs_f32(step)) return why;
  return needs_dense_rows(step.inputs[0], "x");
}

std::unique_ptr<Task> make_max(const Step& step, Compiler&) {
  if (step.inputs[0].shape.dtype() == DType::u8) return make_int8_max_pool(step);
  const auto& op = *step.op.as<MaxPool2d>();
  return std::make_unique<PoolTask>(step, PoolOp::max, op.kernel, op.stride, op.padding,
                                    op.dilation);
}

std::unique_ptr<Task> make_mean(const Step& step, Compiler&) {
  const auto& op = *step.op.as<AvgPool2d>();
  return std::make_unique<PoolTask>(step, op.count_include_pad ? PoolOp::padded_mean : PoolOp::mean,
                                    op.kernel, op.stride, op.padding, IntList{});
}

}  // namespace

extern const Kernel max_pool2d_kernel, avg_pool2d_kernel;
constinit const Kernel max_pool2d_kernel{op_def<MaxPool2d>, refuses_pool2d, make_max};
constinit const Kernel avg_pool2d_kernel{op_def<AvgPool2d>, refuses_pool2d, make_mean};

}  // namespace tenon::cpu
