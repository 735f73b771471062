#include "constraints.hpp"

#include "graph.hpp"
#include "lists.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

using Failure = std::optional<std::string>;

// Limits of the instruction set (backends/npu/isa).
constexpr std::int64_t max_kernel = 11;
constexpr std::int64_t max_depthwise_kernel = 7;
constexpr std::int64_t max_stride = 4;
constexpr std::int64_t max_dilation = 4;
constexpr std::int64_t max_side = 4095;
constexpr std::int64_t max_channels = 16384;
constexpr std::int64_t max_pixels = (std::int64_t{1} << 20) - 1;

bool is_constant(const Operand& operand) {
  return operand.place.kind == Place::Kind::constant && operand.place.entry_step == LoopSteps{};
}

std::string pair(std::int64_t a, std::int64_t b) { return fmt::format("{}x{}", a, b); }

bool is_channelwise(const Conv2d& conv, const Step& step) {
  return conv.groups > 1 && conv.groups == step.inputs[0].shape[1] && step.inputs[1].shape[1] == 1;
}

// ---- of every op --------------------------------------------------------------------------------

bool is_known(const Step& step) {
  if (step.kind == Step::Kind::copy) return true;
  const OpInstance& op = step.op;
  return op.as<Conv2d>() || op.as<Linear>() || op.as<Matmul>() || op.as<Add>() || op.as<Sub>() ||
         op.as<Mul>() || op.as<Div>() || op.as<Maximum>() || op.as<Glu>() || op.as<MaxPool2d>() ||
         op.as<AvgPool2d>() || op.as<Mean>() || op.as<Pad>() || op.as<Concat>() || is_table_op(op);
}

Failure known(const Step& step) {
  if (step.kind == Step::Kind::loop) return "a loop";
  if (is_known(step)) return std::nullopt;
  return fmt::format("{} has no NPU layer", step.op.def()->name);
}

Failure all_f32(const Step& step) {
  // Constants of other floating types, in blocks or not, are converted when they are bound.
  const auto other = [](const Operand& o) {
    const DType dtype = o.shape.dtype();
    return dtype != DType::f32 && !(is_constant(o) && (is_floating(dtype) || is_block(dtype)));
  };
  if (other(step.output)) return fmt::format("the result is {}", to_string(step.output.shape));
  const auto found = std::ranges::find_if(step.inputs, other);
  if (found == step.inputs.end()) return std::nullopt;
  return fmt::format("operand {} is {}", found - step.inputs.begin(), to_string(found->shape));
}

std::int64_t channels_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape.rank() == 4 ? shape[1] : shape[shape.rank() - 1];
}

Failure sizes(const Step& step) {
  const Shape& shape = step.output.shape;
  if (shape.rank() == 0) return "a scalar";
  if (shape.elements() == 0) return "an empty array";
  for (const Operand& input : step.inputs) {
    if (input.shape.elements() == 0) return "an empty array";
  }
  const std::int64_t channels = channels_of(shape);
  if (channels > max_channels)
    return fmt::format("{} channels, at most {}", channels, max_channels);
  if (shape.elements() / std::max<std::int64_t>(channels, 1) > max_pixels) {
    return fmt::format("{} has more than {} pixels", to_string(shape), max_pixels);
  }
  return std::nullopt;
}

Failure direction(const Step& step) {
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const Operand& operand = step.inputs[i];
    for (int axis = 0; axis < operand.shape.rank(); ++axis) {
      if (operand.shape[axis] > 1 && operand.strides[static_cast<std::size_t>(axis)] < 0)
        return fmt::format("axis {} of operand {} is reversed", axis, i);
    }
  }
  return std::nullopt;
}

// ---- conv2d -------------------------------------------------------------------------------------

Failure conv_constants(const Step& step) {
  for (std::size_t i = 1; i < step.inputs.size(); ++i) {
    if (!is_constant(step.inputs[i]))
      return i == 1 ? "the weights are computed" : "the bias is computed";
  }
  return std::nullopt;
}

