// Convolutions, pools and batch norms of images.
#include "kernels/block_sizes.hpp"
#include "plan/libraries.hpp"
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <algorithm>

namespace tenon::cuda {
namespace {

/// What a window's lists say of one side; `absent`: its stride where the list is empty; `windows`
/// are 0 where no kernel asks for them.
struct Lists {
  const IntList &stride, &padding, &dilation;
};
WindowSide side_of(const Lists& lists, std::size_t side, std::int64_t taps, std::int64_t absent,
                   std::int64_t size, std::int64_t windows = 0) {
  WindowSide window{};
  window.stride = lists.stride.empty() ? absent : lists.stride[side];
  window.dilation = lists.dilation.empty() ? 1 : lists.dilation[side];
  const std::size_t both = lists.padding.size() == 4 ? 2 : 1;  // entries of a side
  window.before = lists.padding.empty() ? 0 : lists.padding[side * both];
  window.taps = taps;
  window.size = size;
  window.windows = windows;
  return window;
}

/// What the pools have in common.
struct PoolPlan {
  const IntList& kernel;
  Lists lists;
  bool takes_max, counts_all;

  float divisor() const {
    return counts_all ? static_cast<float>(kernel[0] * kernel[1]) : takes_max ? 1.0f : 0.0f;
  }
  WindowSide side(std::size_t side, const Shape& x, const Shape& y) const {
    const int axis = 2 + static_cast<int>(side);
    return side_of(lists, side, kernel[side], kernel[side], x[axis], y[axis]);
  }
};
const IntList no_list{};
template <class MaxPool, class AvgPool>
PoolPlan pool_plan(const Step& step) {
  if (const auto* op = step.op.as<MaxPool>()) {
    return {op->kernel, {op->stride, op->padding, op->dilation}, true, false};
  }
  const auto* const op = step.op.as<AvgPool>();
  return {op->kernel, {op->stride, op->padding, no_list}, false, op->count_include_pad};
}

template <class Op>
void emit_convolution(const Step& step, const Op& op, Kernel kernel, Emitter& out) {
  const Operand &x = step.inputs[0], &w = step.inputs[1];
  Draft<ConvolutionArgs> draft;
  ConvolutionArgs& args = draft.args;
  args.axes = axes_of(step.output.shape);
  set_array(draft, args.x, x);
  set_array(draft, args.w, w);
  set_array(draft, args.y, step.output);
  const Lists lists{op.stride, op.padding, op.dilation};
  args.rows = side_of(lists, 0, w.shape[2], 1, x.shape[2]);
  args.columns = side_of(lists, 1, w.shape[3], 1, x.shape[3]);
  args.channels = w.shape[1];
  args.group_outputs = static_cast<std::uint32_t>(w.shape[0] / op.groups);
  const std::span<const Operand> more = std::span(step.inputs).subspan(2);
  if constexpr (requires { op.has_bias; }) {
    if (op.has_bias) set_array(draft, args.bias, more[0]);
  } else {
    if (!more.empty()) set_zero_point(draft, args.x_zero, more[0]);
    if (more.size() > 1) set_zero_point(draft, args.w_zero, more[1]);
  }
  if (kernel == Kernel::conv2d) return out.launch(kernel, grid_of(args.axes.count), draft);
  const auto tiles = [](std::int64_t size) { return (size + code_tile - 1) / code_tile; };
  const Shape& y = step.output.shape;
  const std::int64_t threads = y[0] * op.groups * tiles(args.group_outputs) * y[2] * tiles(y[3]);
  out.launch(kernel, grid_of(static_cast<std::uint64_t>(threads)), draft);
}

}  // namespace

Refusal plan_conv2d(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr || plan_library_convolution(step, *out)) return std::nullopt;
  emit_convolution(step, *step.op.as<Conv2d>(), Kernel::conv2d, *out);
  return std::nullopt;
}

Refusal plan_conv2d_integer(const Step& step, Emitter* out) {
  if (out != nullptr) {
    emit_convolution(step, *step.op.as<Conv2dInteger>(), Kernel::conv2d_integer, *out);
  }
  return std::nullopt;
}

Refusal plan_conv_transpose2d(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const op = step.op.as<ConvTranspose2d>();
  const Operand &x = step.inputs[0], &w = step.inputs[1];
  Draft<ConvolutionArgs> draft;
  ConvolutionArgs& args = draft.args;
  args.axes = axes_of(step.output.shape);
  set_array(draft, args.x, x);
  set_array(draft, args.w, w);
  set_array(draft, args.y, step.output);
  if (op->has_bias) set_array(draft, args.bias, step.inputs[2]);
  const Lists lists{op->stride, op->padding, op->dilation};
  args.rows = side_of(lists, 0, w.shape[2], 1, step.output.shape[2], x.shape[2]);
  args.columns = side_of(lists, 1, w.shape[3], 1, step.output.shape[3], x.shape[3]);
  args.channels = w.shape[0] / op->groups;
  args.group_outputs = static_cast<std::uint32_t>(w.shape[1]);
  out->launch(Kernel::conv_transpose2d, grid_of(args.axes.count), draft);
  return std::nullopt;
}

