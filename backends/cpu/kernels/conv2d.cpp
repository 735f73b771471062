#include "../matmul/kernels.hpp"
#include "../task.hpp"
#include "windows.hpp"

#include <tenon/ops/conv2d.hpp>

#include <algorithm>

namespace tenon::cpu {
namespace {

/// What both forms of a convolution share: one image and group at a time.
struct Convolution {
  Convolution(const Step& step, const Conv2d& op)
      : x(step.inputs[0]),
        w(step.inputs[1]),
        y(step.output),
        groups(op.groups),
        group_outputs(w.shape[0] / std::max<std::int64_t>(op.groups, 1)) {
    if (op.has_bias) bias = step.inputs[2];
    const auto axis = [&](int i) {
      return window_axis(static_cast<std::size_t>(i), x.shape[2 + i], y.shape[2 + i],
                         w.shape[2 + i], op.stride, 1, op.padding, op.dilation);
    };
    rows = axis(0);
    columns = axis(1);
  }

  std::int64_t step_of_x(std::size_t axis) const noexcept { return x.strides[axis] / 4; }
  std::int64_t pixels() const noexcept { return rows.outputs * columns.outputs; }

  Operand x, w, y;
  std::optional<Operand> bias;
  std::int64_t groups, group_outputs;
  WindowAxis rows{}, columns{};
};

/// Items are tiles of pixels and blocks of output channels of one image and group.
class ProductTask final : public Task {
 public:
  explicit ProductTask(const Convolution& conv) : conv_(conv) {
    tiles_ = (conv_.pixels() + item_pixels - 1) / item_pixels;
    blocks_ = (conv_.group_outputs + max_block_rows - 1) / max_block_rows;
  }

  void run(const TaskContext& context) const noexcept override {
    const Convolution& c = conv_;
    const std::int64_t per_image = c.groups * blocks_ * tiles_;
    const auto kernel = convolution_kernels().conv;
    ConvJob job{};
    job.channel_step = c.step_of_x(1);
    job.row_step = c.step_of_x(2);
    job.channels = c.w.shape[1];
    job.rows = c.rows;
    job.columns = c.columns;
    job.pixels = c.pixels();
    job.depth = job.channels * c.rows.taps * c.columns.taps;
    const auto* x = context.pointer<const float>(c.x);
    const auto* w = context.pointer<const float>(c.w);
    const auto* bias = c.bias ? context.pointer<const float>(*c.bias) : nullptr;
    auto* y = context.pointer<float>(c.y);
    const Range items = context.share(c.x.shape[0] * per_image);
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      const std::int64_t image = item / per_image, group = item % per_image / (blocks_ * tiles_);
      const std::int64_t block = item / tiles_ % blocks_, tile = item % tiles_;
      const std::int64_t first_output = group * c.group_outputs;
      job.x = x + image * c.step_of_x(0) + group * job.channels * job.channel_step;
      job.w = w + first_output * job.depth;
      job.bias = bias == nullptr ? nullptr : bias + first_output;
      job.y = y + (image * c.groups * c.group_outputs + first_output) * c.pixels();
      kernel(job, tile * item_pixels, std::min((tile + 1) * item_pixels, c.pixels()),
             block * max_block_rows, std::min((block + 1) * max_block_rows, c.group_outputs));
    }
  }

 private:
  static constexpr std::int64_t item_pixels = 96;  // whole tiles at every vector width
  Convolution conv_;
  std::int64_t tiles_ = 0, blocks_ = 0;
};

/// One input channel for each group: no sums over channels, so planes are convolved one by one.
class DepthwiseTask final : public Task {
 public:
  explicit DepthwiseTask(const Convolution& conv) : conv_(conv) {}

  void run(const TaskContext& context) const noexcept override {
    const Convolution& c = conv_;
    const std::int64_t outputs = c.groups * c.group_outputs, rows = c.rows.outputs;
    const auto kernel = convolution_kernels().window;
    WindowJob job{};
    job.row_step = c.step_of_x(2);
    job.rows = c.rows;
    job.columns = c.columns;
    const auto* x = context.pointer<const float>(c.x);
    const auto* w = context.pointer<const float>(c.w);
    const auto* bias = c.bias ? context.pointer<const float>(*c.bias) : nullptr;
    auto* y = context.pointer<float>(c.y);
    Range range = context.share(c.x.shape[0] * outputs * rows);
    while (range.begin < range.end) {
      const std::int64_t plane = range.begin / rows, first = range.begin % rows;
      const std::int64_t last = std::min(rows, first + range.end - range.begin);
      const std::int64_t image = plane / outputs, output = plane % outputs;
      job.x = x + image * c.step_of_x(0) + output / c.group_outputs * c.step_of_x(1);
      job.weights = w + output * c.rows.taps * c.columns.taps;
      job.bias = bias == nullptr ? 0.0f : bias[output];
      job.y = y + plane * c.pixels();
      kernel(WindowOp::weighted_sum, job, first, last);
      range.begin += last - first;
    }
  }

 private:
  Convolution conv_;
};

std::optional<std::string> refuses(const Step& step) {
  if (auto why = needs_f32(step)) return why;
  if (auto why = needs_dense_rows(step.inputs[0], "x")) return why;
  for (std::size_t i = 1; i < step.inputs.size(); ++i) {
    if (auto why = needs_dense(step.inputs[i], "a weight")) return why;
  }
  return std::nullopt;
}

std::unique_ptr<Task> make(const Step& step, Compiler&) {
  const Convolution conv(step, *step.op.as<Conv2d>());
  if (conv.w.shape[1] == 1) return std::make_unique<DepthwiseTask>(conv);
  return std::make_unique<ProductTask>(conv);
}

}  // namespace

extern const Kernel conv2d_kernel;
constinit const Kernel conv2d_kernel{op_def<Conv2d>, refuses, make};

}  // namespace tenon::cpu
