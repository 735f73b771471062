// Norms with a factor and a shift for each channel. Groups of channels: a group at a time, its sums
// in f64, over blocks of f32 where x is f32.
#include "../task.hpp"
#include "../vision/vision_kernels.hpp"
#include "real.hpp"

#include <tenon/ops/batch_norm.hpp>
#include <tenon/ops/group_norm.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace tenon::cpu {
namespace {

/// y = (x - mean) * factor + shift. In f32, x less the rounded mean is exact where the two are
/// near; their products with a large factor would not cancel.
void scale_row(const float* x, double mean, double factor, double shift, float* y,
               std::int64_t count) noexcept {
  const auto centre = static_cast<float>(mean);
  const double rest = std::isfinite(centre) ? mean - static_cast<double>(centre) : 0;
  vision_kernels().scale_row(x, centre, static_cast<float>(factor),
                             static_cast<float>(shift - rest * factor), y, count);
}
void scale_row(const double* x, double mean, double factor, double shift, double* y,
               std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor + shift;
}

/// The same of one element of each channel: scale * (x - mean) * weight + bias, where a null is none.
template <class T>
void scale_elements(const T* x, double scale, double mean, const T* weight, const T* bias, T* y,
                    std::int64_t channels) noexcept {
  for (std::int64_t c = 0; c < channels; ++c) {
    const double factor = weight == nullptr ? scale : scale * static_cast<double>(weight[c]);
    const double shift = bias == nullptr ? 0.0 : static_cast<double>(bias[c]);
    y[c] = static_cast<T>((static_cast<double>(x[c]) - mean) * factor + shift);
  }
}

/// sums[0] += the sum of x - centre, sums[1] += that of (x - centre)^2.
void add_moments(const float* x, double centre, std::int64_t count, double* sums) noexcept {
  vision_kernels().add_moments(x, static_cast<float>(centre), count, sums);
}
void add_moments(const double* x, double centre, std::int64_t count, double* sums) noexcept {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> first{}, second{};
  for (std::int64_t i = 0; i < count; i += lanes) {
    const std::int64_t width = std::min(lanes, count - i);
    for (std::int64_t j = 0; j < width; ++j) {
      const double rest = x[i + j] - centre;
      first[static_cast<std::size_t>(j)] += rest;
      second[static_cast<std::size_t>(j)] += rest * rest;
    }
  }
  for (std::size_t j = 0; j < lanes; ++j) {
    sums[0] += first[j];
    sums[1] += second[j];
  }
}

template <class T>
class GroupNormTask final : public PartwiseTask {
 public:
  explicit GroupNormTask(const Step& step)
      : in_(step.inputs), y_(step.output), op_(*step.op.as<GroupNorm>()) {
    for (int i = 2; i < y_.shape.rank(); ++i) pixels_ *= y_.shape[i];
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t channels = y_.shape[1] / op_.groups, size = channels * pixels_;
    const auto weights = [&](std::size_t i) {
      return i < in_.size() ? context.pointer<const T>(in_[i]) : nullptr;
    };
    const T *weight = weights(1), *bias = weights(2);
    const Range range = context.share(y_.shape[0] * op_.groups);
    for (std::int64_t i = range.begin; i < range.end && !context.worker.is_interrupted(); ++i) {
      const T* x = context.pointer<const T>(in_[0]) + i * size;
      T* y = context.pointer<T>(y_) + i * size;
      const auto count = static_cast<double>(size);
      std::array<double, 2> sums{};
      add_moments(x, 0, size, sums.data());
      // What the f32 rounding of the mean leaves is the first moment around it.
      const auto centre = static_cast<double>(static_cast<T>(sums[0] / count));
      sums = {};
      add_moments(x, centre, size, sums.data());
      const double rest = sums[0] / count;
      const double variance = sums[1] / count - rest * rest;
      const double scale = 1 / std::sqrt(std::max(variance, 0.0) + op_.eps);
      const double mean = centre + rest;
      const std::int64_t first = i % op_.groups * channels;
      if (pixels_ == 1) {
        scale_elements(x, scale, mean, weight == nullptr ? nullptr : weight + first,
                       bias == nullptr ? nullptr : bias + first, y, channels);
        continue;
      }
      for (std::int64_t c = 0; c < channels; ++c) {
        const double factor =
            scale * (weight == nullptr ? 1.0 : static_cast<double>(weight[first + c]));
        const double shift = bias == nullptr ? 0.0 : static_cast<double>(bias[first + c]);
        scale_row(x + c * pixels_, mean, factor, shift, y + c * pixels_, pixels_);
      }
    }
  }

 private:
  std::vector<Operand> in_;
  Operand y_;
  GroupNorm op_;
  std::int64_t pixels_ = 1;
};

template <class T>
class BatchNormTask final : public PartwiseTask {
 public:
  explicit BatchNormTask(const Step& step)
      : in_(step.inputs), y_(step.output), eps_(step.op.as<BatchNorm>()->eps) {
    for (int i = 2; i < y_.shape.rank(); ++i) pixels_ *= y_.shape[i];
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t channels = y_.shape[1];
    const auto of_channel = [&](std::size_t i, std::int64_t channel, double absent) {
      return i < in_.size() ? static_cast<double>(context.pointer<const T>(in_[i])[channel])
                            : absent;
    };
    const Range range = context.share(y_.shape[0] * channels);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const std::int64_t c = i % channels;
      const double factor = of_channel(3, c, 1) / std::sqrt(of_channel(2, c, 1) + eps_);
      scale_row(context.pointer<const T>(in_[0]) + i * pixels_, of_channel(1, c, 0), factor,
                of_channel(4, c, 0), context.pointer<T>(y_) + i * pixels_, pixels_);
    }
  }

 private:
  std::vector<Operand> in_;
  Operand y_;
  double eps_;
  std::int64_t pixels_ = 1;
};

std::optional<std::string> refuses_group_norm(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  for (const Operand& input : step.inputs) {
    if (auto why = needs_dense(input, "an input")) return why;
  }
  return std::nullopt;
}

}  // namespace

extern const Kernel group_norm_kernel, batch_norm_kernel;
constinit const Kernel group_norm_kernel{op_def<GroupNorm>, refuses_group_norm,
                                         make_real_task<GroupNormTask>};
constinit const Kernel batch_norm_kernel{op_def<BatchNorm>, refuses_group_norm,
                                         make_real_task<BatchNormTask>};

}  // namespace tenon::cpu
