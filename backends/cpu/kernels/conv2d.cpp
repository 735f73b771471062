// Convolutions: products of patches with a packed filter, and depthwise ones. Both read images with
// their channels last; one that lies otherwise is laid into scratch memory first.
#include "../convolution/convolution.hpp"
#include "../convolution/lay_in.hpp"
#include "../convolution/layout.hpp"
#include "../task.hpp"
#include "image_task.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace tenon::cpu {
namespace {

/// Brings the image of a convolution into the order that kernels read, with the zeros beside it.
class LayInTask final : public Task {
 public:
  LayInTask(const Convolution& conv, std::int64_t width, std::int64_t offset)
      : conv_(conv), width_(width), offset_(offset) {}

  void run(const TaskContext& context) const noexcept override {
    const Shape& shape = conv_.x.shape;
    const std::int64_t rows = shape[2];
    LayIn job{{}, shape[3], shape[1], conv_.columns.before, width_, nullptr};
    auto* to = reinterpret_cast<float*>(context.scratch(offset_));
    Range range = context.share(shape[0] * rows);
    while (range.begin < range.end) {
      const std::int64_t image = range.begin / rows, first = range.begin % rows;
      const std::int64_t last = std::min(rows, first + range.end - range.begin);
      job.x = moved(image_of(conv_.x, context.pointer<const float>(conv_.x)),
                    image * (conv_.x.strides[0] / 4));
      job.to = to + image * rows * width_ * shape[1];
      lay_in(job, first, last);
      range.begin += last - first;
    }
  }

 private:
  Convolution conv_;
  std::int64_t width_, offset_;
};

class ConvTask final : public Task {
 public:
  ConvTask(const Step& step, Compiler& compiler)
      : conv_(Convolution::of(step)), filter_(conv_, compiler) {
    lay_in_image(compiler);
    flatten();
    divide(compiler.threads());
  }

  void run(const TaskContext& context) const noexcept override {
    const Convolution& c = conv_;
    const float* filter = filter_.at(context);
    const float* x = laid_offset_ < 0
                         ? context.pointer<const float>(c.x)
                         : reinterpret_cast<const float*>(context.scratch(laid_offset_));
    const float* bias = c.bias ? context.pointer<const float>(*c.bias) : nullptr;
    const float* residual = c.residual ? context.pointer<const float>(*c.residual) : nullptr;
    auto* y = context.pointer<float>(c.y);
    const std::int64_t groups = c.filter.packed_groups();
    const Range items = context.share(grid_.size() * groups);
    for (std::int64_t i = items.begin; i < items.end; ++i) {
      const std::int64_t item = i / groups, group = i % groups, image = grid_.image(item);
      const std::int64_t output = group * c.filter.group_outputs();
      Finish finish{bias == nullptr ? nullptr : bias + output, {}, c.low, c.high};
      if (residual != nullptr) {
        finish.residual = residual_;
        finish.residual.at = residual + image * residual_image_ + output * residual_.channel;
      }
      Image<float> out = y_;
      out.at = y + image * y_image_ + output * y_.channel;
      Image<const float> in = x_;
      in.at = x + image * x_image_ + group * c.filter.channels * x_.channel;
      const Part part = grid_.part(item);
      if (c.filter.is_depthwise()) {
        const DepthwiseJob job{in, filter, c.filter.outputs, rows_, columns_, finish, out};
        convolution_kernels().depthwise(job, part);
      } else {
        const ProductJob job{in,
                             filter + group * c.filter.group_panels() * c.filter.panel_elements(),
                             c.filter.panel_elements(),
                             c.filter.channels,
                             c.filter.group_outputs(),
                             rows_,
                             columns_,
                             finish,
                             out};
        convolution_kernels().product(job, part);
      }
      if (c.activation) activate(out, part);
    }
  }

 private:
  /// Decides where the kernel reads the image.
  void lay_in_image(Compiler& compiler) {
    rows_ = conv_.rows;
    columns_ = conv_.columns;
    const Shape& shape = conv_.x.shape;
    x_ = image_of<const float>(conv_.x, nullptr);
    x_image_ = conv_.x.strides[0] / 4;
    const bool steps_over = !conv_.filter.is_depthwise() &&
                            (!reaches_out_at_ends_only(columns_) || shape[1] > most_zero_channels);
    if (has_channels_last(conv_.x) && !steps_over) return;
    const std::int64_t width =
        (columns_.outputs - 1) * columns_.stride + (columns_.taps - 1) * columns_.dilation + 1;
    const std::int64_t bytes = shape[0] * shape[2] * width * shape[1] * 4;
    const Operand reads[] = {conv_.x, conv_.w};
    laid_offset_ = compiler.shared_table(
        OpInstance(conv_.op), reads, bytes,
        [&](std::int64_t offset) { return std::make_unique<LayInTask>(conv_, width, offset); });
    x_ = {nullptr, width * shape[1], shape[1], 1};
    x_image_ = shape[2] * width * shape[1];
    columns_.before = 0;
    columns_.inputs = width;
  }

