#pragma once

#include <tenon/op.hpp>
#include <tenon/shape.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// To 8 bits: y = saturate(round(x / scale) + zero_point), as ONNX's QuantizeLinear.
///
/// Inputs    x: any shape; f32
///           scale: f32; one number, or one for each index of `axis`: [x[axis]]
///           zero_point, optional: of `dtype`; likewise
/// Output    y: shape and tags of x; `dtype`
/// Errors    C1 dtype neither i8 nor u8                   Errc::bad_attribute
///           C2 x or scale not f32, zero_point not of `dtype`
///                                                        Errc::unsupported_dtype
///           C3 axis outside [0, rank) where scale or zero_point has several numbers
///                                                        Errc::axis_out_of_range
///           C4 scale or zero_point neither one number nor [x[axis]]
///                                                        Errc::shape_mismatch
/// Numerics  the same bits on every device: the quotient is rounded to f32, then to the nearest
///           integer, ties to even. A NaN gives the lowest code.
/// Source    ONNX operator QuantizeLinear
struct QuantizeLinear {
  static constexpr std::string_view name = "quantize_linear";
  static constexpr int min_inputs = 2, max_inputs = 3;
  std::int64_t axis = 1;
  DType dtype = DType::u8;
  static constexpr auto fields =
      FieldList{field("axis", &QuantizeLinear::axis), field("dtype", &QuantizeLinear::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(QuantizeLinear);

/// From codes: y = (x - zero_point) * scale, as ONNX's DequantizeLinear.
///
/// Inputs    x: any shape; i8, u8, or i32 (sums of products)
///           scale: f32; one number, or one for each index of `axis`: [x[axis]]
///           zero_point, optional: of x's dtype; likewise
/// Output    y: shape and tags of x; f32
/// Errors    C1 x neither i8, u8 nor i32; scale not f32; zero_point not of x's dtype
///                                                        Errc::unsupported_dtype
///           C2 axis outside [0, rank) where scale or zero_point has several numbers
///                                                        Errc::axis_out_of_range
///           C3 scale or zero_point neither one number nor [x[axis]]
///                                                        Errc::shape_mismatch
/// Numerics  the same bits on every device: the difference wraps modulo 2^32, is rounded to f32 and
///           multiplied in f32
/// Source    ONNX operator DequantizeLinear
struct DequantizeLinear {
  static constexpr std::string_view name = "dequantize_linear";
  static constexpr int min_inputs = 2, max_inputs = 3;
  std::int64_t axis = 1;
  static constexpr auto fields = FieldList{field("axis", &DequantizeLinear::axis)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(DequantizeLinear);

/// Where scales run along an axis of the values, and the type of codes without a zero point.
struct QuantizeOptions {
  AxisRef axis = 1;  ///< ignored where scale and zero point are one number each
  DType dtype = DType::u8;
};

/// `quantize_linear(x, scale, zero)`. An empty `zero_point` means 0 in `options.dtype`; otherwise
/// its dtype is that of the codes.
Tensor quantize_linear(const Tensor& x, const Tensor& scale, const Tensor& zero_point = {},
                       const QuantizeOptions& options = {},
                       const std::source_location& where = std::source_location::current());

/// An empty `zero_point` means 0. `axis` is ignored where scale and zero point are one number each.
Tensor dequantize_linear(const Tensor& x, const Tensor& scale, const Tensor& zero_point = {},
                         const AxisRef& axis = 1,
                         const std::source_location& where = std::source_location::current());

/// Sums of products (i32) as codes: saturate(round(sums * multiplier) + zero_point), the last step
/// of ONNX's QLinearConv and QLinearMatMul; `multiplier` is x_scale * w_scale / y_scale. A
/// dequantize_linear and a quantize_linear of scale 1.
Tensor requantize(const Tensor& sums, const Tensor& multiplier, const Tensor& zero_point,
                  const AxisRef& axis = 1,
                  const std::source_location& where = std::source_location::current());

}  // namespace tenon
