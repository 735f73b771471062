#include "kernels/point_ops.hpp"
#include "plan/planners.hpp"

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

/// The place of an op in one of these lists, or -1.
int find(std::span<const std::string_view> names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

/// The nearest std::int64_t.
std::int64_t saturated(double value) {
  if (!(value > -0x1p63)) return std::numeric_limits<std::int64_t>::min();
  return value >= 0x1p63 ? std::numeric_limits<std::int64_t>::max()
                         : static_cast<std::int64_t>(value);
}

void set_parameters(const Step& step, PointArgs& args) {
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

/// A launch with a thread per element of the output.
void emit(Kernel kernel, int op, const Step& step, Emitter& out, PointArgs parameters = {}) {
  const Operand& y = step.output;
  Draft<PointArgs> draft;
  draft.args = parameters;
  std::vector<Strides> strides{y.strides};
  for (const Operand& input : step.inputs) strides.push_back(broadcast_strides(input, y.shape));
  const MergedAxes axes = merged(y.shape.dims(), strides);
  draft.args.axes = axes.axes;
  draft.args.op = op;
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
  out.launch(kernel, grid_of(axes.axes.count), draft);
}

/// By the type of the operands: one of two kernels, or why none.
struct Choice {
  Kernel real, integer;
  int real_op, integer_op;
};
Refusal emit_by_type(const Choice& choice, const Step& step, Emitter* out) {
  const DType dtype = step.inputs[0].shape.dtype();
  const bool real = is_real(dtype);
  if (!real && !is_whole(dtype)) return unsupported(dtype);
  const int op = real ? choice.real_op : choice.integer_op;
  if (op < 0) return fmt::format("no kernel for {} of {}", step.op.def()->name, name(dtype));
  if (out == nullptr) return std::nullopt;
  PointArgs parameters{};
  set_parameters(step, parameters);
  emit(real ? choice.real : choice.integer, op, step, *out, parameters);
  return std::nullopt;
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

}  // namespace

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

Refusal plan_unary(const Step& step, Emitter* out) {
  const std::string_view name = step.op.def()->name;
  const bool flips_bool = name == "bitwise_not" && step.inputs[0].shape.dtype() == DType::boolean;
  return emit_by_type({Kernel::unary_real, Kernel::unary_integer, find(unary_real, name),
                       find(unary_integer, flips_bool ? "logical_not" : name)},
                      step, out);
}

Refusal plan_predicate(const Step& step, Emitter* out) {
  return emit_by_type(
      {Kernel::predicate, Kernel::predicate, find(predicates, step.op.def()->name), -1}, step, out);
}

Refusal plan_binary(const Step& step, Emitter* out) {
  std::string name(step.op.def()->name);
  if (const auto* glu = step.op.as<Glu>()) name = fmt::format("glu_{}", glu->activation.text());
  return emit_by_type({Kernel::binary_real, Kernel::binary_integer, find(binary_real, name),
                       find(binary_integer, name)},
                      step, out);
}

Refusal plan_compare(const Step& step, Emitter* out) {
  const int op = find(comparisons, step.op.def()->name);
  return emit_by_type({Kernel::compare_real, Kernel::compare_integer, op, op}, step, out);
}

Refusal plan_where(const Step& step, Emitter* out) {
  const DType dtype = step.output.shape.dtype();
  if (out != nullptr) emit(Kernel::choose, static_cast<int>(block_bytes(dtype)), step, *out);
  return std::nullopt;
}

Refusal plan_cast(const Step& step, Emitter* out) {
  for (const DType dtype : {step.inputs[0].shape.dtype(), step.output.shape.dtype()}) {
    if (!is_real(dtype) && !is_whole(dtype)) return unsupported(dtype);
  }
  if (out == nullptr) return std::nullopt;
  PointArgs parameters{};
  const DType to = step.output.shape.dtype();
  if (is_whole(to)) std::tie(parameters.integers[0], parameters.integers[1]) = limits_of(to);
  emit(Kernel::cast, 0, step, *out, parameters);
  return std::nullopt;
}

}  // namespace tenon::cuda
