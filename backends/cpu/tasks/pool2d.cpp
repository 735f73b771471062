#include "../convolution/channels_last.hpp"
#include "../int8/max_pool.hpp"
#include "../integer_math.hpp"
#include "../task.hpp"
#include "image_task.hpp"
#include "real.hpp"
#include "windows.hpp"

#include <tenon/ops/pool2d.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace tenon::cpu {
namespace {

/// Images with their channels last by pixels, others plane by plane.
class PoolTask final : public PartwiseTask {
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

/// Row by row of the result, in f64: tap after tap.
class PoolF64Task final : public PartwiseTask {
 public:
  PoolF64Task(const Step& step, PoolOp op, const WindowAxis& rows, const WindowAxis& columns,
              Compiler& compiler)
      : x_(step.inputs[0]), y_(step.output), op_(op), rows_(rows), columns_(columns) {
    // One-dimensional windows, down a column: the same numbers as along a row, which is taken as one.
    if (columns_.inputs == 1 && columns_.outputs == 1 && columns_.taps == 1) {
      std::swap(rows_, columns_);
    }
    compiler.working_memory(columns_.outputs * 8);
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t width = columns_.outputs, height = rows_.outputs;
    const Range range = context.share(y_.shape[0] * y_.shape[1] * height);
    auto* const counts = reinterpret_cast<std::int64_t*>(context.working_memory());
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::int64_t plane = i / height, output = i % height;
      const double* x = context.pointer<const double>(x_) + plane * rows_.inputs * columns_.inputs;
      double* y = context.pointer<double>(y_) + i * width;
      std::fill_n(y, width, op_ == PoolOp::max ? -std::numeric_limits<double>::infinity() : 0.0);
      std::fill_n(counts, width, std::int64_t{0});
      for (std::int64_t r = 0; r < rows_.taps; ++r) {
        const std::int64_t row = output * rows_.stride + r * rows_.dilation - rows_.before;
        if (row < 0 || row >= rows_.inputs) continue;
        for (std::int64_t s = 0; s < columns_.taps; ++s) {
          take_tap(x + row * columns_.inputs, s * columns_.dilation - columns_.before, y, counts);
        }
      }
      if (op_ == PoolOp::max) continue;
      const auto all = static_cast<double>(rows_.taps * columns_.taps);
      for (std::int64_t j = 0; j < width; ++j) {
        y[j] /= op_ == PoolOp::padded_mean ? all : static_cast<double>(counts[j]);
      }
    }
  }

 private:
  void take_tap(const double* line, std::int64_t first, double* y,
                std::int64_t* counts) const noexcept {
    // Of the outputs whose column is within the line; no branches, which data would decide.
    const std::int64_t stride = columns_.stride;
    const std::int64_t begin = first < 0 ? ceil_div(-first, stride) : 0;
    const std::int64_t within = std::max<std::int64_t>(columns_.inputs - first, 0);
    const std::int64_t end = std::min(columns_.outputs, ceil_div(within, stride));
    if (op_ == PoolOp::max) {
      for (std::int64_t j = begin; j < end; ++j) {
        const double value = line[first + j * stride], best = y[j];
        const bool stays = (value <= best) | (best != best);
        y[j] = stays ? best : value;
      }
      return;
    }
    for (std::int64_t j = begin; j < end; ++j) {
      y[j] += line[first + j * stride];
      ++counts[j];
    }
  }

  Operand x_, y_;
  PoolOp op_;
  WindowAxis rows_, columns_;
};

template <class Op>
std::unique_ptr<Task> make_pool_f64(const Step& step, const Op& op, PoolOp kind,
                                    const IntList& dilation, Compiler& compiler) {
  const auto axis = [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    return window_axis(at, step.inputs[0].shape[2 + i], step.output.shape[2 + i], op.kernel[at],
                       op.stride, op.kernel[at], op.padding, dilation);
  };
  return std::make_unique<PoolF64Task>(step, kind, axis(0), axis(1), compiler);
}

std::optional<std::string> refuses_pool2d(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  if (is_f64(step)) return needs_dense(step.inputs[0], "x");
  return needs_dense_rows(step.inputs[0], "x");
}

std::unique_ptr<Task> make_max(const Step& step, Compiler& compiler) {
  if (step.inputs[0].shape.dtype() == DType::u8) return make_int8_max_pool(step);
  const auto& op = *step.op.as<MaxPool2d>();
  if (is_f64(step)) return make_pool_f64(step, op, PoolOp::max, op.dilation, compiler);
  return std::make_unique<PoolTask>(step, PoolOp::max, op.kernel, op.stride, op.padding,
                                    op.dilation);
}

std::unique_ptr<Task> make_mean(const Step& step, Compiler& compiler) {
  const auto& op = *step.op.as<AvgPool2d>();
  const PoolOp kind = op.count_include_pad ? PoolOp::padded_mean : PoolOp::mean;
  if (is_f64(step)) return make_pool_f64(step, op, kind, IntList{}, compiler);
  return std::make_unique<PoolTask>(step, kind, op.kernel, op.stride, op.padding, IntList{});
}

}  // namespace

extern const Kernel max_pool2d_kernel, avg_pool2d_kernel;
constinit const Kernel max_pool2d_kernel{op_def<MaxPool2d>, refuses_pool2d, make_max};
constinit const Kernel avg_pool2d_kernel{op_def<AvgPool2d>, refuses_pool2d, make_mean};

}  // namespace tenon::cpu
