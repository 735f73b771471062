#include "quantized_conv2d.hpp"

namespace tenon {

TENON_DEFINE_OP(quantized_conv2d, QuantizedConv2d);

Shape QuantizedConv2d::infer(std::span<const Shape> in) const { return merged.infer(in); }

}  // namespace tenon
