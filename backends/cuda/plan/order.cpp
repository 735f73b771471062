// Sorts, running sums and scatters: ops along the lanes of one axis.
#include "kernels/point_ops.hpp"
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <optional>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

/// Every element is compared with every other.
constexpr std::int64_t longest_sorted = 8192;

struct OrderPlan {
  std::int64_t axis = 0;
  std::int64_t kept = 0;
  bool descends = false, gives_indices = false;
  Reduction op{};
};

void emit_order(const OrderPlan& plan, Kernel kernel, bool by_element, const Step& step,
                Emitter& out) {
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
  const std::uint64_t threads = std::uint64_t{args.lanes.count} * (by_element ? args.length : 1);
  out.launch(kernel, grid_of(threads), draft);
}

OrderPlan rank_plan(const Step& step) {
  if (const auto* op = step.op.as<Topk>()) return {op->axis, op->k, true, true};
  if (const auto* op = step.op.as<Argsort>())
    return {op->axis, longest_sorted, op->descending, true};
  const auto* const op = step.op.as<Sort>();
  return {op->axis, longest_sorted, op->descending, false};
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
  const std::int64_t length = x[static_cast<int>(plan.axis)];
  if (length > longest_sorted) return fmt::format("an axis of more than {}", longest_sorted);
  if (out == nullptr) return std::nullopt;
  emit_order(plan, is_real(x.dtype()) ? Kernel::rank_real : Kernel::rank_integer, true, step, *out);
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
  emit_order(*plan, is_real(dtype) ? Kernel::scan_real : Kernel::scan_integer, false, step, *out);
  return std::nullopt;
}

Refusal plan_scatter(const Step& step, Emitter* out) {
  const Operand &x = step.inputs[0], &index = step.inputs[1], &source = step.inputs[2];
  const Operand& y = step.output;
  if (Refusal refusal = refused_type(x.shape.dtype())) return refusal;
  if (out == nullptr) return std::nullopt;
  const auto* const op = step.op.as<Scatter>();
  const auto axis = static_cast<std::size_t>(op->axis);
  if (!(x == y)) emit_copy(x, source_of(x), y, source_of(y), *out);
  if (index.shape.elements() == 0) return std::nullopt;
  const MergedAxes lanes = lanes_along(axis, {&index, &source, &y});
  Draft<ScatterArgs> draft;
  ScatterArgs& args = draft.args;
  args.lanes = lanes.axes;
  draft.address(args.index.data, index);
  draft.address(args.source.data, source);
  draft.address(args.y.data, y);
  args.index.steps = lanes.steps[0];
  args.source.steps = lanes.steps[1];
  args.y.steps = lanes.steps[2];
  args.index.dtype = index.shape.dtype();
  args.source.dtype = args.y.dtype = y.shape.dtype();
  args.index_step = index.strides[axis];
  args.source_step = source.strides[axis];
  args.y_step = y.strides[axis];
  args.limit = y.shape.dims()[axis];
  args.length = static_cast<std::uint32_t>(index.shape.dims()[axis]);
  args.op = static_cast<std::int32_t>(reduction_of(op->combination()));
  args.sets = op->combination() == Scatter::Mode::set;
  draft.reporter(args.reporter, out->reporter());
  out->launch(is_real(y.shape.dtype()) ? Kernel::scatter_real : Kernel::scatter_integer,
              grid_of(args.lanes.count), draft);
  return std::nullopt;
}

}  // namespace tenon::cuda
