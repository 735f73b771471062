#include "conv_f64.hpp"

#include "../integer_math.hpp"
#include "../vision/fold_plane.hpp"
#include "typed_matmul.hpp"
#include "windows.hpp"

#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/conv_transpose2d.hpp>

#include <algorithm>
#include <optional>

namespace tenon::cpu {
namespace {

constexpr std::int64_t f64_bytes = sizeof(double);
/// Elements of a block's columns or products, which stay in L2, and channels that share them.
constexpr std::int64_t block_elements_f64 = 48 * 1024, block_channels = 192;

/// A thread takes some rows of an image of the result for some of a group's channels.
class ConvF64Task final : public Task {
 public:
  ConvF64Task(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), w_(step.inputs[1]), y_(step.output) {
    const auto& op = *step.op.as<Conv2d>();
    if (op.has_bias) bias_ = step.inputs[2];
    const Shape &x = x_.shape, &w = w_.shape, &y = y_.shape;
    rows_ = window_axis(0, x[2], y[2], w[2], op.stride, 1, op.padding, op.dilation);
    columns_ = window_axis(1, x[3], y[3], w[3], op.stride, 1, op.padding, op.dilation);
    groups_ = op.groups;
    outputs_ = w[0] / groups_;
    products_ = w[1] * w[2] * w[3];
    const std::int64_t row = std::max<std::int64_t>(1, products_ * y[3]);
    block_rows_ =
        std::clamp<std::int64_t>(block_elements_f64 / row, 1, std::max<std::int64_t>(1, y[2]));
    row_blocks_ = ceil_div(y[2], block_rows_);
    channel_blocks_ = ceil_div(outputs_, block_channels);
    columns_bytes_ = round_up(products_ * block_rows_ * y[3] * f64_bytes, 64);
    compiler.working_memory(columns_bytes_ + product_f64_bytes());
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t parts = row_blocks_ * channel_blocks_;
    const Range items = context.share(x_.shape[0] * groups_ * parts);
    for (std::int64_t i = items.begin; i < items.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t part = i % parts, group = i / parts % groups_;
      const std::int64_t row = part / channel_blocks_ * block_rows_;
      block(context, i / parts / groups_, group, row, part % channel_blocks_ * block_channels);
    }
  }

 private:
  void block(const TaskContext& context, std::int64_t image, std::int64_t group, std::int64_t row,
             std::int64_t channel) const noexcept {
    const std::int64_t height = y_.shape[2], width = y_.shape[3];
    const std::int64_t rows = std::min(block_rows_, height - row);
    const std::int64_t channels = std::min(block_channels, outputs_ - channel);
    auto* const columns = reinterpret_cast<double*>(context.working_memory());
    const std::byte* x = context.pointer<const std::byte>(x_) + image * x_.strides[0] +
                         group * w_.shape[1] * x_.strides[1];
    double* to = columns;
    for (std::int64_t c = 0; c < w_.shape[1]; ++c) {
      for (std::int64_t r = 0; r < rows_.taps; ++r) {
        for (std::int64_t s = 0; s < columns_.taps; ++s) {
          for (std::int64_t i = row; i < row + rows; ++i, to += width) {
            copy_line(x + c * x_.strides[1], i * rows_.stride + r * rows_.dilation - rows_.before,
                      s, to);
          }
        }
      }
    }
    const std::int64_t first = group * outputs_ + channel;
    double* y =
        context.pointer<double>(y_) + ((image * y_.shape[1] + first) * height + row) * width;
    const std::byte* w = context.pointer<const std::byte>(w_) + first * products_ * f64_bytes;
    multiply({.m = channels,
              .n = rows * width,
              .k = products_,
              .a = reinterpret_cast<const double*>(w),
              .a_row = products_,
              .a_column = 1,
              .b = columns,
              .b_row = rows * width,
              .b_column = 1,
              .c = y,
              .c_row = height * width},
             context.working_memory() + columns_bytes_);
    if (!bias_) return;
    const double* bias = context.pointer<const double>(*bias_) + first;
    for (std::int64_t c = 0; c < channels; ++c) {
      double* const plane = y + c * height * width;
      for (std::int64_t i = 0; i < rows * width; ++i) plane[i] += bias[c];
    }
  }

