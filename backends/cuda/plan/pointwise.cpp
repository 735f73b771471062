#include "kernels/block_sizes.hpp"
#include "kernels/point_ops.hpp"
#include "plan/planners.hpp"
#include "plan/points.hpp"

#include <tenon/ops.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

// The lists of points.def: an op is known to its kernel by its place in one of them.
#define TENON_CUDA_NAME(id, expression) #id,
constexpr std::string_view unary_real[] = {
#define TENON_CUDA_UNARY TENON_CUDA_NAME
#include "kernels/points.def"
#undef TENON_CUDA_UNARY
};
constexpr std::string_view unary_integer[] = {
#define TENON_CUDA_UNARY_INTEGER TENON_CUDA_NAME
#include "kernels/points.def"
#undef TENON_CUDA_UNARY_INTEGER
};
constexpr std::string_view predicates[] = {
#define TENON_CUDA_PREDICATE TENON_CUDA_NAME
#include "kernels/points.def"
#undef TENON_CUDA_PREDICATE
};
constexpr std::string_view binary_real[] = {
#define TENON_CUDA_BINARY TENON_CUDA_NAME
#include "kernels/points.def"
#undef TENON_CUDA_BINARY
};
constexpr std::string_view binary_integer[] = {
#define TENON_CUDA_BINARY_INTEGER TENON_CUDA_NAME
#include "kernels/points.def"
#undef TENON_CUDA_BINARY_INTEGER
};
constexpr std::string_view comparisons[] = {
#define TENON_CUDA_COMPARE TENON_CUDA_NAME
#include "kernels/points.def"
#undef TENON_CUDA_COMPARE
};
#undef TENON_CUDA_NAME

/// The nearest std::int64_t.
std::int64_t saturated(double value) {
  if (!(value > -0x1p63)) return std::numeric_limits<std::int64_t>::min();
  return value >= 0x1p63 ? std::numeric_limits<std::int64_t>::max()
                         : static_cast<std::int64_t>(value);
}

void set_parameters(const Step& step, PointOp& args) {
  args.has_parameters = step.op.as<LeakyRelu>() != nullptr || step.op.as<Polygamma>() != nullptr ||
                        step.op.as<Elu>() != nullptr || step.op.as<Clamp>() != nullptr;
  if (const auto* op = step.op.as<LeakyRelu>()) args.reals[0] = static_cast<float>(op->alpha);
  if (const auto* op = step.op.as<Polygamma>()) args.reals[0] = static_cast<float>(op->order);
  if (const auto* op = step.op.as<Elu>()) args.reals[0] = static_cast<float>(op->alpha);
  if (const auto* op = step.op.as<Clamp>()) {
    args.reals[0] = static_cast<float>(op->min);
    args.reals[1] = static_cast<float>(op->max);
    args.integers[0] = saturated(std::ceil(op->min));
    args.integers[1] = saturated(std::floor(op->max));
  }
}

/// The limits of an integer type.
std::pair<std::int64_t, std::int64_t> limits_of(DType dtype) {
  if (dtype == DType::i64) {
    return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  }
  const int bits = static_cast<int>(block_bytes(dtype)) * 8;
  const bool is_signed = facts(dtype).kind == DTypeKind::signed_integer;
  const std::int64_t span = (std::int64_t{1} << bits) - 1;
  return is_signed ? std::pair{-span / 2 - 1, span / 2} : std::pair{std::int64_t{0}, span};
}

/// Ops of real numbers and of integers, with their kernels.
struct Listed {
  Kernel real_kernel, integer_kernel;
  std::span<const std::string_view> real_ops, integer_ops;
};
constexpr Listed lists[] = {
    {Kernel::unary_real, Kernel::unary_integer, unary_real, unary_integer},
    {Kernel::binary_real, Kernel::binary_integer, binary_real, binary_integer},
    {Kernel::compare_real, Kernel::compare_integer, comparisons, comparisons},
    {Kernel::predicate, Kernel::predicate, predicates, {}},
};

std::string listed_name(const Step& step) {
  if (const auto* glu = step.op.as<Glu>()) return fmt::format("glu_{}", glu->activation.text());
  const bool is_bool = step.inputs[0].shape.dtype() == DType::boolean;
  if (is_bool && step.op.as<BitwiseNot>() != nullptr) return "logical_not";
  return std::string(step.op.def()->name);
}

Refusal find_listed(const Step& step, PointOp& out) {
  const DType dtype = step.inputs[0].shape.dtype();
  const bool real = is_real(dtype);
  if (!real && !is_whole(dtype)) return unsupported(dtype);
  const std::string wanted = listed_name(step);
  for (const Listed& list : lists) {
    const std::span<const std::string_view> ops = real ? list.real_ops : list.integer_ops;
    const auto found = std::ranges::find(ops, wanted);
    if (found == ops.end()) continue;
    out.kernel = real ? list.real_kernel : list.integer_kernel;
    out.op = static_cast<int>(found - ops.begin());
    out.id = *found;
    set_parameters(step, out);
    return std::nullopt;
  }
  return fmt::format("no kernel for {} of {}", step.op.def()->name, name(dtype));
}

Refusal find_cast(const Step& step, PointOp& out) {
  const DType from = step.inputs[0].shape.dtype(), to = step.output.shape.dtype();
  for (const DType dtype : {from, to}) {
    if (Refusal refusal = refused_type(dtype)) return refusal;
  }
  out.kernel = Kernel::cast;
  out.has_parameters = is_whole(to);
  if (is_whole(to)) std::tie(out.integers[0], out.integers[1]) = limits_of(to);
  return std::nullopt;
}

