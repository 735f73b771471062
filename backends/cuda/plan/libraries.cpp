// Steps that NVIDIA's libraries compute, where they are there and take them.
#include "plan/libraries.hpp"

#include "driver/driver.hpp"
#include "kernels/block_sizes.hpp"
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

/// The operand as a dense, aligned array: itself, or a copy in scratch memory.
Source dense(const Operand& operand, Emitter& out) {
  if (is_plain(operand)) return source_of(operand);
  Operand copy = operand;
  copy.strides = dense_strides(copy.shape);
  const Source place = out.scratch(copy.shape.bytes());
  emit_copy(operand, source_of(operand), copy, place, out);
  return place;
}

/// The type in which tensor cores multiply. f32 activations become bf16, and weights too, but where
/// every step is to be exact; f16 would not hold all of them.
std::optional<DType> product_type(const Operand& x, const Operand& w, const PlanOptions& options) {
  const DType dtype = x.shape.dtype();
  if (is_real(dtype) && dtype == w.shape.dtype()) return dtype;
  if (rounds_rows(x, w, options)) return bf16;
  return std::nullopt;
}

/// Weights that are decoded, and multiplied as bf16 from scratch memory, in parts of so many columns:
/// 128 MiB of a GPU's memory at most.
std::int64_t columns_of_part(const Operand& w, const Driver& libraries) {
  constexpr std::int64_t multiple = 256;
  const auto most_bytes = static_cast<std::int64_t>(4 * libraries.workspace_bytes());
  const std::int64_t columns = most_bytes / (w.shape[1] * block_bytes(bf16));
  return std::max(columns / multiple * multiple, multiple);
}

/// An operand from element `begin` of its last axis on, which is dense.
Source from_column(const Operand& operand, std::int64_t begin) {
  Source source = source_of(operand);
  source.place.offset += begin * block_bytes(operand.shape.dtype());
  return source;
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
  const auto dtype = product_type(x, w, out.options());
  if (!dtype || w.shape[1] == 0) return false;
  const bool is_decoded = w.shape.dtype() != *dtype;
  const std::int64_t columns = w.shape[0], depth = w.shape[1];
  const std::int64_t rows = y.shape.elements() / columns;
  if (!is_decoded && (!is_plain(w) || w.shape.elements() > max_elements)) return false;
  if (is_decoded && rows < decoded_rows && tensor_kernels(w.shape.dtype())) return false;
  for (std::size_t i = 2; i < step.inputs.size(); ++i) {
    if (step.inputs[i].shape.dtype() != y.shape.dtype()) return false;
    if (!is_plain(step.inputs[i])) return false;
  }
  Draft<GemmCall> draft;
  GemmCall& call = draft.args;
  call.rows = rows;
  call.depth = depth;
  call.batch = 1;
  call.y_step = columns;
  call.dtype = *dtype;
  call.y_dtype = y.shape.dtype();
  call.w_repeats = true;
  call.has_bias = op.has_bias;
  call.has_residual = op.has_residual;
  call.allows_tf32 = out.options().allows_tf32;
  call.workspace_bytes = out.options().libraries->workspace_bytes();
  const std::int64_t part =
      is_decoded ? std::min(columns_of_part(w, *out.options().libraries), columns) : columns;
  for (const std::int64_t size : {part, columns % part}) {
    call.columns = size;
    if (size > 0 && !out.is_taken(call)) return false;
  }
  const bool is_cast = x.shape.dtype() != *dtype;
  draft.address(call.x, is_cast ? rounded_rows(x, out) : dense(x, out));
  set_workspace(draft, out);
  const Rows weights = is_decoded ? rows_of(w, out) : Rows{source_of(w), 0};
  const Source decoded =
      is_decoded ? out.scratch(part * depth * block_bytes(bf16)) : weights.source;
  for (std::int64_t begin = 0; begin < columns; begin += part) {
    Draft<GemmCall> of_part = draft;
    of_part.args.columns = std::min(part, columns - begin);
    if (is_decoded) {
      Rows from = weights;
      (from.source.kind == Source::Kind::operand ? from.source.place.offset : from.source.offset) +=
          begin * weights.step;
      emit_rounded(from, w.shape.dtype(), of_part.args.columns, depth, decoded, out);
    }
    of_part.address(of_part.args.w, decoded);
    of_part.address(of_part.args.y, from_column(y, begin));
    if (op.has_bias) of_part.address(of_part.args.bias, from_column(step.inputs[2], begin));
    if (op.has_residual) {
      of_part.address(of_part.args.residual, from_column(step.inputs.back(), begin));
    }
    out.call(Routine::gemm, of_part);
  }
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
  call.columns = call.y_step = columns;
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
  draft.address(call.x, dense(a, out));
  draft.address(call.w, dense(turned, out));
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
  draft.address(draft.args.x, dense(step.inputs[0], out));
  draft.address(draft.args.w, step.inputs[1]);
  draft.address(draft.args.y, step.output);
  if (call->has_bias) draft.address(draft.args.bias, step.inputs[2]);
  set_workspace(draft, out);
  out.call(Routine::convolution, draft);
  return true;
}

}  // namespace tenon::cuda