  /// What tap `s` sees along a row of outputs.
  void copy_line(const std::byte* plane, std::int64_t row, std::int64_t s,
                 double* to) const noexcept {
    const std::int64_t width = y_.shape[3];
    if (row < 0 || row >= rows_.inputs) {
      std::fill_n(to, width, 0.0);
      return;
    }
    const std::byte* line = plane + row * x_.strides[2];
    const std::int64_t first = s * columns_.dilation - columns_.before;
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t column = first + j * columns_.stride;
      const bool is_inside = column >= 0 && column < columns_.inputs;
      to[j] = is_inside ? *reinterpret_cast<const double*>(line + column * x_.strides[3]) : 0.0;
    }
  }

  Operand x_, w_, y_;
  std::optional<Operand> bias_;
  WindowAxis rows_{}, columns_{};
  std::int64_t groups_ = 1, outputs_ = 0, products_ = 0;
  std::int64_t block_rows_ = 1, row_blocks_ = 0, channel_blocks_ = 0, columns_bytes_ = 0;
};

/// A thread takes some channels of an image of the result: products with all pixels, then sums.
class ConvTransposeF64Task final : public Task {
 public:
  ConvTransposeF64Task(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), w_(step.inputs[1]), y_(step.output) {
    const auto& op = *step.op.as<ConvTranspose2d>();
    if (op.has_bias) bias_ = step.inputs[2];
    const Shape &x = x_.shape, &w = w_.shape, &y = y_.shape;
    rows_ = window_axis(0, y[2], x[2], w[2], op.stride, 1, op.padding, op.dilation);
    columns_ = window_axis(1, y[3], x[3], w[3], op.stride, 1, op.padding, op.dilation);
    groups_ = op.groups;
    outputs_ = w[1];
    taps_ = w[2] * w[3];
    const std::int64_t of_channel = std::max<std::int64_t>(1, taps_ * x[2] * x[3]);
    channels_ = std::clamp<std::int64_t>(4 * block_elements_f64 / of_channel, 1,
                                         std::max<std::int64_t>(1, outputs_));
    channel_blocks_ = ceil_div(outputs_, channels_);
    product_bytes_ = round_up(channels_ * taps_ * x[2] * x[3] * f64_bytes, 64);
    compiler.working_memory(product_bytes_ + product_f64_bytes());
  }

  void run(const TaskContext& context) const noexcept override {
    const Range items = context.share(x_.shape[0] * groups_ * channel_blocks_);
    for (std::int64_t i = items.begin; i < items.end && !context.worker.is_interrupted(); ++i) {
      block(context, i / channel_blocks_ / groups_, i / channel_blocks_ % groups_,
            i % channel_blocks_ * channels_);
    }
  }

 private:
  void block(const TaskContext& context, std::int64_t image, std::int64_t group,
             std::int64_t channel) const noexcept {
    const std::int64_t channels = std::min(channels_, outputs_ - channel);
    const std::int64_t inputs = x_.shape[1] / groups_, pixels = x_.shape[2] * x_.shape[3];
    auto* const products = reinterpret_cast<double*>(context.working_memory());
    multiply(
        {.m = channels * taps_,
         .n = pixels,
         .k = inputs,
         .a = context.pointer<const double>(w_) + (group * inputs * outputs_ + channel) * taps_,
         .a_row = 1,
         .a_column = outputs_ * taps_,
         .b = context.pointer<const double>(x_) + (image * x_.shape[1] + group * inputs) * pixels,
         .b_row = pixels,
         .b_column = 1,
         .c = products,
         .c_row = pixels},
        context.working_memory() + product_bytes_);
    const std::int64_t first = group * outputs_ + channel, plane = rows_.inputs * columns_.inputs;
    const double* bias = bias_ ? context.pointer<const double>(*bias_) + first : nullptr;
    double* y = context.pointer<double>(y_) + (image * y_.shape[1] + first) * plane;
    for (std::int64_t c = 0; c < channels; ++c) {
      fold_plane(products + c * taps_ * pixels, pixels, {rows_, columns_}, {0, rows_.outputs},
                 {0, rows_.inputs}, bias == nullptr ? 0.0 : bias[c], y + c * plane);
    }
  }

