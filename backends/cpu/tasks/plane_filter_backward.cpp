// The gradient of the filter of a convolution with few channels in a group, such as a depthwise one, where panels of a GEMM
// would be nearly empty: each plane of the upstream gradient with each plane of x that its filters meet.
#include "plane_filter_backward.hpp"

#include "../convolution/plane_taps.hpp"
#include "../integer_math.hpp"
#include "windows.hpp"

#include <tenon/ops/conv2d.hpp>

#include <algorithm>
#include <vector>

namespace tenon::cpu {
namespace {

constexpr std::int64_t float_bytes = sizeof(float);

/// A thread owns some of the output channels, a few of which share the copy of a plane of x, and sums over all images in
/// their order, in f64: the bits do not depend on the number of threads.
class PlaneFilterBackwardTask final : public PartwiseTask {
 public:
  PlaneFilterBackwardTask(const Step& step, Compiler& compiler)
      : x_(step.inputs[0]), upstream_(step.inputs[1]), y_(step.output) {
    const auto& op = *step.op.as<Conv2dFilterBackward>();
    const Shape &x = x_.shape, &u = upstream_.shape;
    rows_ = window_axis(0, x[2], u[2], op.kernel[0], op.stride, 1, op.padding, op.dilation);
    columns_ = window_axis(1, x[3], u[3], op.kernel[1], op.stride, 1, op.padding, op.dilation);
    channels_ = x[1] / op.groups;
    outputs_ = u[1] / op.groups;
    // x where stride columns apart are adjacent: [row][column mod stride][column / stride].
    const std::int64_t last = (columns_.taps - 1) * columns_.dilation;
    phase_ = columns_.outputs + last / columns_.stride;
    plane_rows_ = (rows_.outputs - 1) * rows_.stride + (rows_.taps - 1) * rows_.dilation + 1;
    for (std::int64_t r = 0; r < rows_.taps; ++r) {
      for (std::int64_t s = 0; s < columns_.taps; ++s) {
        const std::int64_t column = s * columns_.dilation;
        offsets_.push_back(r * rows_.dilation * row_floats() + column % columns_.stride * phase_ +
                           column / columns_.stride);
      }
    }
    const std::int64_t total_bytes = std::int64_t{sizeof(double)} * together_ * channels_;
    compiler.working_memory(taps() * (total_bytes + float_bytes) +
                            plane_rows_ * row_floats() * float_bytes);
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t parts = ceil_div(outputs_, together_), groups = x_.shape[1] / channels_;
    const Range items = context.share(groups * parts);
    for (std::int64_t i = items.begin; i < items.end; ++i) {
      const std::int64_t first = i % parts * together_;
      compute(context, i / parts, {first, std::min(first + together_, outputs_)});
    }
  }

 private:
  static constexpr std::int64_t together_ = 8;  ///< output channels of a group

  std::int64_t taps() const { return rows_.taps * columns_.taps; }
  std::int64_t row_floats() const { return columns_.stride * phase_; }

  /// Some of the output channels of a group.
  void compute(const TaskContext& context, std::int64_t group, Range outputs) const noexcept {
    auto* const totals = reinterpret_cast<double*>(context.working_memory());
    auto* const sums = reinterpret_cast<float*>(totals + together_ * channels_ * taps());
    float* const plane = sums + taps();
    const Shape &x = x_.shape, &u = upstream_.shape;
    const auto* const from = context.pointer<const float>(x_);
    const auto* const given = context.pointer<const float>(upstream_);
    const std::int64_t first = group * outputs_ + outputs.begin;
    const std::int64_t count = outputs.end - outputs.begin;
    std::fill_n(totals, count * channels_ * taps(), 0.0);
    for (std::int64_t image = 0; image < u[0]; ++image) {
      for (std::int64_t c = 0; c < channels_; ++c) {
        copy_plane(from + (image * x[1] + group * channels_ + c) * x[2] * x[3], plane);
        for (std::int64_t o = 0; o < count; ++o) {
          sum_plane_taps({given + (image * u[1] + first + o) * u[2] * u[3], plane, u[2], u[3],
                          rows_.stride * row_floats(), offsets_.data(), taps(), sums});
          double* const total = totals + (o * channels_ + c) * taps();
          for (std::int64_t t = 0; t < taps(); ++t) total[t] += static_cast<double>(sums[t]);
        }
      }
    }
    float* const y = context.pointer<float>(y_) + first * channels_ * taps();
    for (std::int64_t i = 0; i < count * channels_ * taps(); ++i) {
      y[i] = static_cast<float>(totals[i]);
    }
  }

  /// What the taps meet of a plane of x, zeros where that is outside.
  void copy_plane(const float* x, float* to) const noexcept {
    const std::int64_t begin = std::min(columns_.before, phase_);
    const std::int64_t count = std::min(columns_.inputs, phase_ - begin);
    for (std::int64_t r = 0; r < plane_rows_; ++r, to += row_floats()) {
      const std::int64_t row = r - rows_.before;
      const float* const line = x + row * columns_.inputs;
      if (row < 0 || row >= rows_.inputs) {
        std::fill_n(to, row_floats(), 0.0f);
      } else if (columns_.stride == 1) {
        for (std::int64_t j = 0; j < begin; ++j) to[j] = 0;
        for (std::int64_t j = 0; j < count; ++j) to[begin + j] = line[j];
        for (std::int64_t j = begin + count; j < phase_; ++j) to[j] = 0;
      } else {
        copy_phases(line, to);
      }
    }
  }
  void copy_phases(const float* line, float* to) const noexcept {
    for (std::int64_t p = 0; p < columns_.stride; ++p) {
      for (std::int64_t j = 0; j < phase_; ++j) {
        const std::int64_t column = j * columns_.stride + p - columns_.before;
        const bool is_inside = column >= 0 && column < columns_.inputs;
        to[p * phase_ + j] = is_inside ? line[column] : 0;
      }
    }
  }

  Operand x_, upstream_, y_;
  WindowAxis rows_{}, columns_{};
  std::int64_t channels_ = 0, outputs_ = 0;
  std::int64_t phase_ = 0, plane_rows_ = 0;  ///< of the copy: elements of a phase of a row; rows
  std::vector<std::int64_t> offsets_;        ///< of each tap, in the copy
};

}  // namespace

std::unique_ptr<Task> make_plane_filter_backward(const Step& step, Compiler& compiler) {
  constexpr std::int64_t most_channels = 8;
  const Shape &x = step.inputs[0].shape, &u = step.inputs[1].shape;
  const std::int64_t groups = step.op.as<Conv2dFilterBackward>()->groups;
  const bool fits =
      groups > 1 && x[1] / groups <= most_channels && x[1] > 0 && u[1] > 0 && u[2] > 0 && u[3] > 0;
  return fits ? std::make_unique<PlaneFilterBackwardTask>(step, compiler) : nullptr;
}

}  // namespace tenon::cpu