Refusal plan_conv2d_filter_backward(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const op = step.op.as<Conv2dFilterBackward>();
  const Operand &x = step.inputs[0], &upstream = step.inputs[1];
  Draft<FilterGradientArgs> draft;
  FilterGradientArgs& args = draft.args;
  args.axes = axes_of(step.output.shape);
  set_array(draft, args.x, x);
  set_array(draft, args.upstream, upstream);
  set_array(draft, args.y, step.output);
  const Lists lists{op->stride, op->padding, op->dilation};
  args.rows = side_of(lists, 0, op->kernel[0], 1, x.shape[2], upstream.shape[2]);
  args.columns = side_of(lists, 1, op->kernel[1], 1, x.shape[3], upstream.shape[3]);
  args.images = x.shape[0];
  args.group_outputs = upstream.shape[1] / op->groups;
  const std::int64_t summed = args.images * args.rows.windows * args.columns.windows;
  out->launch(Kernel::conv2d_filter_backward,
              blocks_of(args.axes.count, static_cast<std::uint64_t>(summed)), draft);
  return std::nullopt;
}

Refusal plan_pool2d(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const PoolPlan plan = pool_plan<MaxPool2d, AvgPool2d>(step);
  const Operand& x = step.inputs[0];
  Draft<PoolArgs> draft;
  PoolArgs& args = draft.args;
  args.axes = axes_of(step.output.shape);
  set_array(draft, args.x, x);
  set_array(draft, args.y, step.output);
  args.rows = plan.side(0, x.shape, step.output.shape);
  args.columns = plan.side(1, x.shape, step.output.shape);
  args.takes_max = plan.takes_max;
  args.divisor = plan.divisor();
  out->launch(Kernel::pool2d, grid_of(args.axes.count), draft);
  return std::nullopt;
}

Refusal plan_pool2d_backward(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const PoolPlan plan = pool_plan<MaxPool2dBackward, AvgPool2dBackward>(step);
  const Operand &x = step.inputs[0], &upstream = step.inputs[1];
  Draft<PoolGradientArgs> draft;
  PoolGradientArgs& args = draft.args;
  args.axes = axes_of(upstream.shape);
  set_array(draft, args.x, x);
  set_array(draft, args.upstream, upstream);
  set_array(draft, args.y, step.output);
  args.rows = plan.side(0, x.shape, upstream.shape);
  args.columns = plan.side(1, x.shape, upstream.shape);
  args.divisor = plan.divisor();
  if (plan.takes_max && args.axes.count > 0) {
    draft.address(args.winners, out->scratch(upstream.shape.elements() * 4));
    out->launch(Kernel::pool2d_winners, grid_of(args.axes.count), draft);
  }
  args.axes = axes_of(step.output.shape);
  out->launch(Kernel::pool2d_backward, grid_of(args.axes.count), draft);
  return std::nullopt;
}

namespace {

/// `image`: of the two operands the one with rows and columns.
template <class Op>
void emit_fold(const Step& step, const Op& op, const Shape& image, Kernel kernel, Emitter& out) {
  Draft<FoldArgs> draft;
  FoldArgs& args = draft.args;
  args.axes = axes_of(step.output.shape);
  set_array(draft, args.x, step.inputs[0]);
  set_array(draft, args.y, step.output);
  const Lists lists{op.stride, op.padding, op.dilation};
  WindowSide* const sides[] = {&args.rows, &args.columns};
  for (std::size_t i = 0; i < 2; ++i) {
    WindowSide& side = *sides[i];
    side = side_of(lists, i, op.kernel[i], 1, image[2 + static_cast<int>(i)]);
    const std::size_t after = op.padding.size() == 4 ? 2 * i + 1 : i;
    const std::int64_t padded =
        side.size + side.before + (op.padding.empty() ? 0 : op.padding[after]);
    side.windows = (padded - (side.taps - 1) * side.dilation - 1) / side.stride + 1;
  }
  out.launch(kernel, grid_of(args.axes.count), draft);
}

}  // namespace

Refusal plan_unfold2d(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  emit_fold(step, *step.op.as<Unfold2d>(), step.inputs[0].shape, Kernel::unfold2d, *out);
  return std::nullopt;
}

Refusal plan_fold2d(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  emit_fold(step, *step.op.as<Fold2d>(), step.output.shape, Kernel::fold2d, *out);
  return std::nullopt;
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
