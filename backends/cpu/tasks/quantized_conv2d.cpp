// Convolutions in integers. Images of codes with their channels last are read in place; others are
// copied to scratch memory first, with padding, and rounded to codes where they are f32.
#include "../int8/quantized_conv2d.hpp"

#include "../convolution/channels_last.hpp"
#include "../convolution/convolution.hpp"
#include "../convolution/plan.hpp"
#include "../int8/filter.hpp"
#include "../int8/int8_kernels.hpp"
#include "../task.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace tenon::cpu {
namespace {

bool holds_codes(const Operand& image) { return image.shape.dtype() == DType::u8; }

class Int8PaddedCopyTask final : public PartwiseTask {
 public:
  Int8PaddedCopyTask(const Operand& x, const Codes& codes, std::int64_t before, std::int64_t width,
                     std::int64_t offset)
      : x_(x), codes_(codes), before_(before), width_(width), offset_(offset) {}

  void run(const TaskContext& context) const noexcept override {
    const Shape& shape = x_.shape;
    const std::int64_t rows = shape[2];
    const ImageSteps steps = ImageSteps::of(x_);
    auto* to = reinterpret_cast<std::uint8_t*>(context.scratch(offset_));
    Range range = context.share(shape[0] * rows);
    while (range.begin < range.end) {
      const std::int64_t image = range.begin / rows, first = range.begin % rows;
      const std::int64_t last = std::min(rows, first + range.end - range.begin);
      Int8PaddedCopy job{{},
                         {},
                         shape[3],
                         shape[1],
                         before_,
                         width_,
                         1 / codes_.scale,
                         static_cast<std::uint8_t>(codes_.zero),
                         to + image * rows * width_ * shape[1]};
      if (holds_codes(x_)) {
        job.codes = steps.at(context.pointer<const std::uint8_t>(x_) + image * steps.image);
      } else {
        job.values = steps.at(context.pointer<const float>(x_) + image * steps.image);
      }
      kernels_.copy_padded(job, first, last);
      range.begin += last - first;
    }
  }

 private:
  Operand x_;
  Codes codes_;
  std::int64_t before_, width_, offset_;
  const Int8Kernels kernels_ = int8_kernels();
};

class Int8ConvTask final : public Task {
 public:
  Int8ConvTask(const Step& step, Compiler& compiler)
      : op_(*step.op.as<QuantizedConv2d>()), conv_(Convolution::of(step)), plan_(conv_) {
    const bool is_joined = choose_image_source(compiler);
    form_ = {conv_.filter, is_joined, kernels_.weight_limit};
    filter_ = compiler.prepare(conv_.w, int8_filter_recipe(form_));
    outside_.assign(static_cast<std::size_t>(std::max<std::int64_t>(form_.quads() * 4, 64)),
                    static_cast<std::uint8_t>(op_.x.zero));
    compiler.working_memory(int8_band_bytes);
    plan_.flatten(conv_);
    // The filters of a network do not stay in L2 between runs, so a thread should read as little of
    // them as possible.
    plan_.divide(conv_, compiler.threads(), {.cached = 1 << 20, .large = 1 << 17});
    set_finish();
  }

  void run(const TaskContext& context) const noexcept override {
    const PackedInt8Filter& filter = context.constant<PackedInt8Filter>(filter_);
    const auto* x = copy_offset_ < 0
                        ? context.pointer<const std::uint8_t>(conv_.x)
                        : reinterpret_cast<const std::uint8_t*>(context.scratch(copy_offset_));
    const std::int64_t groups = conv_.filter.packed_groups();
    const ImageGrid& grid = plan_.grid;
    const Range items = context.share(grid.size() * groups);
    for (std::int64_t i = items.begin; i < items.end && !context.worker.is_interrupted(); ++i) {
      const std::int64_t item = i / groups, group = i % groups, image = grid.image(item);
      const Int8Finish finish = finish_of(context, filter, image, group);
      const Image<const std::uint8_t> in =
          plan_.x.at(x + image * plan_.x.image + group * conv_.filter.channels * plan_.x.channel);
      const Part part = grid.part(item);
      if (conv_.filter.is_depthwise()) {
        kernels_.depthwise(
            {in, filter.depthwise_weights(), filter.depthwise_quads(), outside_.data(),
             conv_.filter.outputs, plan_.rows, plan_.columns, finish},
            part);
      } else {
        kernels_.product({in, filter.weights(group), form_.panel(), form_.runs(), form_.quads(),
                          outside_.data(), conv_.filter.group_outputs(), plan_.rows, plan_.columns,
                          finish, reinterpret_cast<std::uint8_t*>(context.working_memory())},
                         part);
      }
      if (conv_.activation) activate(conv_, finish.values, part);
    }
  }