Failure conv_groups(const Step& step) {
  const auto& conv = *step.op.as<Conv2d>();
  if (conv.groups == 1) return std::nullopt;
  if (!is_channelwise(conv, step) || step.output.shape[1] != conv.groups) {
    return fmt::format("{} groups of {} channels", conv.groups,
                       step.inputs[0].shape[1] / conv.groups);
  }
  return std::nullopt;
}

Failure conv_kernel(const Step& step) {
  const Shape& w = step.inputs[1].shape;
  const std::int64_t most = step.op.as<Conv2d>()->groups > 1 ? max_depthwise_kernel : max_kernel;
  if (w[2] <= most && w[3] <= most) return std::nullopt;
  return fmt::format("kernel {}, at most {}", pair(w[2], w[3]), pair(most, most));
}

Failure conv_stride(const Step& step) {
  const auto& conv = *step.op.as<Conv2d>();
  const std::int64_t h = value_or(conv.stride, 0, 1), w = value_or(conv.stride, 1, 1);
  if (h <= max_stride && w <= max_stride) return std::nullopt;
  return fmt::format("stride {}, at most {}", pair(h, w), pair(max_stride, max_stride));
}

Failure conv_dilation(const Step& step) {
  const auto& conv = *step.op.as<Conv2d>();
  const std::int64_t h = value_or(conv.dilation, 0, 1), w = value_or(conv.dilation, 1, 1);
  if (h <= max_dilation && w <= max_dilation) return std::nullopt;
  return fmt::format("dilation {}, at most {}", pair(h, w), pair(max_dilation, max_dilation));
}

Failure image_sides(const Step& step) {
  for (const Shape& shape : {step.inputs[0].shape, step.output.shape}) {
    if (shape.rank() == 4 && (shape[2] > max_side || shape[3] > max_side)) {
      return fmt::format("an image of {}, at most {}", pair(shape[2], shape[3]),
                         pair(max_side, max_side));
    }
  }
  return std::nullopt;
}

// ---- linear and matmul --------------------------------------------------------------------------

Failure linear_constants(const Step& step) {
  const auto& linear = *step.op.as<Linear>();
  if (!is_constant(step.inputs[1])) return "the weights are computed";
  if (linear.has_bias && !is_constant(step.inputs[2])) return "the bias is computed";
  return std::nullopt;
}

Failure matmul_form(const Step& step) {
  const Shape& a = step.inputs[0].shape;
  const Shape& b = step.inputs[1].shape;
  bool equal = a.rank() == b.rank() && a.rank() >= 2;
  for (int i = 0; equal && i + 2 < a.rank(); ++i) equal = a[i] == b[i];
  if (equal) return std::nullopt;
  return fmt::format("{} and {} broadcast", to_string(a), to_string(b));
}

Failure matmul_size(const Step& step) {
  const Shape& a = step.inputs[0].shape;
  const std::int64_t k = a[a.rank() - 1];
  if (k <= max_channels) return std::nullopt;
  return fmt::format("a sum of {} products, at most {}", k, max_channels);
}

// ---- element by element -------------------------------------------------------------------------

/// A computed operand has the result's shape; the other the same, one element per channel (and
/// image), or it is a constant, which is spread when it is bound.
Failure broadcast(const Step& step) {
  const Shape& out = step.output.shape;
  int same = 0, computed = 0;
  for (const Operand& input : step.inputs) {
    if (is_constant(input)) continue;
    ++computed;
    if (input.shape == out) {
      ++same;
      continue;
    }
    const Shape& in = input.shape;
    const int channel = out.rank() == 4 ? 1 : out.rank() - 1;
    for (int i = 0; i < in.rank(); ++i) {
      const int axis = out.rank() - in.rank() + i;
      const bool keeps = axis == channel || (out.rank() == 4 && axis == 0);
      if (in[i] != out[axis] ? axis == channel || in[i] != 1 : !keeps && in[i] != 1) {
        return fmt::format("{} spread over {}", to_string(in), to_string(out));
      }
    }
    // What spreads over an image is read by its own channel axis.
    if (in.rank() == 0 || out.rank() - in.rank() > channel || (out.rank() == 4 && in.rank() != 4)) {
      return fmt::format("{} spread over {}", to_string(in), to_string(out));
    }
  }
  if (same > 0 || computed == 0) return std::nullopt;
  return "what is computed is spread";
}

