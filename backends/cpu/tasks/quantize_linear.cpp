// quantize_linear and dequantize_linear: element-wise, with scales and zero points that broadcast
// along one axis.
#include "point_task.hpp"

#include <tenon/ops/quantize_linear.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {
namespace {

template <std::int32_t low, std::int32_t high>
void quantized_block(const PointCall& call, const OpInstance&) noexcept {
  quantize_codes({static_cast<const float*>(call.x[0]), static_cast<const float*>(call.x[1]),
                  static_cast<const std::int32_t*>(call.x[2]), call.step[0], call.step[1],
                  call.step[2], low, high},
                 static_cast<std::uint8_t*>(call.y), call.count);
}

void dequantized_block(const PointCall& call, const OpInstance&) noexcept {
  dequantize_codes(
      {static_cast<const std::int32_t*>(call.x[0]), static_cast<const std::int32_t*>(call.x[2]),
       static_cast<const float*>(call.x[1]), call.step[0], call.step[2], call.step[1]},
      static_cast<float*>(call.y), call.count);
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

PointStep quantize_point(const Step& step) {
  const auto& op = *step.op.as<QuantizeLinear>();
  const PointFunction function =
      op.dtype == DType::i8 ? quantized_block<-128, 127> : quantized_block<0, 255>;
  return {with_broadcast(step, op.axis), function, Reader::As::computed, Reader::As::raw};
}

PointStep dequantize_point(const Step& step) {
  return {with_broadcast(step, step.op.as<DequantizeLinear>()->axis), dequantized_block};
}

}  // namespace

extern const Kernel quantize_linear_kernel, dequantize_linear_kernel;
constinit const Kernel quantize_linear_kernel = point_kernel<QuantizeLinear, quantize_point>();
constinit const Kernel dequantize_linear_kernel =
    point_kernel<DequantizeLinear, dequantize_point>();

}  // namespace tenon::cpu