 private:
  /// Makes the kernel read the image in place or from a padded copy. Returns whether the taps of a
  /// row are one run there.
  bool choose_image_source(Compiler& compiler) {
    const Shape& shape = conv_.x.shape;
    const bool is_depthwise = conv_.filter.is_depthwise();
    const bool steps_over = !is_depthwise && !reaches_out_at_ends_only(conv_.columns);
    const bool is_odd = !is_depthwise && shape[1] % 4 != 0;
    if (holds_codes(conv_.x) && has_channels_last(conv_.x) && !steps_over && !is_odd) return false;
    // A depthwise kernel handles padding itself.
    const std::int64_t width =
        is_depthwise ? shape[3] : ConvolutionPlan::padded_width(conv_.columns);
    const std::int64_t before = is_depthwise ? 0 : conv_.columns.before;
    const std::int64_t bytes = shape[0] * shape[2] * width * shape[1] + int8_overread;
    const Operand reads[] = {conv_.x, conv_.w};
    copy_offset_ = compiler.shared_table(OpInstance(conv_.op), reads, bytes, [&](std::int64_t at) {
      return std::make_unique<Int8PaddedCopyTask>(conv_.x, op_.x, before, width, at);
    });
    if (is_depthwise) {
      plan_.x = {width * shape[1], shape[1], 1, shape[2] * width * shape[1]};
      return false;
    }
    plan_.read_padded_copy(conv_, width);
    return is_odd && conv_.op.groups == 1 && conv_.columns.dilation == 1;
  }

  /// All of Int8Finish that does not depend on where the memory is.
  void set_finish() {
    const bool rounds = holds_codes(conv_.y);
    const float unit = rounds ? op_.y.scale : 1;
    const auto zero = static_cast<float>(rounds ? op_.y.zero : 0);
    finish_.zero = static_cast<float>(op_.x.zero);
    finish_.ratio = op_.x.scale / unit;
    finish_.inverse = 1 / unit;
    finish_.base = zero;
    finish_.low = conv_.low / unit + zero;
    finish_.high = conv_.high / unit + zero;
    if (rounds) {
      finish_.low = std::clamp(finish_.low, 0.0f, 255.0f);
      finish_.high = std::clamp(finish_.high, 0.0f, 255.0f);
    }
    if (!conv_.residual) return;
    finish_.residual_factor = 1 / unit;
    if (holds_codes(*conv_.residual)) {
      finish_.residual_factor = op_.residual.scale / unit;
      finish_.base -= static_cast<float>(op_.residual.zero) * finish_.residual_factor;
    }
  }

  Int8Finish finish_of(const TaskContext& context, const PackedInt8Filter& filter,
                       std::int64_t image, std::int64_t group) const noexcept {
    const std::int64_t output = group * conv_.filter.group_outputs();
    const auto place = [&](const ImageSteps& steps, auto* first) {
      return steps.at(first + image * steps.image + output * steps.channel);
    };
    Int8Finish finish = finish_;
    finish.weight_scale = filter.scales(group);
    finish.weight_sum = filter.sums(group);
    if (conv_.bias) finish.bias = context.pointer<const float>(*conv_.bias) + output;
    if (conv_.residual && holds_codes(*conv_.residual)) {
      finish.residual_codes =
          place(plan_.residual, context.pointer<const std::uint8_t>(*conv_.residual));
    } else if (conv_.residual) {
      finish.residual_values = place(plan_.residual, context.pointer<const float>(*conv_.residual));
    }
    if (holds_codes(conv_.y)) {
      finish.codes = place(plan_.y, context.pointer<std::uint8_t>(conv_.y));
    } else {
      finish.values = place(plan_.y, context.pointer<float>(conv_.y));
    }
    return finish;
  }

  QuantizedConv2d op_;
  Convolution conv_;
  ConvolutionPlan plan_;
  const Int8Kernels kernels_ = int8_kernels();
  Int8FilterForm form_{};
  PreparedIndex filter_;
  std::vector<std::uint8_t> outside_;
  Int8Finish finish_{};
  std::int64_t copy_offset_ = -1;
};

}  // namespace

extern const Kernel quantized_conv2d_kernel;
constinit const Kernel quantized_conv2d_kernel{op_def<QuantizedConv2d>, takes_everything,
                                               make_task<Int8ConvTask>};

}  // namespace tenon::cpu
