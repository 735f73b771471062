// Convolutions by Winograd's filtering where that is faster, by implicit GEMM with a packed filter,
// and depthwise ones. All read images with their channels last; others are copied to scratch memory
// first.
#include "winograd/task.hpp"

#include "channels_last.hpp"
#include "convolution.hpp"
#include "image_source.hpp"
#include "plan.hpp"

#include <memory>

namespace tenon::cpu {
namespace {

class ConvTask final : public Task {
 public:
  ConvTask(const Convolution& conv, Compiler& compiler)
      : conv_(conv), filter_(conv_, compiler), plan_(conv_) {
    const bool is_narrow = plan_.put_images_across(conv_);
    if (!is_narrow && needs_padding()) {
      image_ = ImageSource::request(conv_, plan_, compiler);
    } else if (!has_channels_last(conv_.x)) {
      image_ = ImageSource::channels_last(conv_.x, plan_.x, compiler);
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
  /// Where pixels are short, a row of taps should be one run, so that a copy is padded in any case.
  bool needs_padding() const {
    constexpr std::int64_t short_pixel = 16;
    const bool is_copied = !has_channels_last(conv_.x);
    return !conv_.filter.is_depthwise() &&
           (!reaches_out_at_ends_only(conv_.columns) || conv_.x.shape[1] > max_zero_channels ||
            (is_copied && conv_.filter.channels < short_pixel));
  }

  Convolution conv_;
  FilterSource filter_;
  ConvolutionPlan plan_;
  ImageSource image_ = ImageSource::in_place();
};

}  // namespace

std::unique_ptr<Task> make_convolution(const Convolution& conv, Compiler& compiler) {
  if (auto task = winograd::make_task(conv, compiler)) return task;
  return std::make_unique<ConvTask>(conv, compiler);
}

}  // namespace tenon::cpu