  /// Where a pixel of the output is one of the image, all pixels are one row.
  void flatten() {
    const Shape& shape = conv_.y.shape;
    y_ = image_of<float>(conv_.y, nullptr);
    y_image_ = conv_.y.strides[0] / 4;
    grid_ = {shape[0], shape[2], shape[3], conv_.filter.group_outputs()};
    if (conv_.residual) {
      residual_ = image_of<const float>(*conv_.residual, nullptr);
      residual_image_ = conv_.residual->strides[0] / 4;
    }
    const auto is_point = [](const WindowAxis& axis) {
      return axis.taps == 1 && axis.stride == 1 && axis.inputs == axis.outputs;
    };
    if (!is_point(rows_) || !is_point(columns_) || conv_.filter.is_depthwise()) return;
    std::int64_t pixels = shape[3];
    const auto follow = [&](std::int64_t step_x, std::int64_t step_y, std::int64_t step_residual) {
      return step_x == pixels * x_.column && step_y == pixels * y_.column &&
             (!conv_.residual || step_residual == pixels * residual_.column);
    };
    if (shape[2] != 1 && !follow(x_.row, y_.row, residual_.row)) return;
    pixels *= shape[2];
    if (shape[0] != 1 && follow(x_image_, y_image_, residual_image_)) {
      pixels *= shape[0];
      grid_.images = 1;
    }
    grid_.rows = 1;
    grid_.columns = pixels;
    rows_.inputs = rows_.outputs = 1;
    columns_.inputs = columns_.outputs = pixels;
  }

  /// Divides the work for threads and caches.
  void divide(std::int64_t threads) {
    const std::int64_t bands = (grid_.channels + 31) / 32;
    const std::int64_t groups = conv_.filter.packed_groups();
    const std::int64_t pixels = grid_.images * grid_.rows * grid_.columns;
    const bool by_columns = grid_.rows == 1;
    const std::int64_t lines = by_columns ? grid_.columns : grid_.images * grid_.rows * groups;
    // Half of a core's own cache for the image, or for the filter.
    constexpr std::int64_t cached_floats = 1 << 17;
    const std::int64_t channels =
        conv_.filter.is_depthwise() ? grid_.channels : conv_.filter.channels;
    const std::int64_t image_floats = pixels * rows_.stride * columns_.stride * channels;
    const std::int64_t filter_floats = bands * 32 * conv_.filter.panel_elements() / 16;
    // By pixels, a thread reads what it wrote itself; by channels, it reads a part of the filter.
    constexpr std::int64_t large_filter = 1 << 18;
    const bool prefers_channels = filter_floats > image_floats && filter_floats > large_filter;
    const bool by_channels = threads > 1 && bands >= threads &&
                             (prefers_channels || imbalance(lines, threads) > 1.1) &&
                             imbalance(bands, threads) <= imbalance(lines, threads) + 0.1;
    const auto rounded = [&](std::int64_t parts, std::int64_t most) {
      parts = (std::max<std::int64_t>(parts, 1) + threads - 1) / threads * threads;
      return std::clamp<std::int64_t>(parts, 1, std::max<std::int64_t>(most, 1));
    };
    if (by_channels) {
      grid_.channel_parts = rounded(filter_floats / cached_floats, bands);
      return;
    }
    const std::int64_t parts = std::max<std::int64_t>(image_floats / cached_floats, 1);
    if (by_columns) {
      grid_.column_parts = rounded(parts / grid_.images, (grid_.columns + 13) / 14);
    } else {
      grid_.row_parts = rounded((parts + grid_.images - 1) / grid_.images, grid_.rows);
    }
  }

  void activate(const Image<float>& y, const Part& part) const {
    const std::int64_t channels = part.last_channel - part.first_channel;
    const std::int64_t columns = part.last_column - part.first_column;
    const auto apply = [this](float* at, std::int64_t count) {
      unary(*conv_.activation, at, at, count, conv_.parameters);
    };
    for (std::int64_t row = part.first_row; row < part.last_row; ++row) {
      float* line = y.at + row * y.row + part.first_column * y.column;
      if (y.channel != 1) {
        for (std::int64_t c = part.first_channel; c < part.last_channel; ++c) {
          apply(line + c * y.channel, columns);
        }
      } else if (y.column == channels) {
        apply(line, columns * channels);
      } else {
        for (std::int64_t j = 0; j < columns; ++j) {
          apply(line + j * y.column + part.first_channel, channels);
        }
      }
    }
  }

  Convolution conv_;
  FilterSource filter_;
  // As the kernel sees them: images begin `.._image_` elements apart.
  Image<const float> x_{}, residual_{};
  Image<float> y_{};
  std::int64_t x_image_ = 0, y_image_ = 0, residual_image_ = 0;
  WindowAxis rows_{}, columns_{};
  ImageGrid grid_;
  std::int64_t laid_offset_ = -1;
};

std::optional<std::string> refuses(const Step& step) {
  if (auto why = needs_f32(step)) return why;
  for (std::size_t i = 2; i < step.inputs.size(); ++i) {
    if (auto why = needs_dense(step.inputs[i], "bias")) return why;
  }
  return std::nullopt;
}

std::unique_ptr<Task> make(const Step& step, Compiler& compiler) {
  return std::make_unique<ConvTask>(step, compiler);
}

}  // namespace

extern const Kernel conv2d_kernel, merged_conv2d_kernel;
constinit const Kernel conv2d_kernel{op_def<Conv2d>, refuses, make};
constinit const Kernel merged_conv2d_kernel{op_def<MergedConv2d>, refuses, make};

}  // namespace tenon::cpu
