// Reductions, softmax and norms: results that are made of rows.
#include "kernels/block_sizes.hpp"
#include "kernels/point_ops.hpp"
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

/// The axes of an operand in two parts: those that `is_inner` names, and the rest.
struct Parts {
  std::vector<std::int64_t> outer_sizes, inner_sizes;
  Strides outer{}, inner{};
};
Parts split(const Operand& x, const std::vector<bool>& is_inner) {
  Parts parts;
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    auto& sizes = is_inner[a] ? parts.inner_sizes : parts.outer_sizes;
    (is_inner[a] ? parts.inner : parts.outer)[sizes.size()] = x.strides[a];
    sizes.push_back(x.shape[axis]);
  }
  return parts;
}

/// Strides of a result along the axes that were not reduced.
Strides outer_strides(const Operand& y, const std::vector<bool>& is_inner, bool keeps_dims) {
  Strides strides{};
  std::size_t kept = 0, own = 0;
  for (const bool inner : is_inner) {
    if (!inner) strides[kept++] = y.strides[own];
    if (!inner || keeps_dims) ++own;
  }
  return strides;
}

struct ReducePlan {
  Reduction op;
  Kernel by_block, by_thread;
  std::vector<bool> is_inner;
  bool keeps_dims;
};

/// The parts of each result's elements, then of each result its parts. How many there are depends on
/// the elements of a result alone.
void emit_in_parts(const ReducePlan& plan, Draft<ReduceArgs> draft, Emitter& out) {
  const bool is_real_sum = plan.by_block == Kernel::reduce_real;
  const DType dtype = is_real_sum ? DType::f32 : DType::i64;
  Draft<ReduceArgs> joining = draft;
  std::erase_if(joining.patches, [&](const Patch& patch) {
    return patch.at == offsetof(ReduceArgs, x) + offsetof(Array, data);
  });
  ReduceArgs &args = draft.args, &joined = joining.args;
  args.part_count = reduce_part;
  args.parts = (args.inner.count + reduce_part - 1) / reduce_part;
  std::int64_t bytes = block_bytes(dtype) * args.parts;
  joined.x.dtype = dtype;
  for (int axis = args.outer.rank - 1; axis >= 0; --axis) {
    joined.x.steps.bytes[axis] = bytes;
    bytes *= args.outer.sizes[axis];
  }
  joined.inner = {{args.parts}, args.parts, 1};
  joined.inner_steps = {{block_bytes(dtype)}};
  joined.part_count = args.parts;
  const Source partial = out.scratch(bytes);
  draft.address(args.partial, partial);
  joining.address(joined.x.data, partial);
  const std::uint64_t rows = args.outer.count;
  out.launch(plan.by_block, blocks_of(rows * args.parts, reduce_part), draft);
  out.launch(plan.by_block, blocks_of(rows, args.parts), joining);
}

void emit_reduce(const ReducePlan& plan, const Step& step, Emitter& out) {
  const Operand& x = step.inputs[0];
  const Parts parts = split(x, plan.is_inner);
  const MergedAxes outer = merged(
      parts.outer_sizes, {parts.outer, outer_strides(step.output, plan.is_inner, plan.keeps_dims)});
  const MergedAxes inner = merged(parts.inner_sizes, {parts.inner});
  Draft<ReduceArgs> draft;
  draft.args.outer = outer.axes;
  draft.args.inner = inner.axes;
  draft.address(draft.args.x.data, x);
  draft.address(draft.args.y.data, step.output);
  draft.args.x.steps = outer.steps[0];
  draft.args.y.steps = outer.steps[1];
  draft.args.inner_steps = inner.steps[0];
  draft.args.x.dtype = x.shape.dtype();
  draft.args.y.dtype = step.output.shape.dtype();
  draft.args.op = static_cast<std::int32_t>(plan.op);
  const bool is_mean = plan.op == Reduction::mean;
  draft.args.divisor = is_mean ? static_cast<float>(inner.axes.count) : 1;
  draft.args.parts = 1;
  draft.args.part_count = inner.axes.count;
  constexpr std::uint32_t few = 32;  // elements that one thread reduces
  if (inner.axes.count <= few && plan.by_thread != plan.by_block) {
    out.launch(plan.by_thread, grid_of(outer.axes.count), draft);
  } else if (inner.axes.count > 2 * reduce_part && plan.by_thread != plan.by_block) {
    emit_in_parts(plan, std::move(draft), out);
  } else {
    out.launch(plan.by_block, blocks_of(outer.axes.count, inner.axes.count), draft);
  }
}