Failure one_computed(const Step& step) {
  if (std::ranges::any_of(step.inputs, [](const Operand& o) { return !is_constant(o); })) {
    return std::nullopt;
  }
  return "every operand is a constant";
}

Failure constant_divisor(const Step& step) {
  if (!is_constant(step.inputs[0]) && is_constant(step.inputs[1])) return std::nullopt;
  return is_constant(step.inputs[0]) ? "the dividend is a constant" : "the divisor is computed";
}

Failure glu_gate(const Step& step) {
  if (!is_constant(step.inputs[0])) return std::nullopt;
  return "the gate is a constant";
}

// ---- pools --------------------------------------------------------------------------------------

Failure mean_window(const Step& step) {
  const Shape& in = step.inputs[0].shape;
  if (in[2] * in[3] <= max_channels) return std::nullopt;
  return fmt::format("a mean of {} pixels, at most {}", pair(in[2], in[3]), max_channels);
}

/// Whether an average is one over the whole image, which needs no window.
bool covers_image(const AvgPool2d& pool, const Step& step) {
  const Shape& in = step.inputs[0].shape;
  const auto is_zero = [](std::int64_t p) { return p == 0; };
  return pool.kernel[0] == in[2] && pool.kernel[1] == in[3] &&
         std::ranges::all_of(pool.padding.span(), is_zero);
}

template <class Pool>
Failure pool_window(const Step& step) {
  const auto& pool = *step.op.as<Pool>();
  if constexpr (std::is_same_v<Pool, AvgPool2d>) {
    if (covers_image(pool, step)) return mean_window(step);
  }
  if (pool.kernel[0] > max_pool_window || pool.kernel[1] > max_pool_window) {
    return fmt::format("window {}, at most {}", pair(pool.kernel[0], pool.kernel[1]),
                       pair(max_pool_window, max_pool_window));
  }
  const std::int64_t h = value_or(pool.stride, 0, pool.kernel[0]);
  const std::int64_t w = value_or(pool.stride, 1, pool.kernel[1]);
  if (h <= max_pool_window && w <= max_pool_window) return std::nullopt;
  return fmt::format("stride {}, at most {}", pair(h, w), pair(max_pool_window, max_pool_window));
}

Failure pool_dilation(const Step& step) {
  const auto& pool = *step.op.as<MaxPool2d>();
  const std::int64_t h = value_or(pool.dilation, 0, 1), w = value_or(pool.dilation, 1, 1);
  if (h == 1 && w == 1) return std::nullopt;
  return fmt::format("dilation {}, only 1x1", pair(h, w));
}

Failure pool_average(const Step& step) {
  const auto& pool = *step.op.as<AvgPool2d>();
  const auto is_zero = [](std::int64_t p) { return p == 0; };
  if (pool.count_include_pad || std::ranges::all_of(pool.padding.span(), is_zero)) {
    return std::nullopt;
  }
  return "windows that padding cuts are divided by less";
}

Failure mean_axes(const Step& step) {
  const auto& mean = *step.op.as<Mean>();
  const Shape& in = step.inputs[0].shape;
  bool h = false, w = false, other = false;
  for (const std::int64_t axis : mean.axes.span()) {
    (axis == 2 ? h : axis == 3 ? w : other) = true;
  }
  if (in.rank() == 4 && h && w && !other) return std::nullopt;
  return "a mean over other axes than H and W of an image";
}

// ---- pad ----------------------------------------------------------------------------------------

Failure pad_axes(const Step& step) {
  const auto& pad = *step.op.as<Pad>();
  const Shape& in = step.inputs[0].shape;
  if (in.rank() != 4) return fmt::format("{} is no image", to_string(in));
  if (pad.before[0] + pad.after[0] + pad.before[1] + pad.after[1] == 0) return std::nullopt;
  return "images or channels are added";
}

Failure pad_value(const Step& step) {
  const auto& pad = *step.op.as<Pad>();
  if (pad.padding() != Pad::Mode::constant) return fmt::format("mode {}", pad.mode.text());
  const double value = pad.value;
  if (value == 0) return std::nullopt;
  return fmt::format("padding of {}", value);
}