/// Scales and zero points of codes: one number, or one for each index of `axis`.
void emit_codes(Kernel kernel, std::int64_t axis, DType codes, const Step& step, Emitter& out) {
  const Operand& y = step.output;
  Draft<PointArgs> draft;
  draft.args.axes = axes_of(y.shape);
  set_array(draft, draft.args.y, y);
  set_array(draft, draft.args.a, step.inputs[0]);
  Array* const parameters[] = {&draft.args.b, &draft.args.c};
  for (std::size_t i = 1; i < step.inputs.size(); ++i) {
    Array& parameter = *parameters[i - 1];
    set_array(draft, parameter, step.inputs[i]);
    const std::int64_t stride = step.inputs[i].strides[0];
    const bool is_one = step.inputs[i].shape.elements() == 1;
    parameter.steps = {};
    if (!is_one) parameter.steps.bytes[axis] = stride;
  }
  std::tie(draft.args.integers[0], draft.args.integers[1]) = limits_of(codes);
  out.launch(kernel, grid_of(draft.args.axes.count), draft);
}

/// Whether the next step multiplies the digits of rows that are whole steps.
bool feeds_digits(const Step& step, const Emitter& out) {
  const std::span<const Step> next = out.next_steps();
  const Shape& shape = step.output.shape;
  return !next.empty() && reads_digits(next[0], step.output, out) &&
         shape[shape.rank() - 1] % digit_step == 0;
}

}  // namespace

Refusal find_point(const Step& step, PointOp& out) {
  if (step.op.as<Cast>() != nullptr) return find_cast(step, out);
  if (step.op.as<Where>() == nullptr) return find_listed(step, out);
  out.kernel = Kernel::choose;
  out.op = static_cast<int>(block_bytes(step.output.shape.dtype()));
  return std::nullopt;
}

bool can_be_fused(const Step& step) {
  if (!step.op.def()->traits.pointwise) return false;
  PointOp op;
  const auto has_kernel = [](const Operand& operand) {
    return !refused_type(operand.shape.dtype());
  };
  return has_kernel(step.output) && std::ranges::all_of(step.inputs, has_kernel) &&
         !find_point(step, op);
}

/// A launch with a thread per element of the output.
Refusal plan_point(const Step& step, Emitter* out) {
  PointOp op;
  if (Refusal refusal = find_point(step, op)) return refusal;
  if (out == nullptr) return std::nullopt;
  const Operand& y = step.output;
  std::vector<Strides> strides{y.strides};
  for (const Operand& input : step.inputs) strides.push_back(broadcast_strides(input, y.shape));
  const MergedAxes axes = merged(y.shape.dims(), strides);
  Draft<PointArgs> draft;
  draft.args.axes = axes.axes;
  draft.args.op = op.op;
  std::ranges::copy(op.reals, draft.args.reals);
  std::ranges::copy(op.integers, draft.args.integers);
  Array* const arrays[] = {&draft.args.a, &draft.args.b, &draft.args.c};
  const auto set = [&](Array& array, const Operand& operand, const Steps& steps) {
    draft.address(array.data, operand);
    array.steps = steps;
    array.dtype = operand.shape.dtype();
  };
  set(draft.args.y, y, axes.steps[0]);
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    set(*arrays[i], step.inputs[i], axes.steps[i + 1]);
  }
  const auto is_dense = [](const Operand& operand, const Steps& steps) {
    return operand.shape.dtype() == f32 && steps.bytes[0] == block_bytes(f32);
  };
  bool are_dense = axes.axes.rank == 1 && is_dense(y, axes.steps[0]);
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    are_dense = are_dense && is_dense(step.inputs[i], axes.steps[i + 1]);
  }
  draft.args.is_dense = are_dense;
  if (op.kernel == Kernel::binary_real && are_dense && feeds_digits(step, *out)) {
    const std::int64_t bytes = bytes_of_digits(y);
    draft.address(draft.args.c.data, out->keep_copy_of_output(CopyKind::digits, step, bytes));
    constexpr std::uint32_t warps = 4;
    const std::uint32_t steps = axes.axes.count / digit_step;
    out->launch(Kernel::binary_with_digits, {(steps + warps - 1) / warps, warps * 32}, draft);
    return std::nullopt;
  }
  // Most arrays begin at multiples of 16 bytes, and have a thread for four elements.
  const std::uint32_t threads = are_dense ? axes.axes.count / 4 + 1 : axes.axes.count;
  out->launch(op.kernel, grid_of(threads), draft);
  return std::nullopt;
}

Refusal plan_quantize_linear(const Step& step, Emitter* out) {
  const auto* const op = step.op.as<QuantizeLinear>();
  if (out != nullptr) emit_codes(Kernel::quantize, op->axis, op->dtype, step, *out);
  return std::nullopt;
}

Refusal plan_dequantize_linear(const Step& step, Emitter* out) {
  const auto* const op = step.op.as<DequantizeLinear>();
  if (out != nullptr) {
    emit_codes(Kernel::dequantize, op->axis, step.inputs[0].shape.dtype(), step, *out);
  }
  return std::nullopt;
}

}  // namespace tenon::cuda
