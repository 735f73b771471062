// Sorts, running sums and scatters: ops along the lanes of one axis.
#include "kernels/block_sizes.hpp"
#include "kernels/point_ops.hpp"
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

/// Elements that are sorted by comparing every one with every other; more of them are sorted in runs
/// of as many, which are merged.
constexpr std::uint32_t sorted_run = 512;
/// A merge has a thread for each place in a run, of a last one with few elements, too: up to twice
/// as many as there are elements, counted in 32 bits.
constexpr std::int64_t max_merged = std::int64_t{1} << 30;

struct OrderPlan {
  std::int64_t axis = 0;
  std::int64_t kept = 0;
  bool descends = false, gives_indices = false;
  Reduction op{};
};

Draft<OrderArgs> order_draft(const OrderPlan& plan, const Step& step) {
  const Operand &x = step.inputs[0], &y = step.output;
  const auto axis = static_cast<std::size_t>(plan.axis);
  const MergedAxes lanes = lanes_along(axis, {&x, &y});
  Draft<OrderArgs> draft;
  OrderArgs& args = draft.args;
  args.lanes = lanes.axes;
  draft.address(args.x.data, x);
  draft.address(args.y.data, y);
  args.x.steps = lanes.steps[0];
  args.y.steps = lanes.steps[1];
  args.x.dtype = x.shape.dtype();
  args.y.dtype = y.shape.dtype();
  args.x_step = x.strides[axis];
  args.y_step = y.strides[axis];
  args.length = static_cast<std::uint32_t>(x.shape.dims()[axis]);
  args.kept = static_cast<std::uint32_t>(plan.kept);
  args.descends = plan.descends;
  args.gives_indices = plan.gives_indices;
  args.op = static_cast<std::int32_t>(plan.op);
  return draft;
}

void emit_rank(const OrderPlan& plan, bool is_whole, const Step& step, Emitter& out) {
  Draft<OrderArgs> draft = order_draft(plan, step);
  OrderArgs& args = draft.args;
  const std::uint64_t elements = std::uint64_t{args.lanes.count} * args.length;
  struct Pairs {
    Source values, indices;
  };
  Pairs buffers[2];
  if (args.length > sorted_run) {
    for (Pairs& buffer : buffers) {
      buffer.values = out.scratch(static_cast<std::int64_t>(elements * (is_whole ? 8 : 4)));
      buffer.indices = out.scratch(static_cast<std::int64_t>(elements * 4));
    }
  }
  const auto launch = [&](Kernel kernel, std::uint64_t threads, int pass) {
    Draft<OrderArgs> one = draft;
    const std::uint64_t sorted = pass == 0 ? args.run : std::uint64_t{args.run} * 2;
    if (pass > 0) {
      one.address(one.args.from_values, buffers[(pass + 1) % 2].values);
      one.address(one.args.from_indices, buffers[(pass + 1) % 2].indices);
    }
    if (sorted < args.length) {
      one.address(one.args.to_values, buffers[pass % 2].values);
      one.address(one.args.to_indices, buffers[pass % 2].indices);
    }
    out.launch(kernel, grid_of(threads), one);
  };
  args.run = sorted_run;
  launch(is_whole ? Kernel::rank_integer : Kernel::rank_real, elements, 0);
  for (int pass = 1; args.run < args.length; ++pass, args.run *= 2) {
    const std::uint64_t runs = (args.length + args.run - 1) / args.run;
    launch(is_whole ? Kernel::merge_integer : Kernel::merge_real,
           args.lanes.count * runs * std::min(args.run, args.kept), pass);
  }
}

OrderPlan rank_plan(const Step& step) {
  if (const auto* op = step.op.as<Topk>()) return {op->axis, op->k, true, true};
  const auto kept = [&](std::int64_t axis) { return step.output.shape[static_cast<int>(axis)]; };
  if (const auto* op = step.op.as<Argsort>()) {
    return {op->axis, kept(op->axis), op->descending, true};
  }
  const auto* const op = step.op.as<Sort>();
  return {op->axis, kept(op->axis), op->descending, false};
}

template <class Op>
void try_scan(const Step& step, Reduction reduction, std::optional<OrderPlan>& plan) {
  if (const auto* op = step.op.as<Op>()) plan = {.axis = op->axis, .op = reduction};
}

Reduction reduction_of(Scatter::Mode mode) {
  switch (mode) {
    case Scatter::Mode::mul:
      return Reduction::prod;
    case Scatter::Mode::min:
      return Reduction::min;
    case Scatter::Mode::max:
      return Reduction::max;
    default:
      return Reduction::sum;
  }
}

}  // namespace

Refusal plan_rank(const Step& step, Emitter* out) {
  const Shape& x = step.inputs[0].shape;
  if (Refusal refusal = refused_type(x.dtype())) return refusal;
  const OrderPlan plan = rank_plan(step);
  if (x[static_cast<int>(plan.axis)] > sorted_run && x.elements() > max_merged) {
    return fmt::format("{}: more than {} elements to merge", to_string(x), max_merged);
  }
  if (out != nullptr) emit_rank(plan, is_whole(x.dtype()), step, *out);
  return std::nullopt;
}