Failure pad_size(const Step& step) {
  const auto& pad = *step.op.as<Pad>();
  const std::int64_t largest = std::max({pad.before[2], pad.after[2], pad.before[3], pad.after[3]});
  if (largest <= max_pool_window) return std::nullopt;
  return fmt::format("padding {}, at most {}", largest, max_pool_window);
}

// ---- concat -------------------------------------------------------------------------------------

Failure concat_axis(const Step& step) {
  const Shape& out = step.output.shape;
  const std::int64_t channel = out.rank() == 4 ? 1 : out.rank() - 1;
  if (step.op.as<Concat>()->axis == channel) return std::nullopt;
  return fmt::format("axis {}, only channels (axis {})", step.op.as<Concat>()->axis, channel);
}

Failure concat_blocks(const Step& step) {
  for (std::size_t i = 0; i + 1 < step.inputs.size(); ++i) {
    const Shape& part = step.inputs[i].shape;
    const std::int64_t channels = channels_of(part);
    if (channels % block_channels != 0) {
      return fmt::format("{} channels in part {}, a multiple of {} is needed", channels, i,
                         block_channels);
    }
  }
  return std::nullopt;
}

Failure exceeds_ocm(std::int64_t need, std::int64_t ocm_bytes) {
  if (need <= ocm_bytes) return std::nullopt;
  return fmt::format("a row of its result needs {} bytes on chip, the device has {}", need,
                     ocm_bytes);
}

constexpr Constraint table[] = {
    {"*", "an op of this table, or any op that maps one f32 element to one", known},
    {"*", "f32 operands and results", all_f32},
    {"*", "1 to 16384 channels, less than 2^20 pixels", sizes},
    {"*", "axes that are not reversed", direction},
    {"copy", "an operand that is computed", one_computed},
    {"conv2d", "constant weights and bias", conv_constants},
    {"conv2d", "groups 1, or one group per channel", conv_groups},
    {"conv2d", "kernel at most 11x11, depthwise 7x7", conv_kernel},
    {"conv2d", "stride at most 4x4", conv_stride},
    {"conv2d", "dilation at most 4x4", conv_dilation},
    {"conv2d", "images of at most 4095x4095", image_sides},
    {"linear", "constant weights and bias", linear_constants},
    {"matmul", "equal leading axes", matmul_form},
    {"matmul", "at most 16384 products per sum", matmul_size},
    {"add", "operands of one shape; a computed one may have a value per channel", broadcast},
    {"add", "an operand that is computed", one_computed},
    {"sub", "operands of one shape; a computed one may have a value per channel", broadcast},
    {"sub", "an operand that is computed", one_computed},
    {"mul", "operands of one shape; a computed one may have a value per channel", broadcast},
    {"mul", "an operand that is computed", one_computed},
    {"div", "operands of one shape; a computed one may have a value per channel", broadcast},
    {"div", "a constant divisor", constant_divisor},
    {"maximum", "operands of one shape; a computed one may have a value per channel", broadcast},
    {"maximum", "an operand that is computed", one_computed},
    {"glu", "a gate that is computed", glu_gate},
    {"max_pool2d", "window and stride at most 15x15", pool_window<MaxPool2d>},
    {"max_pool2d", "no dilation", pool_dilation},
    {"max_pool2d", "images of at most 4095x4095", image_sides},
    {"avg_pool2d", "window and stride at most 15x15, or one window of at most 16384 pixels",
     pool_window<AvgPool2d>},
    {"avg_pool2d", "no padding, or padding that counts", pool_average},
    {"avg_pool2d", "images of at most 4095x4095", image_sides},
    {"mean", "over H and W of [N, C, H, W]", mean_axes},
    {"mean", "images of at most 16384 pixels", mean_window},
    {"pad", "rows and columns of an image", pad_axes},
    {"pad", "zeros", pad_value},
    {"pad", "at most 15 on each side", pad_size},
    {"pad", "images of at most 4095x4095", image_sides},
    {"concat", "along channels", concat_axis},
    {"concat", "whole blocks of 32 channels in all parts but the last", concat_blocks},
};

}  // namespace

