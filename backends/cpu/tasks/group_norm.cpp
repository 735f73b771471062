// Norms with a factor and a shift for each channel. Groups of channels: a group at a time, its sums
// in f64 over blocks of f32.
#include "../task.hpp"
#include "../vision/vision_kernels.hpp"

#include <tenon/ops/batch_norm.hpp>
#include <tenon/ops/group_norm.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace tenon::cpu {
namespace {

class GroupNormTask final : public Task {
 public:
  explicit GroupNormTask(const Step& step)
      : in_(step.inputs), y_(step.output), op_(*step.op.as<GroupNorm>()) {
    for (int i = 2; i < y_.shape.rank(); ++i) pixels_ *= y_.shape[i];
  }

  void run(const TaskContext& context) const noexcept override {
    const VisionKernels& kernels = vision_kernels();
    const std::int64_t channels = y_.shape[1] / op_.groups, size = channels * pixels_;
    const auto weights = [&](std::size_t i) {
      return i < in_.size() ? context.pointer<const float>(in_[i]) : nullptr;
    };
    const float *weight = weights(1), *bias = weights(2);
    const Range range = context.share(y_.shape[0] * op_.groups);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const float* x = context.pointer<const float>(in_[0]) + i * size;
      float* y = context.pointer<float>(y_) + i * size;
      const auto count = static_cast<double>(size);
      std::array<double, 2> sums{};
      kernels.add_moments(x, 0, size, sums.data());
      // What the f32 rounding of the mean leaves is the first moment around it.
      const auto centre = static_cast<float>(sums[0] / count);
      sums = {};
      kernels.add_moments(x, centre, size, sums.data());
      const double rest = sums[0] / count;
      const double variance = sums[1] / count - rest * rest;
      const double scale = 1 / std::sqrt(std::max(variance, 0.0) + op_.eps);
      const double mean = static_cast<double>(centre) + rest;
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto channel = static_cast<std::size_t>(i % op_.groups * channels + c);
        const double factor =
            scale * (weight == nullptr ? 1.0 : static_cast<double>(weight[channel]));
        const double shift = bias == nullptr ? 0.0 : static_cast<double>(bias[channel]);
        kernels.scale_row(x + c * pixels_, static_cast<float>(factor),
                          static_cast<float>(shift - mean * factor), y + c * pixels_, pixels_);
      }
    }
  }

 private:
  std::vector<Operand> in_;
  Operand y_;
  GroupNorm op_;
  std::int64_t pixels_ = 1;
};

class BatchNormTask final : public Task {
 public:
  explicit BatchNormTask(const Step& step)
      : in_(step.inputs), y_(step.output), eps_(step.op.as<BatchNorm>()->eps) {
    for (int i = 2; i < y_.shape.rank(); ++i) pixels_ *= y_.shape[i];
  }

  void run(const TaskContext& context) const noexcept override {
    const VisionKernels& kernels = vision_kernels();
    const std::int64_t channels = y_.shape[1];
    const auto of_channel = [&](std::size_t i, std::int64_t channel, double absent) {
      return i < in_.size() ? static_cast<double>(context.pointer<const float>(in_[i])[channel])
                            : absent;
    };
    const Range range = context.share(y_.shape[0] * channels);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::int64_t c = i % channels;
      const double factor = of_channel(3, c, 1) / std::sqrt(of_channel(2, c, 1) + eps_);
      const double shift = of_channel(4, c, 0) - of_channel(1, c, 0) * factor;
      kernels.scale_row(context.pointer<const float>(in_[0]) + i * pixels_,
                        static_cast<float>(factor), static_cast<float>(shift),
                        context.pointer<float>(y_) + i * pixels_, pixels_);
    }
  }

 private:
  std::vector<Operand> in_;
  Operand y_;
  double eps_;
  std::int64_t pixels_ = 1;
};

std::optional<std::string> refuses_group_norm(const Step& step) {
  if (auto why = needs_f32(step)) return why;
  for (const Operand& input : step.inputs) {
    if (auto why = needs_dense(input, "an input")) return why;
  }
  return std::nullopt;
}

}  // namespace

extern const Kernel group_norm_kernel, batch_norm_kernel;
constinit const Kernel group_norm_kernel{op_def<GroupNorm>, refuses_group_norm,
                                         make_task<GroupNormTask>};
constinit const Kernel batch_norm_kernel{op_def<BatchNorm>, refuses_group_norm,
                                         make_task<BatchNormTask>};

}  // namespace tenon::cpu