template <class Op>
std::optional<ReducePlan> reduction_of(const Step& step, Reduction op) {
  const auto* const attributes = step.op.as<Op>();
  if (attributes == nullptr) return std::nullopt;
  ReducePlan plan{op, Kernel::reduce_real, Kernel::reduce_real_short,
                  std::vector<bool>(static_cast<std::size_t>(step.inputs[0].shape.rank())),
                  attributes->keep_dims};
  for (const std::int64_t axis : attributes->axes) {
    plan.is_inner[static_cast<std::size_t>(axis)] = true;
  }
  return plan;
}

/// Blocks of a row each: of x along `axis`.
struct RowAxes {
  MergedAxes rows;
  std::int64_t x_step, y_step;
  std::uint32_t length;
};
RowAxes rows_along(const Step& step, std::size_t axis) {
  const Operand &x = step.inputs[0], &y = step.output;
  return {lanes_along(axis, {&x, &y}), x.strides[axis], y.strides[axis],
          static_cast<std::uint32_t>(x.shape.dims()[axis])};
}

template <class Args>
void set_rows(Draft<Args>& draft, const Step& step, const RowAxes& rows) {
  draft.args.rows = rows.rows.axes;
  draft.address(draft.args.x.data, step.inputs[0]);
  draft.address(draft.args.y.data, step.output);
  draft.args.x.steps = rows.rows.steps[0];
  draft.args.y.steps = rows.rows.steps[1];
  draft.args.x.dtype = step.inputs[0].shape.dtype();
  draft.args.y.dtype = step.output.shape.dtype();
  draft.args.x_step = rows.x_step;
  draft.args.y_step = rows.y_step;
  draft.args.length = rows.length;
}

void set_weight(Draft<NormArgs>& draft, Array& weight, const Step& step, std::size_t input) {
  if (step.inputs.size() <= input) return;
  draft.address(weight.data, step.inputs[input]);
  weight.steps.bytes[0] = step.inputs[input].strides[0];
  weight.dtype = step.inputs[input].shape.dtype();
}

/// Whether the rows of all operands are dense, and so short that registers hold them.
bool is_dense_norm(const Step& step) {
  const auto is_dense = [](const Operand& operand) {
    const auto last = static_cast<std::size_t>(operand.shape.rank() - 1);
    return operand.strides[last] == block_bytes(operand.shape.dtype());
  };
  const Operand& x = step.inputs[0];
  return x.shape[x.shape.rank() - 1] <= dense_norm_length &&
         std::ranges::all_of(step.inputs, is_dense) && is_dense(step.output);
}
Grid dense_norm_grid(const NormArgs& args) {
  Grid grid = blocks_of(args.rows.count, 1);
  grid.threads = std::max(1U, (args.length + 255) / 256) * 32;  // of eight elements
  return grid;
}

}  // namespace

Refusal plan_reduce(const Step& step, Emitter* out) {
  const DType dtype = step.inputs[0].shape.dtype();
  if (Refusal refusal = refused_type(dtype)) return refusal;
  if (out == nullptr) return std::nullopt;
  std::optional<ReducePlan> plan;
  const auto try_op = [&]<class Op>(Reduction op) {
    if (!plan) plan = reduction_of<Op>(step, op);
  };
  try_op.template operator()<Sum>(Reduction::sum);
  try_op.template operator()<Mean>(Reduction::mean);
  try_op.template operator()<Prod>(Reduction::prod);
  try_op.template operator()<Max>(Reduction::max);
  try_op.template operator()<Min>(Reduction::min);
  try_op.template operator()<Any>(Reduction::any);
  try_op.template operator()<All>(Reduction::all);
  if (is_whole(dtype)) {
    plan->by_block = Kernel::reduce_integer;
    plan->by_thread = Kernel::reduce_integer_short;
  }
  emit_reduce(*plan, step, *out);
  return std::nullopt;
}

Refusal plan_arg_reduce(const Step& step, Emitter* out) {
  const DType dtype = step.inputs[0].shape.dtype();
  if (Refusal refusal = refused_type(dtype)) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const largest = step.op.as<Argmax>();
  const auto* const smallest = step.op.as<Argmin>();
  const Kernel kernel = is_real(dtype) ? Kernel::arg_reduce_real : Kernel::arg_reduce_integer;
  ReducePlan plan{largest != nullptr ? Reduction::argmax : Reduction::argmin, kernel, kernel,
                  std::vector<bool>(static_cast<std::size_t>(step.inputs[0].shape.rank())),
                  largest != nullptr ? largest->keep_dims : smallest->keep_dims};
  const std::int64_t axis = largest != nullptr ? largest->axis : smallest->axis;
  plan.is_inner[static_cast<std::size_t>(axis)] = true;
  emit_reduce(plan, step, *out);
  return std::nullopt;
}