  Operand x_, w_, y_;
  std::optional<Operand> bias_;
  WindowAxis rows_{}, columns_{};
  std::int64_t groups_ = 1, outputs_ = 0, taps_ = 1;
  std::int64_t channels_ = 1, channel_blocks_ = 0, product_bytes_ = 0;
};

/// A thread takes some input channels of the filter: image by image, upstream times what the taps of
/// one channel see.
class FilterBackwardF64Task final : public Task {
 public:
  FilterBackwardF64Task(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), upstream_(step.inputs[1]), y_(step.output) {
    const auto& op = *step.op.as<Conv2dFilterBackward>();
    const Shape &x = x_.shape, &upstream = upstream_.shape;
    rows_ = window_axis(0, x[2], upstream[2], op.kernel[0], op.stride, 1, op.padding, op.dilation);
    columns_ =
        window_axis(1, x[3], upstream[3], op.kernel[1], op.stride, 1, op.padding, op.dilation);
    groups_ = op.groups;
    outputs_ = upstream[1] / groups_;
    taps_ = rows_.taps * columns_.taps;
    pixels_ = upstream[2] * upstream[3];
    column_bytes_ = round_up(taps_ * pixels_ * f64_bytes, 64);
    sum_bytes_ = round_up(outputs_ * taps_ * f64_bytes, 64);
    compiler.working_memory(column_bytes_ + sum_bytes_ + product_f64_bytes());
  }

  void run(const TaskContext& context) const noexcept override {
    const Range channels = context.share(y_.shape[0] == 0 ? 0 : x_.shape[1]);
    for (std::int64_t c = channels.begin; c < channels.end; ++c) {
      if (context.worker.is_interrupted()) return;
      channel(context, c);
    }
  }

 private:
  void channel(const TaskContext& context, std::int64_t channel) const noexcept {
    const std::int64_t of_group = y_.shape[1], group = channel / of_group;
    auto* const seen = reinterpret_cast<double*>(context.working_memory());
    auto* const sums = reinterpret_cast<double*>(context.working_memory() + column_bytes_);
    double* y =
        context.pointer<double>(y_) + (group * outputs_ * of_group + channel % of_group) * taps_;
    for (std::int64_t o = 0; o < outputs_; ++o) std::fill_n(y + o * of_group * taps_, taps_, 0.0);
    for (std::int64_t image = 0; image < x_.shape[0]; ++image) {
      copy_taps(context.pointer<const double>(x_) +
                    (image * x_.shape[1] + channel) * rows_.inputs * columns_.inputs,
                seen);
      multiply({.m = outputs_,
                .n = taps_,
                .k = pixels_,
                .a = context.pointer<const double>(upstream_) +
                     (image * upstream_.shape[1] + group * outputs_) * pixels_,
                .a_row = pixels_,
                .a_column = 1,
                .b = seen,
                .b_row = 1,
                .b_column = pixels_,
                .c = sums,
                .c_row = taps_},
               context.working_memory() + column_bytes_ + sum_bytes_);
      for (std::int64_t o = 0; o < outputs_; ++o) {
        for (std::int64_t t = 0; t < taps_; ++t) y[o * of_group * taps_ + t] += sums[o * taps_ + t];
      }
    }
  }

  /// What each tap sees at all pixels of the result.
  void copy_taps(const double* plane, double* to) const noexcept {
    for (std::int64_t r = 0; r < rows_.taps; ++r) {
      for (std::int64_t s = 0; s < columns_.taps; ++s) {
        for (std::int64_t i = 0; i < rows_.outputs; ++i) {
          const std::int64_t row = i * rows_.stride + r * rows_.dilation - rows_.before;
          const bool has_row = row >= 0 && row < rows_.inputs;
          for (std::int64_t j = 0; j < columns_.outputs; ++j) {
            const std::int64_t column =
                j * columns_.stride + s * columns_.dilation - columns_.before;
            const bool is_inside = has_row && column >= 0 && column < columns_.inputs;
            *to++ = is_inside ? plane[row * columns_.inputs + column] : 0.0;
          }
        }
      }
    }
  }

  Operand x_, upstream_, y_;
  WindowAxis rows_{}, columns_{};
  std::int64_t groups_ = 1, outputs_ = 0, taps_ = 1, pixels_ = 0;
  std::int64_t column_bytes_ = 0, sum_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_conv2d_filter_backward_f64(const Step& step, Compiler& compiler) {
  return std::make_unique<FilterBackwardF64Task>(step, compiler);
}

std::unique_ptr<Task> make_conv2d_f64(const Step& step, Compiler& compiler) {
  return std::make_unique<ConvF64Task>(step, compiler);
}

std::unique_ptr<Task> make_conv_transpose2d_f64(const Step& step, Compiler& compiler) {
  return std::make_unique<ConvTransposeF64Task>(step, compiler);
}

}  // namespace tenon::cpu
