// Transposed convolutions: outputs that lie a stride apart meet the same taps. So each phase of the
// stride, along rows and columns, is a convolution of stride 1 by some of the taps, with results that
// lie a stride apart. Outputs that no tap meets are the bias.
#include "../convolution/convolution.hpp"
#include "../integer_math.hpp"
#include "../task.hpp"
#include "conv_f64.hpp"
#include "real.hpp"
#include "windows.hpp"

#include <tenon/ops/conv_transpose2d.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::cpu {
namespace {

/// Outputs first, first + stride, ... of one axis, and the convolution that they are.
struct Phase {
  std::int64_t first;
  std::int64_t last_tap, tap_step;  ///< its taps in the filter, the last one first
  WindowAxis window;
};

/// `axis`: of the convolution that is transposed, with the result as its input.
Phase phase_of(const WindowAxis& axis, std::int64_t first) {
  // Tap t takes output o from input (o + before - t * dilation) / stride, if that is whole.
  const std::int64_t common = std::gcd(axis.stride, axis.dilation);
  const auto meets = [&](std::int64_t tap) {
    return (first + axis.before - tap * axis.dilation) % axis.stride == 0;
  };
  Phase phase{first, 0, axis.stride / common, {}};
  phase.window = {
      axis.outputs, ceil_div(axis.inputs - first, axis.stride), 0, 1, axis.dilation / common, 0};
  for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
    if (!meets(tap)) continue;
    ++phase.window.taps;
    phase.last_tap = tap;
    phase.window.before = -(first + axis.before - tap * axis.dilation) / axis.stride;
  }
  return phase;
}

/// Fills outputs that no tap meets.
class BiasTask final : public PartwiseTask {
 public:
  BiasTask(const Operand& y, const std::optional<Operand>& bias) : y_(y), bias_(bias) {}

  void run(const TaskContext& context) const noexcept override {
    const Shape& y = y_.shape;
    const auto* bias = bias_ ? context.pointer<const float>(*bias_) : nullptr;
    const Range range = context.share(y[0] * y[1]);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const float value = bias == nullptr ? 0.0f : bias[i % y[1]];
      auto* plane =
          context.pointer<std::byte>(y_) + i / y[1] * y_.strides[0] + i % y[1] * y_.strides[1];
      for (std::int64_t row = 0; row < y[2]; ++row, plane += y_.strides[2]) {
        for (std::int64_t j = 0; j < y[3]; ++j) {
          *reinterpret_cast<float*>(plane + j * y_.strides[3]) = value;
        }
      }
    }
  }

 private:
  Operand y_;
  std::optional<Operand> bias_;
};

/// Tasks that write different outputs.
class PartsTask final : public Task {
 public:
  explicit PartsTask(std::vector<std::unique_ptr<Task>> parts) : parts_(std::move(parts)) {}
  void run(const TaskContext& context) const noexcept override {
    for (const auto& part : parts_) part->run(context);
  }

 private:
  std::vector<std::unique_ptr<Task>> parts_;
};

/// The elements of an operand from `first` on along an axis, `count` of them.
Operand part_of(const Operand& operand, int axis, std::int64_t first, std::int64_t count,
                std::int64_t step = 1) {
  Operand part = operand;
  const auto at = static_cast<std::size_t>(axis);
  if (count > 0) part.place.offset += first * operand.strides[at];
  part.shape = operand.shape.with_dim(axis, count);
  part.strides[at] *= step;
  return part;
}

/// Groups that are one convolution: all of them where each makes one channel, otherwise one.
struct GroupOperands {
  Operand x, w, y;  ///< w: [outputs, channels of a group, rows, columns]
  std::optional<Operand> bias;
  std::int64_t groups;
};

std::vector<GroupOperands> operands_of(const Step& step) {
  const auto& op = *step.op.as<ConvTranspose2d>();
  const Operand &x = step.inputs[0], &w = step.inputs[1], &y = step.output;
  const std::int64_t channels = x.shape[1] / op.groups, outputs = w.shape[1];
  const auto filter = [&](const Operand& given, std::int64_t count, std::int64_t output_step) {
    Operand turned = given;
    turned.shape = Shape({count, channels, w.shape[2], w.shape[3]}, DType::f32);
    turned.strides[0] = output_step;
    turned.strides[1] = w.strides[0];
    return turned;
  };
  const auto bias = [&](std::int64_t first, std::int64_t count) {
    return op.has_bias ? std::optional(part_of(step.inputs[2], 0, first, count)) : std::nullopt;
  };
  if (outputs == 1) {
    return {{x, filter(w, op.groups, channels * w.strides[0]), y, bias(0, op.groups), op.groups}};
  }
  std::vector<GroupOperands> result;
  for (std::int64_t g = 0; g < op.groups; ++g) {
    result.push_back({part_of(x, 1, g * channels, channels),
                      filter(part_of(w, 0, g * channels, channels), outputs, w.strides[1]),
                      part_of(y, 1, g * outputs, outputs), bias(g * outputs, outputs), 1});
  }
  return result;
}

