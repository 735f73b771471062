// Convolutions, pools and batch norms of images.
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <algorithm>

namespace tenon::cuda {
namespace {

/// The axes of a result as they are, not merged: kernels tell them apart.
Axes axes_of(const Shape& shape) {
  Axes axes{};
  axes.rank = shape.rank();
  axes.count = static_cast<std::uint32_t>(shape.elements());
  for (int i = 0; i < shape.rank(); ++i) axes.sizes[i] = static_cast<std::uint32_t>(shape[i]);
  return axes;
}

template <class Args>
void set_array(Draft<Args>& draft, Array& array, const Operand& operand) {
  draft.address(array.data, operand);
  std::ranges::copy(operand.strides, array.steps.bytes);
  array.dtype = operand.shape.dtype();
}

/// What a window's lists say of one side; `absent`: its stride where the list is empty.
struct Lists {
  const IntList &stride, &padding, &dilation;
};
WindowSide side_of(const Lists& lists, std::size_t side, std::int64_t taps, std::int64_t absent,
                   std::int64_t size) {
  WindowSide window{};
  window.stride = lists.stride.empty() ? absent : lists.stride[side];
  window.dilation = lists.dilation.empty() ? 1 : lists.dilation[side];
  const std::size_t both = lists.padding.size() == 4 ? 2 : 1;  // entries of a side
  window.before = lists.padding.empty() ? 0 : lists.padding[side * both];
  window.taps = taps;
  window.size = size;
  return window;
}

Refusal emit_pool(const Step& step, const IntList& kernel, const Lists& lists, bool takes_max,
                  bool counts_all, Emitter* out) {
  const Operand& x = step.inputs[0];
  if (!is_real(x.shape.dtype())) return unsupported(x.shape.dtype());
  if (out == nullptr) return std::nullopt;
  Draft<PoolArgs> draft;
  PoolArgs& args = draft.args;
  args.axes = axes_of(step.output.shape);
  set_array(draft, args.x, x);
  set_array(draft, args.y, step.output);
  args.rows = side_of(lists, 0, kernel[0], kernel[0], x.shape[2]);
  args.columns = side_of(lists, 1, kernel[1], kernel[1], x.shape[3]);
  args.takes_max = takes_max;
  args.divisor = counts_all ? static_cast<float>(kernel[0] * kernel[1]) : 0.0f;
  out->launch(Kernel::pool2d, grid_of(args.axes.count), draft);
  return std::nullopt;
}

}  // namespace

Refusal plan_conv2d(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const op = step.op.as<Conv2d>();
  const Operand &x = step.inputs[0], &w = step.inputs[1];
  Draft<ConvolutionArgs> draft;
  ConvolutionArgs& args = draft.args;
  args.axes = axes_of(step.output.shape);
  set_array(draft, args.x, x);
  set_array(draft, args.w, w);
  set_array(draft, args.y, step.output);
  if (op->has_bias) set_array(draft, args.bias, step.inputs[2]);
  const Lists lists{op->stride, op->padding, op->dilation};
  args.rows = side_of(lists, 0, w.shape[2], 1, x.shape[2]);
  args.columns = side_of(lists, 1, w.shape[3], 1, x.shape[3]);
  args.channels = w.shape[1];
  args.group_outputs = static_cast<std::uint32_t>(w.shape[0] / op->groups);
  out->launch(Kernel::conv2d, grid_of(args.axes.count), draft);
  return std::nullopt;
}

Refusal plan_pool2d(const Step& step, Emitter* out) {
  static const IntList none;
  if (const auto* op = step.op.as<MaxPool2d>()) {
    return emit_pool(step, op->kernel, {op->stride, op->padding, op->dilation}, true, false, out);
  }
  const auto* const op = step.op.as<AvgPool2d>();
  return emit_pool(step, op->kernel, {op->stride, op->padding, none}, false, op->count_include_pad,
                   out);
}

Refusal plan_batch_norm(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  Draft<ChannelNormArgs> draft;
  ChannelNormArgs& args = draft.args;
  args.axes = axes_of(step.output.shape);
  set_array(draft, args.x, step.inputs[0]);
  set_array(draft, args.y, step.output);
  Array* const rows[] = {&args.mean, &args.variance, &args.weight, &args.bias};
  for (std::size_t i = 1; i < step.inputs.size(); ++i) {
    set_array(draft, *rows[i - 1], step.inputs[i]);
  }
  args.eps = static_cast<float>(step.op.as<BatchNorm>()->eps);
  out->launch(Kernel::batch_norm, grid_of(args.axes.count), draft);
  return std::nullopt;
}

}  // namespace tenon::cuda