Refusal plan_searchsorted(const Step& step, Emitter* out) {
  const Operand &sorted = step.inputs[0], &values = step.inputs[1], &y = step.output;
  const DType dtype = values.shape.dtype();
  if (Refusal refusal = refused_type(dtype)) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto last = static_cast<std::size_t>(sorted.shape.rank() - 1);
  Strides rows{};
  std::copy_n(sorted.strides.begin(), last, rows.begin());
  const MergedAxes axes = merged(y.shape.dims(), {rows, values.strides, y.strides});
  Draft<SearchArgs> draft;
  SearchArgs& args = draft.args;
  args.axes = axes.axes;
  const Operand* const operands[] = {&sorted, &values, &y};
  Array* const arrays[] = {&args.sorted, &args.values, &args.y};
  for (std::size_t i = 0; i < 3; ++i) {
    set_array(draft, *arrays[i], *operands[i]);
    arrays[i]->steps = axes.steps[i];
  }
  args.sorted_step = sorted.strides[last];
  args.length = static_cast<std::uint32_t>(sorted.shape.dims()[last]);
  args.takes_right = step.op.as<Searchsorted>()->right;
  out->launch(is_real(dtype) ? Kernel::search_real : Kernel::search_integer,
              grid_of(args.axes.count), draft);
  return std::nullopt;
}

Refusal plan_scan(const Step& step, Emitter* out) {
  const DType dtype = step.inputs[0].shape.dtype();
  if (Refusal refusal = refused_type(dtype)) return refusal;
  if (out == nullptr) return std::nullopt;
  std::optional<OrderPlan> plan;
  try_scan<Cumsum>(step, Reduction::sum, plan);
  try_scan<Cumprod>(step, Reduction::prod, plan);
  try_scan<Cummax>(step, Reduction::max, plan);
  try_scan<Cummin>(step, Reduction::min, plan);
  const Draft<OrderArgs> draft = order_draft(*plan, step);
  const std::uint32_t lanes = draft.args.lanes.count;
  if (draft.args.length > scan_part / 2) {
    out->launch(is_real(dtype) ? Kernel::scan_long_real : Kernel::scan_long_integer,
                {std::min(lanes, 65535u), scan_threads}, draft);
    return std::nullopt;
  }
  out->launch(is_real(dtype) ? Kernel::scan_real : Kernel::scan_integer, grid_of(lanes), draft);
  return std::nullopt;
}

Refusal plan_scatter(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &index = step.inputs[1], &source = step.inputs[2];
  const Operand& y = step.output;
  if (Refusal refusal = refused_type(x.shape.dtype())) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const op = step.op.as<Scatter>();
  const auto axis = static_cast<std::size_t>(op->axis);
  const Scatter::Mode mode = op->combination();
  // Sums and products of halves are collected in f32, and rounded once.
  const bool is_apart = (mode == Scatter::Mode::add || mode == Scatter::Mode::mul) &&
                        is_real(y.shape.dtype()) && y.shape.dtype() != f32 &&
                        index.shape.elements() > 0;
  const Located to = is_apart ? sums_for(y, *out) : located(y);
  if (is_apart) {
    emit_cast(located(x), to, *out);
  } else if (!(x == y)) {
    emit_copy(x, source_of(x), y, to.source, *out);
  }
  if (index.shape.elements() == 0) return std::nullopt;
  const MergedAxes lanes = lanes_along(axis, {&index, &source, &to.operand});
  Draft<ScatterArgs> draft;
  ScatterArgs& args = draft.args;
  args.lanes = lanes.axes;
  draft.address(args.index.data, index);
  draft.address(args.source.data, source);
  draft.address(args.y.data, to.source);
  args.index.steps = lanes.steps[0];
  args.source.steps = lanes.steps[1];
  args.y.steps = lanes.steps[2];
  args.index.dtype = index.shape.dtype();
  args.source.dtype = source.shape.dtype();
  args.y.dtype = to.operand.shape.dtype();
  args.index_step = index.strides[axis];
  args.source_step = source.strides[axis];
  args.y_step = to.operand.strides[axis];
  args.limit = y.shape.dims()[axis];
  args.length = static_cast<std::uint32_t>(index.shape.dims()[axis]);
  args.op = static_cast<std::int32_t>(reduction_of(mode));
  args.sets = mode == Scatter::Mode::set;
  draft.reporter(args.reporter, out->reporter());
  out->launch(is_real(y.shape.dtype()) ? Kernel::scatter_real : Kernel::scatter_integer,
              grid_of(args.lanes.count), draft);
  if (is_apart) emit_cast(to, located(y), *out);
  return std::nullopt;
}

}  // namespace tenon::cuda
