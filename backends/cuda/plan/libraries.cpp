// Steps that NVIDIA's libraries compute, where they are there and take them.
#include "plan/libraries.hpp"

#include "driver/driver.hpp"
#include "plan/planners.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <cstddef>

namespace tenon::cuda {
namespace {

/// Whether an operand's address is as aligned as its array.
bool is_aligned(const Operand& operand) {
  const auto aligned = [](std::int64_t bytes) {
    return bytes % static_cast<std::int64_t>(routine_alignment) == 0;
  };
  return aligned(operand.place.offset) && std::ranges::all_of(operand.place.byte_step, aligned);
}
bool is_plain(const Operand& operand) { return is_aligned(operand) && operand.is_contiguous(); }

/// The operand as a dense, aligned array of a type: itself, or a copy in scratch memory.
Source dense(const Operand& operand, DType dtype, Emitter& out) {
  const bool is_cast = operand.shape.dtype() != dtype;
  if (!is_cast && is_plain(operand)) return source_of(operand);
  Operand copy = operand;
  copy.shape = operand.shape.with_dtype(dtype);
  copy.strides = dense_strides(copy.shape);
  const Source place = out.scratch(copy.shape.bytes());
  if (!is_cast) {
    emit_copy(operand, source_of(operand), copy, place, out);
    return place;
  }
  const std::vector<std::int64_t> sizes(copy.shape.dims().begin(), copy.shape.dims().end());
  const MergedAxes axes = merged(sizes, {copy.strides, operand.strides});
  Draft<PointArgs> draft;
  draft.args.axes = axes.axes;
  draft.address(draft.args.y.data, place);
  draft.address(draft.args.a.data, source_of(operand));
  draft.args.y.steps = axes.steps[0];
  draft.args.a.steps = axes.steps[1];
  draft.args.y.dtype = dtype;
  draft.args.a.dtype = operand.shape.dtype();
  out.launch(Kernel::cast, grid_of(axes.axes.count), draft);
  return place;
}

/// The type in which tensor cores multiply. f32 activations become bf16, as the weights are, but
/// where every step is to be exact; f16 would not hold all of them.
std::optional<DType> product_type(DType x, DType w, bool is_exact) {
  if (!is_real(x) || !is_real(w)) return std::nullopt;
  if (x == w) return x;
  if (x == DType::f32 && w == DType::bf16 && !is_exact) return w;
  return std::nullopt;
}

template <class Call>
void set_workspace(Draft<Call>& draft, Emitter& out) {
  const std::uint64_t bytes = out.options().libraries->workspace_bytes();
  draft.args.workspace_bytes = bytes;
  draft.address(draft.args.workspace, out.scratch(static_cast<std::int64_t>(bytes)));
}

bool has_library(const Step& step, const PlanOptions& options) {
  return options.libraries != nullptr && is_plain(step.output) && step.output.shape.elements() > 0;
}

/// All but the addresses; nothing where arrays do not lie as a library needs them.
std::optional<ConvolutionCall> convolution_call(const Step& step, Activation activation,
                                                const PlanOptions& options) {
  if (!has_library(step, options)) return std::nullopt;
  const auto& op = *step.op.as<Conv2d>();
  const Operand &x = step.inputs[0], &w = step.inputs[1], &y = step.output;
  if (!is_plain(w) || w.shape.elements() == 0) return std::nullopt;
  if (op.has_bias && !is_plain(step.inputs[2])) return std::nullopt;
  ConvolutionCall call{};
  for (int i = 0; i < 4; ++i) {
    call.x_sizes[i] = x.shape[i];
    call.w_sizes[i] = w.shape[i];
    call.y_sizes[i] = y.shape[i];
  }
  for (std::size_t side = 0; side < 2; ++side) {
    const std::size_t both = op.padding.size() == 4 ? 2 : 1;  // entries of a side
    call.stride[side] = op.stride.empty() ? 1 : op.stride[side];
    call.dilation[side] = op.dilation.empty() ? 1 : op.dilation[side];
    call.before[side] = op.padding.empty() ? 0 : op.padding[side * both];
    call.after[side] = op.padding.empty() ? 0 : op.padding[side * both + both - 1];
  }
  call.groups = op.groups;
  call.dtype = x.shape.dtype();
  call.activation = activation;
  call.has_bias = op.has_bias;
  call.allows_tf32 = options.allows_tf32;
  call.workspace_bytes = options.libraries->workspace_bytes();
  return call;
}

}  // namespace

bool plan_library_linear(const Step& step, Emitter& out) {
  if (!has_library(step, out.options())) return false;
  const auto& op = *step.op.as<Linear>();
  const Operand &x = step.inputs[0], &w = step.inputs[1], &y = step.output;
  const auto dtype = product_type(x.shape.dtype(), w.shape.dtype(), out.options().is_exact);
  if (!dtype || w.shape[1] == 0 || !is_plain(w)) return false;
  for (std::size_t i = 2; i < step.inputs.size(); ++i) {
    if (step.inputs[i].shape.dtype() != y.shape.dtype()) return false;
    if (!is_plain(step.inputs[i])) return false;
  }
  Draft<GemmCall> draft;
  GemmCall& call = draft.args;
  call.rows = y.shape.elements() / w.shape[0];
  call.columns = w.shape[0];
  call.depth = w.shape[1];
  call.batch = 1;
  call.dtype = *dtype;
  call.y_dtype = y.shape.dtype();
  call.w_repeats = true;
  call.has_bias = op.has_bias;
  call.has_residual = op.has_residual;
  call.allows_tf32 = out.options().allows_tf32;
  call.workspace_bytes = out.options().libraries->workspace_bytes();
  if (!out.is_taken(call)) return false;
  draft.address(call.x, dense(x, *dtype, out));
  draft.address(call.w, w);
  draft.address(call.y, y);
  if (op.has_bias) draft.address(call.bias, step.inputs[2]);
  if (op.has_residual) draft.address(call.residual, step.inputs.back());
  set_workspace(draft, out);
  out.call(Routine::gemm, draft);
  return true;
}

bool plan_library_matmul(const Step& step, Emitter& out) {
  if (!has_library(step, out.options())) return false;
  const Operand &a = step.inputs[0], &b = step.inputs[1], &c = step.output;
  const DType dtype = a.shape.dtype();
  const int a_rank = a.shape.rank(), b_rank = b.shape.rank();
  if (!is_real(dtype) || a_rank < 2 || b_rank < 2) return false;
  const std::int64_t depth = a.shape[a_rank - 1], columns = b.shape[b_rank - 1];
  // One matrix for all rows, or one for each of equal batches.
  const bool repeats = b_rank == 2;
  const auto batch_of = [](const Shape& shape) {
    return shape.dims().first(shape.dims().size() - 2);
  };
  if (depth == 0 || (!repeats && !std::ranges::equal(batch_of(a.shape), batch_of(b.shape)))) {
    return false;
  }
  Draft<GemmCall> draft;
  GemmCall& call = draft.args;
  call.batch = repeats ? 1 : c.shape.elements() / (a.shape[a_rank - 2] * columns);
  call.rows = c.shape.elements() / columns / call.batch;
  call.columns = columns;
  call.depth = depth;
  call.dtype = call.y_dtype = dtype;
  call.w_repeats = repeats;
  call.w_is_turned = true;
  call.allows_tf32 = out.options().allows_tf32;
  call.workspace_bytes = out.options().libraries->workspace_bytes();
  // A transposed matrix is the other case, as it lies.
  Operand turned = b;
  if (b_rank == 2 && b.strides[0] == block_bytes(dtype) && columns > 1 &&
      b.strides[1] == depth * block_bytes(dtype)) {
    call.w_is_turned = false;
    turned.shape = Shape({columns, depth}, dtype);
    turned.strides = dense_strides(turned.shape);
  }
  if (!out.is_taken(call)) return false;
  draft.address(call.x, dense(a, dtype, out));
  draft.address(call.w, dense(turned, dtype, out));
  draft.address(call.y, c);
  set_workspace(draft, out);
  out.call(Routine::gemm, draft);
  return true;
}

bool takes_activation(const Step& convolution, Activation activation, const PlanOptions& options) {
  const auto call = convolution_call(convolution, activation, options);
  return call && !options.libraries->refuses(*call);
}

bool plan_library_convolution(const Step& step, Emitter& out, Activation activation) {
  const auto call = convolution_call(step, activation, out.options());
  if (!call || !out.is_taken(*call)) return false;
  Draft<ConvolutionCall> draft;
  draft.args = *call;
  draft.address(draft.args.x, dense(step.inputs[0], call->dtype, out));
  draft.address(draft.args.w, step.inputs[1]);
  draft.address(draft.args.y, step.output);
  if (call->has_bias) draft.address(draft.args.bias, step.inputs[2]);
  set_workspace(draft, out);
  out.call(Routine::convolution, draft);
  return true;
}

}  // namespace tenon::cuda