std::unique_ptr<Task> make_phase(const GroupOperands& of, const Phase& row, const Phase& column,
                                 const IntList& stride, Compiler& compiler) {
  std::array phases{row, column};
  Operand x = of.x, w = of.w, y = of.y;
  MergedConv2d merged;
  Conv2d& op = merged.conv;
  op.groups = of.groups;
  op.has_bias = of.bias.has_value();
  for (std::size_t i = 0; i < 2; ++i) {
    const int axis = static_cast<int>(i) + 2;
    Phase& phase = phases[i];
    WindowAxis& window = phase.window;
    if (window.before < 0) {  // the first inputs meet nothing
      const std::int64_t skipped = std::min(-window.before, window.inputs);
      x = part_of(x, axis, skipped, window.inputs - skipped);
      window.inputs -= skipped;
      window.before = 0;
    }
    w = part_of(w, axis, phase.last_tap, window.taps, -phase.tap_step);
    y = part_of(y, axis, phase.first, window.outputs, stride.empty() ? 1 : stride[i]);
    op.dilation.push_back(window.dilation);
    op.padding.push_back(window.before);
    op.padding.push_back(window.outputs + (window.taps - 1) * window.dilation - window.before -
                         window.inputs);
  }
  if (row.window.taps * column.window.taps == 0) return std::make_unique<BiasTask>(y, of.bias);
  std::vector<Operand> inputs{x, w};
  if (of.bias) inputs.push_back(*of.bias);
  Convolution conv(merged, inputs, y);
  conv.rows = phases[0].window;
  conv.columns = phases[1].window;
  return make_convolution(conv, compiler);
}

std::optional<std::string> refuses_conv_transpose2d(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  for (std::size_t i = is_f64(step) ? 0 : 1; i < step.inputs.size(); ++i) {
    constexpr std::array<std::string_view, 3> names{"x", "w", "bias"};
    if (auto why = needs_dense(step.inputs[i], names[i])) return why;
  }
  // Each phase of the strides is a convolution.
  const IntList& stride = step.op.as<ConvTranspose2d>()->stride;
  const Shape& y = step.output.shape;
  const double phases = static_cast<double>(std::min(stride[0], y[2])) *
                        static_cast<double>(std::min(stride[1], y[3]));
  if (!is_f64(step) && phases > 4096) return "strides with more than 4,096 phases";
  return std::nullopt;
}

std::unique_ptr<Task> make_conv_transpose2d(const Step& step, Compiler& compiler) {
  if (is_f64(step)) return make_conv_transpose2d_f64(step, compiler);
  const auto& op = *step.op.as<ConvTranspose2d>();
  const Shape &x = step.inputs[0].shape, &w = step.inputs[1].shape, &y = step.output.shape;
  const auto phases = [&](int i) {
    const WindowAxis axis = window_axis(static_cast<std::size_t>(i), y[2 + i], x[2 + i], w[2 + i],
                                        op.stride, 1, op.padding, op.dilation);
    std::vector<Phase> result;
    for (std::int64_t first = 0; first < std::min(axis.stride, axis.inputs); ++first) {
      result.push_back(phase_of(axis, first));
    }
    return result;
  };
  std::vector<std::unique_ptr<Task>> parts;
  for (const GroupOperands& operands : operands_of(step)) {
    for (const Phase& row : phases(0)) {
      for (const Phase& column : phases(1)) {
        parts.push_back(make_phase(operands, row, column, op.stride, compiler));
      }
    }
  }
  return std::make_unique<PartsTask>(std::move(parts));
}

}  // namespace

extern const Kernel conv_transpose2d_kernel;
constinit const Kernel conv_transpose2d_kernel{op_def<ConvTranspose2d>, refuses_conv_transpose2d,
                                               make_conv_transpose2d};

}  // namespace tenon::cpu
