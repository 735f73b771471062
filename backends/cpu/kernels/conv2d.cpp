// Convolutions: products of patches with a packed filter, and depthwise ones. Both read images with
// their channels last; one that lies otherwise is laid into scratch memory first.
#include "../convolution/convolution.hpp"
#include "../convolution/lay_in.hpp"
#include "../convolution/layout.hpp"
#include "../convolution/plan.hpp"
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
      : conv_(Convolution::of(step)), filter_(conv_, compiler), plan_(conv_) {
    lay_in_image(compiler);
    plan_.flatten(conv_);
    plan_.divide(conv_, compiler.threads(), {.cached = 1 << 17, .large = 1 << 18});
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
    const ImageGrid& grid = plan_.grid;
    const Range items = context.share(grid.size() * groups);
    for (std::int64_t i = items.begin; i < items.end; ++i) {
      const std::int64_t item = i / groups, group = i % groups, image = grid.image(item);
      const std::int64_t output = group * c.filter.group_outputs();
      const auto place = [&](const ImageSteps& steps, auto* first, std::int64_t channel) {
        return steps.at(first + image * steps.image + channel * steps.channel);
      };
      Finish finish{bias == nullptr ? nullptr : bias + output, {}, c.low, c.high};
      if (residual != nullptr) finish.residual = place(plan_.residual, residual, output);
      const Image<float> out = place(plan_.y, y, output);
      const Image<const float> in = place(plan_.x, x, group * c.filter.channels);
      const Part part = grid.part(item);
      if (c.filter.is_depthwise()) {
        const DepthwiseJob job{in,     filter, c.filter.outputs, plan_.rows, plan_.columns,
                               finish, out};
        convolution_kernels().depthwise(job, part);
      } else {
        const ProductJob job{in,
                             filter + group * c.filter.group_panels() * c.filter.panel_elements(),
                             c.filter.panel_elements(),
                             c.filter.channels,
                             c.filter.group_outputs(),
                             plan_.rows,
                             plan_.columns,
                             finish,
                             out};
        convolution_kernels().product(job, part);
      }
      if (c.activation) activate(c, out, part);
    }
  }

 private:
  /// Decides where the kernel reads the image.
  void lay_in_image(Compiler& compiler) {
    const Shape& shape = conv_.x.shape;
    const bool steps_over =
        !conv_.filter.is_depthwise() &&
        (!reaches_out_at_ends_only(conv_.columns) || shape[1] > most_zero_channels);
    if (has_channels_last(conv_.x) && !steps_over) return;
    const std::int64_t width = ConvolutionPlan::laid_width(conv_.columns);
    const std::int64_t bytes = shape[0] * shape[2] * width * shape[1] * 4;
    const Operand reads[] = {conv_.x, conv_.w};
    laid_offset_ = compiler.shared_table(
        OpInstance(conv_.op), reads, bytes,
        [&](std::int64_t offset) { return std::make_unique<LayInTask>(conv_, width, offset); });
    plan_.lay_in(conv_, width);
  }

  Convolution conv_;
  FilterSource filter_;
  ConvolutionPlan plan_;
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
