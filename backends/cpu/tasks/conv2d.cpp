// Convolutions: by Winograd's filtering where that is faster, by implicit GEMM with a packed
// filter, and depthwise ones. All read images with their channels last; others are copied to
// scratch memory first.
#include "../convolution/channels_last.hpp"
#include "../convolution/convolution.hpp"
#include "../convolution/image_source.hpp"
#include "../convolution/plan.hpp"
#include "../convolution/winograd/task.hpp"
#include "../task.hpp"
#include "conv_f64.hpp"
#include "image_task.hpp"
#include "real.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace tenon::cpu {
namespace {

class ConvTask final : public Task {
 public:
  ConvTask(const Step& step, Compiler& compiler)
      : conv_(Convolution::of(step)), filter_(conv_, compiler), plan_(conv_) {
    const bool is_narrow = plan_.put_images_across(conv_);
    if (is_narrow && !has_channels_last(conv_.x)) {
      image_ = ImageSource::channels_last(conv_.x, plan_.x, compiler);
    } else if (!is_narrow && needs_copy()) {
      image_ = ImageSource::request(conv_, plan_, compiler);
    }
    if (!is_narrow) plan_.flatten(conv_);
    plan_.divide(conv_, compiler.threads(), {.cached = 1 << 17, .large = 1 << 18});
  }

  void run(const TaskContext& context) const noexcept override {
    const Convolution& c = conv_;
    const float* filter = filter_.at(context);
    const float* x = image_.at(context, c.x);
    const float* bias = c.bias ? context.pointer<const float>(*c.bias) : nullptr;
    const float* residual = c.residual ? context.pointer<const float>(*c.residual) : nullptr;
    auto* y = context.pointer<float>(c.y);
    const std::int64_t groups = c.filter.packed_groups();
    const ImageGrid& grid = plan_.grid;
    const Range items = context.share(grid.size() * groups);
    for (std::int64_t i = items.begin; i < items.end && !context.worker.is_interrupted(); ++i) {
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
                             out,
                             plan_.has_images_across,
                             plan_.x.image};
        convolution_kernels().product(job, part);
      }
      if (c.activation) activate(c, out, part);
    }
  }

 private:
  bool needs_copy() const {
    const bool steps_over =
        !conv_.filter.is_depthwise() &&
        (!reaches_out_at_ends_only(conv_.columns) || conv_.x.shape[1] > max_zero_channels);
    return !has_channels_last(conv_.x) || steps_over;
  }

  Convolution conv_;
  FilterSource filter_;
  ConvolutionPlan plan_;
  ImageSource image_ = ImageSource::in_place();
};

std::optional<std::string> refuses_conv2d(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  if (is_f64(step)) {
    if (auto why = needs_dense(step.inputs[1], "w")) return why;
  }
  for (std::size_t i = 2; i < step.inputs.size(); ++i) {
    if (auto why = needs_dense(step.inputs[i], "bias")) return why;
  }
  return std::nullopt;
}

std::unique_ptr<Task> make_conv2d(const Step& step, Compiler& compiler) {
  if (is_f64(step)) return make_conv2d_f64(step, compiler);
  if (auto task = winograd::make_task(Convolution::of(step), compiler)) return task;
  return std::make_unique<ConvTask>(step, compiler);
}

}  // namespace

extern const Kernel conv2d_kernel, merged_conv2d_kernel;
constinit const Kernel conv2d_kernel{op_def<Conv2d>, refuses_conv2d, make_conv2d};
constinit const Kernel merged_conv2d_kernel{op_def<MergedConv2d>, refuses_conv2d, make_conv2d};

}  // namespace tenon::cpu
