// quantize_linear and dequantize_linear: element-wise, with scales and zero points that broadcast
// along one axis.
#include "point_task.hpp"

#include <tenon/ops/quantize_linear.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {
namespace {

/// low and high: the codes' least and largest.
template <class Code, int low, int high>
void quantized_block(const PointCall& call, const OpInstance&) noexcept {
  const auto* x = static_cast<const float*>(call.x[0]);
  const auto* scale = static_cast<const float*>(call.x[1]);
  const auto* zero = static_cast<const std::int32_t*>(call.x[2]);
  auto* y = static_cast<Code*>(call.y);
  constexpr float rounding = 12582912.0f;  // 3 * 2^22: behind it the last bit is worth 1
  for (std::int64_t i = 0; i < call.count; ++i) {
    const std::int32_t shift = zero == nullptr ? 0 : zero[i * call.step[2]];
    const auto least = static_cast<float>(low - shift), most = static_cast<float>(high - shift);
    float q = x[i * call.step[0]] / scale[i * call.step[1]];
    q = q > least ? q : least;  // a NaN becomes the lowest
    q = q < most ? q : most;
    y[i] = static_cast<Code>(static_cast<std::int32_t>((q + rounding) - rounding) + shift);
  }
}

void dequantized_block(const PointCall& call, const OpInstance&) noexcept {
  const auto* x = static_cast<const std::uint32_t*>(call.x[0]);
  const auto* scale = static_cast<const float*>(call.x[1]);
  const auto* zero = static_cast<const std::uint32_t*>(call.x[2]);
  auto* y = static_cast<float*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) {
    const std::uint32_t shift = zero == nullptr ? 0 : zero[i * call.step[2]];
    const auto difference = static_cast<std::int32_t>(x[i * call.step[0]] - shift);
    y[i] = static_cast<float>(difference) * scale[i * call.step[1]];
  }
}

/// A scale or zero point as numpy broadcasts it to results of `rank`.
Operand broadcast(const Operand& parameter, std::int64_t axis, int rank) {
  Operand result = parameter;
  const bool is_one = parameter.shape.elements() == 1;
  result.shape = Shape(std::span<const std::int64_t>(), parameter.shape.dtype());
  result.strides = {};
  if (is_one) return result;
  for (int i = 0; i < rank - static_cast<int>(axis); ++i) {
    result.shape = result.shape.with_axis(0, Axis(i + 1 < rank - axis ? 1 : parameter.shape[0]));
  }
  result.strides[0] = parameter.strides[0];
  return result;
}

/// The step with such scales and zero points.
Step with_broadcast(const Step& step, std::int64_t axis) {
  Step result = step;
  for (std::size_t i = 1; i < step.inputs.size(); ++i) {
    result.inputs[i] = broadcast(step.inputs[i], axis, step.output.shape.rank());
  }
  return result;
}

std::unique_ptr<Task> make_quantize(const Step& step, Compiler&) {
  const auto& op = *step.op.as<QuantizeLinear>();
  const PointFunction function = op.dtype == DType::i8 ? quantized_block<std::int8_t, -128, 127>
                                                       : quantized_block<std::uint8_t, 0, 255>;
  return point_task(with_broadcast(step, op.axis), function, Reader::As::computed, Reader::As::raw);
}

std::unique_ptr<Task> make_dequantize(const Step& step, Compiler&) {
  return point_task(with_broadcast(step, step.op.as<DequantizeLinear>()->axis), dequantized_block);
}

}  // namespace

extern const Kernel quantize_linear_kernel, dequantize_linear_kernel;
constinit const Kernel quantize_linear_kernel{op_def<QuantizeLinear>, takes_everything,
                                              make_quantize};
constinit const Kernel dequantize_linear_kernel{op_def<DequantizeLinear>, takes_everything,
                                                make_dequantize};

}  // namespace tenon::cpu