Refusal plan_softmax(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const softmax = step.op.as<Softmax>();
  const std::int64_t axis = softmax != nullptr ? softmax->axis : step.op.as<LogSoftmax>()->axis;
  const RowAxes rows = rows_along(step, static_cast<std::size_t>(axis));
  Draft<RowArgs> draft;
  set_rows(draft, step, rows);
  draft.args.takes_log = softmax == nullptr;
  out->launch(Kernel::softmax, blocks_of(rows.rows.axes.count, rows.length), draft);
  return std::nullopt;
}

Refusal plan_norm(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const layer_norm = step.op.as<LayerNorm>();
  const double eps = layer_norm != nullptr ? layer_norm->eps : step.op.as<RmsNorm>()->eps;
  const RowAxes rows = rows_along(step, static_cast<std::size_t>(step.inputs[0].shape.rank() - 1));
  Draft<NormArgs> draft;
  set_rows(draft, step, rows);
  draft.args.groups = draft.args.positions = 1;
  draft.args.eps = static_cast<float>(eps);
  draft.args.centres = layer_norm != nullptr;
  set_weight(draft, draft.args.weight, step, 1);
  set_weight(draft, draft.args.bias, step, 2);
  if (is_dense_norm(step)) {
    draft.args.reads_ahead = std::all_of(
        step.inputs.begin() + 1, step.inputs.end(),
        [](const Operand& weight) { return weight.place.kind == Place::Kind::constant; });
    const std::span<const Step> next = out->next_steps();
    if (step.output.shape.dtype() == f32 && !next.empty() &&
        reads_digits(next[0], step.output, *out)) {
      const std::int64_t bytes = bytes_of_digits(step.output);
      draft.address(draft.args.digits, out->keep_copy_of_output(CopyKind::digits, step, bytes));
    }
    out->launch(Kernel::norm_dense, dense_norm_grid(draft.args), draft);
  } else {
    out->launch(Kernel::norm, blocks_of(rows.rows.axes.count, rows.length), draft);
  }
  return std::nullopt;
}

Refusal plan_group_norm(const Step& step, Emitter* out) {
  if (Refusal refusal = all_real(step)) return refusal;
  const Operand& x = step.inputs[0];
  const auto* const op = step.op.as<GroupNorm>();
  if (out == nullptr) return std::nullopt;
  const auto batch = static_cast<std::uint32_t>(x.shape[0]);
  const auto groups = static_cast<std::uint32_t>(op->groups);
  const auto channels = static_cast<std::uint32_t>(x.shape[1]) / groups;
  const auto positions = static_cast<std::uint32_t>(x.shape.elements() / (x.shape[0] * x.shape[1]));
  // Rows of one stride: what is not dense is copied.
  Located dense{x, source_of(x)};
  if (!x.is_contiguous()) {
    dense.operand.strides = dense_strides(x.shape);
    dense.source = out->scratch(x.shape.bytes());
    emit_copy(x, source_of(x), dense.operand, dense.source, *out);
  }
  const std::int64_t x_bytes = block_bytes(x.shape.dtype());
  const std::int64_t length = std::int64_t{channels} * positions;
  Draft<NormArgs> draft;
  draft.address(draft.args.x.data, dense.source);
  draft.address(draft.args.y.data, step.output);
  draft.args.rows.sizes[0] = draft.args.rows.count = batch * groups;
  draft.args.rows.rank = 1;
  draft.args.x.steps.bytes[0] = draft.args.y.steps.bytes[0] = length * x_bytes;
  draft.args.x.dtype = draft.args.y.dtype = x.shape.dtype();
  draft.args.x_step = draft.args.y_step = x_bytes;
  draft.args.length = static_cast<std::uint32_t>(length);
  draft.args.groups = groups;
  draft.args.channels = channels;
  draft.args.positions = positions;
  draft.args.eps = static_cast<float>(op->eps);
  draft.args.centres = true;
  set_weight(draft, draft.args.weight, step, 1);
  set_weight(draft, draft.args.bias, step, 2);
  out->launch(Kernel::norm, blocks_of(batch * groups, static_cast<std::uint64_t>(length)), draft);
  return std::nullopt;
}

}  // namespace tenon::cuda
