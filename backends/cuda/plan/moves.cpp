// Ops that move elements, or make them from nothing.
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

/// Element by element: of a block type, whole blocks.
std::vector<std::int64_t> sizes_in_blocks(const Shape& shape) {
  std::vector<std::int64_t> sizes(shape.dims().begin(), shape.dims().end());
  if (is_block(shape.dtype()) && !sizes.empty()) sizes.back() /= block_size(shape.dtype());
  return sizes;
}

struct GatherPlan {
  Strides x{}, y{}, index{};  ///< along the axes of `sizes`
  std::vector<std::int64_t> sizes;
  std::int64_t indexed_step = 0, limit = 0;
  bool puts = false;
};
void emit_gather(const GatherPlan& plan, const Operand& x, const Operand& index, const Operand& y,
                 Emitter& out) {
  const MergedAxes axes = merged(plan.sizes, {plan.x, plan.y, plan.index});
  Draft<GatherArgs> draft;
  GatherArgs& args = draft.args;
  args.axes = axes.axes;
  draft.address(args.x.data, x);
  draft.address(args.y.data, y);
  draft.address(args.index.data, index);
  args.x.steps = axes.steps[0];
  args.y.steps = axes.steps[1];
  args.index.steps = axes.steps[2];
  args.index.dtype = index.shape.dtype();
  args.x.dtype = args.y.dtype = x.shape.dtype();
  args.indexed_step = plan.indexed_step;
  args.limit = plan.limit;
  args.bytes = static_cast<std::uint32_t>(block_bytes(x.shape.dtype()));
  args.puts = plan.puts;
  draft.reporter(args.reporter, out.reporter());
  out.launch(Kernel::gather, grid_of(axes.axes.count), draft);
}

/// The bits of `value` in a type, as cast converts it.
std::array<std::uint8_t, 8> bits_of(DType dtype, double value) {
  std::array<std::byte, 8> element{};
  store_double(dtype, element.data(), value);
  std::array<std::uint8_t, 8> bits{};
  std::memcpy(bits.data(), element.data(), bits.size());
  return bits;
}

}  // namespace

Refusal plan_copy(const Step& step, Emitter* out) {
  if (out != nullptr) {
    emit_copy(step.inputs[0], source_of(step.inputs[0]), step.output, source_of(step.output), *out);
  }
  return std::nullopt;
}

/// Of an operand whose strides allow no view.
Refusal plan_reshape(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &y = step.output;
  if (out == nullptr) return std::nullopt;
  Operand row_major = x;  // y's elements under x's sizes
  row_major.strides = dense_strides(x.shape);
  if (y.is_contiguous()) {
    emit_copy(x, source_of(x), row_major, source_of(y), *out);
    return std::nullopt;
  }
  const Source dense = out->scratch(x.shape.bytes());
  emit_copy(x, source_of(x), row_major, dense, *out);
  Operand from = y;
  from.strides = dense_strides(y.shape);
  emit_copy(from, dense, y, source_of(y), *out);
  return std::nullopt;
}

Refusal plan_gather(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &index = step.inputs[1], &y = step.output;
  if (out == nullptr) return std::nullopt;
  const auto axis = static_cast<std::size_t>(step.op.as<Gather>()->axis);
  const auto index_rank = static_cast<std::size_t>(index.shape.rank());
  GatherPlan plan;
  plan.sizes.assign(y.shape.dims().begin(), y.shape.dims().end());
  plan.y = y.strides;
  for (std::size_t i = 0; i < plan.sizes.size(); ++i) {
    if (i < axis) plan.x[i] = x.strides[i];
    if (i >= axis && i < axis + index_rank) plan.index[i] = index.strides[i - axis];
    if (i >= axis + index_rank) plan.x[i] = x.strides[i - index_rank + 1];
  }
  plan.indexed_step = x.strides[axis];
  plan.limit = x.shape.dims()[axis];
  emit_gather(plan, x, index, y, *out);
  return std::nullopt;
}

Refusal plan_take_along(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &index = step.inputs[1], &y = step.output;
  if (out == nullptr) return std::nullopt;
  const auto axis = static_cast<std::size_t>(step.op.as<TakeAlong>()->axis);
  GatherPlan plan;
  plan.sizes.assign(y.shape.dims().begin(), y.shape.dims().end());
  plan.y = y.strides;
  plan.x = x.strides;
  plan.x[axis] = 0;
  plan.index = index.strides;
  plan.indexed_step = x.strides[axis];
  plan.limit = x.shape.dims()[axis];
  emit_gather(plan, x, index, y, *out);
  return std::nullopt;
}

Refusal plan_select(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &y = step.output;
  if (out == nullptr) return std::nullopt;
  GatherPlan plan;
  plan.sizes = sizes_in_blocks(y.shape);
  plan.y = y.strides;
  std::copy(x.strides.begin() + 1, x.strides.end(), plan.x.begin());
  plan.indexed_step = x.strides[0];
  plan.limit = x.shape[0];
  emit_gather(plan, x, step.inputs[1], y, *out);
  return std::nullopt;
}