std::span<const Constraint> constraints() noexcept { return table; }

std::optional<std::string> failed_constraint(const Step& step) {
  for (const Constraint& constraint : table) {
    const std::string_view name =
        step.kind == Step::Kind::op ? step.op.def()->name : std::string_view("copy");
    if (constraint.op != "*" && constraint.op != name) continue;
    if (auto failure = constraint.fails(step)) return failure;
  }
  return std::nullopt;
}

std::optional<std::string> exceeds_device(const Step& step, std::int64_t ocm_bytes,
                                          std::int64_t acc_bytes) {
  if (step.kind != Step::Kind::op || step.output.shape.rank() != 4) return std::nullopt;
  const Shape& in = step.inputs[0].shape;
  const Shape& out = step.output.shape;
  std::int64_t rows = 1, weights = 0, lanes = block_channels;
  const auto* const average = step.op.as<AvgPool2d>();
  if (const auto* conv = step.op.as<Conv2d>()) {
    const Shape& w = step.inputs[1].shape;
    rows = value_or(conv->dilation, 0, 1) * (w[2] - 1) + 1;
    if (conv->groups == 1) {
      while (lanes / 2 >= in[1]) lanes /= 2;
      weights = w[2] * w[3] * lanes * block_channels;
    } else {
      weights = w[2] * w[3] * block_channels;
    }
    weights += block_channels * 8;
    constexpr std::int64_t acc_row_bytes = block_channels * 4;
    if (out[3] * acc_row_bytes > acc_bytes) {
      return fmt::format("a row of {} sums, the device has room for {}", out[3],
                         acc_bytes / acc_row_bytes);
    }
  } else if (const auto* max = step.op.as<MaxPool2d>()) {
    rows = max->kernel[0];
  } else if (average != nullptr && !covers_image(*average, step)) {
    rows = average->kernel[0];
  } else if ((average != nullptr || step.op.as<Mean>() != nullptr) && in[2] <= max_pool_window &&
             in[3] <= max_pool_window) {
    rows = in[2];  // larger ones are products with a row of equal numbers
  } else if (step.op.def()->traits.pointwise) {
    // A row of the result and of each operand, and the tables of a gate.
    constexpr std::int64_t tables = 512;
    const auto arrays = static_cast<std::int64_t>(step.inputs.size()) + 1;
    return exceeds_ocm(arrays * out[3] * block_channels + tables, ocm_bytes);
  } else if (step.op.as<Pad>() == nullptr && step.op.as<Concat>() == nullptr) {
    return std::nullopt;
  }
  const std::int64_t need =
      std::min(rows, in[2]) * in[3] * lanes + block_channels + weights + out[3] * block_channels;
  return exceeds_ocm(need, ocm_bytes);
}

std::optional<std::string> factors_exceed(const Step& step, std::int64_t ocm_bytes) {
  std::int64_t channels = channels_of(step.output.shape);
  for (const Operand& input : step.inputs) {
    if (!is_constant(input)) channels = std::max(channels, channels_of(input.shape));
  }
  constexpr std::int64_t factor_bytes = 4;
  if (channels * factor_bytes <= ocm_bytes) return std::nullopt;
  return fmt::format("factors of {} channels need {} bytes on chip, the device has {}", channels,
                     channels * factor_bytes, ocm_bytes);
}

bool is_table_op(const OpInstance& op) noexcept {
  const OpDef* def = op.def();
  return def != nullptr && def->traits.pointwise && def->max_inputs == 1 &&
         def->reference != nullptr;
}

std::optional<Activation> activation_of(const OpInstance& op) noexcept {
  if (op.as<Relu>() != nullptr) return Activation{.lo = 0};
  if (op.as<Relu6>() != nullptr) return Activation{.lo = 0, .hi = 6};
  if (const auto* clamp = op.as<Clamp>()) return Activation{.lo = clamp->min, .hi = clamp->max};
  if (const auto* leaky = op.as<LeakyRelu>(); leaky && leaky->alpha >= 0 && leaky->alpha < 1) {
    return Activation{.slope = leaky->alpha};
  }
  return std::nullopt;
}

}  // namespace tenon::npu