Refusal plan_update_slice(const Step& step, Emitter* out) {
  const Operand &old = step.inputs[0], &slice = step.inputs[2], &y = step.output;
  if (out == nullptr) return std::nullopt;
  if (!(old.place == y.place)) emit_copy(old, source_of(old), y, source_of(y), *out);
  GatherPlan plan;
  plan.sizes.assign(slice.shape.dims().begin(), slice.shape.dims().end());
  plan.x = slice.strides;
  std::copy(y.strides.begin() + 1, y.strides.end(), plan.y.begin());
  plan.indexed_step = y.strides[0];
  plan.limit = y.shape[0];
  plan.puts = true;
  emit_gather(plan, slice, step.inputs[1], y, *out);
  return std::nullopt;
}

Refusal plan_concat(const Step& step, Emitter* out) {
  if (out == nullptr) return std::nullopt;
  const int axis = static_cast<int>(step.op.as<Concat>()->axis);
  const std::int64_t stride = step.output.strides[static_cast<std::size_t>(axis)];
  const bool in_blocks = axis == step.output.shape.rank() - 1;
  std::int64_t begin = 0;
  for (const Operand& input : step.inputs) {
    Operand part = step.output;
    part.shape = input.shape;
    part.place.offset += begin * stride;
    emit_copy(input, source_of(input), part, source_of(part), *out);
    begin += input.shape[axis] / (in_blocks ? block_size(input.shape.dtype()) : 1);
  }
  return std::nullopt;
}

Refusal plan_pad(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &y = step.output;
  if (out == nullptr) return std::nullopt;
  const auto* const op = step.op.as<Pad>();
  Draft<PadArgs> draft;
  PadArgs& args = draft.args;
  args.axes.rank = y.shape.rank();
  args.axes.count = static_cast<std::uint32_t>(y.shape.elements());
  for (std::size_t i = 0; i < static_cast<std::size_t>(y.shape.rank()); ++i) {
    args.axes.sizes[i] = static_cast<std::uint32_t>(y.shape.dims()[i]);
    args.x.steps.bytes[i] = x.strides[i];
    args.y.steps.bytes[i] = y.strides[i];
    args.before[i] = op->before[i];
    args.sizes[i] = x.shape.dims()[i];
  }
  draft.address(args.x.data, x);
  draft.address(args.y.data, y);
  args.mode = static_cast<std::int32_t>(op->padding());
  args.bytes = static_cast<std::uint32_t>(block_bytes(y.shape.dtype()));
  std::ranges::copy(bits_of(y.shape.dtype(), op->value), args.value);
  out->launch(Kernel::pad, grid_of(args.axes.count), draft);
  return std::nullopt;
}

Refusal plan_full(const Step& step, Emitter* out) {
  const Operand& y = step.output;
  if (out == nullptr) return std::nullopt;
  emit_fill(y, source_of(y), bits_of(y.shape.dtype(), step.op.as<Full>()->value), *out);
  return std::nullopt;
}

Refusal plan_random_bits(const Step& step, Emitter* out) {
  const Operand& y = step.output;
  if (out == nullptr) return std::nullopt;
  Draft<RandomArgs> draft;
  draft.args.axes = axes_of(y.shape);
  set_array(draft, draft.args.y, y);
  set_array(draft, draft.args.key, step.inputs[0]);
  const RandomBits& op = *step.op.as<RandomBits>();
  if (op.has_first(step.inputs.size())) set_array(draft, draft.args.first, step.inputs[1]);
  draft.args.stream = static_cast<std::uint64_t>(op.stream);
  out->launch(Kernel::random_bits, grid_of((std::uint64_t{draft.args.axes.count} + 3) / 4), draft);
  return std::nullopt;
}

Refusal plan_iota(const Step& step, Emitter* out) {
  const Operand& y = step.output;
  const auto* const op = step.op.as<Iota>();
  if (!is_real(y.shape.dtype()) && !is_whole(y.shape.dtype())) return unsupported(y.shape.dtype());
  if (out == nullptr) return std::nullopt;
  Draft<IotaArgs> draft;
  draft.args.axes.rank = 1;
  draft.args.axes.sizes[0] = draft.args.axes.count = static_cast<std::uint32_t>(y.shape[0]);
  draft.address(draft.args.y.data, y);
  draft.args.y.steps.bytes[0] = y.strides[0];
  draft.args.y.dtype = y.shape.dtype();
  draft.args.start = op->start;
  draft.args.step = op->step;
  out->launch(Kernel::iota, grid_of(draft.args.axes.count), draft);
  return std::nullopt;
}

}  // namespace tenon::cuda
