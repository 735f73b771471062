#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Matrix product of codes: c[..., m, n] = sum_k (a[..., m, k] - a_zero) * (b[..., k, n] - b_zero).
///
/// Inputs    a: [..., M, K], b: [..., K, N]; i8 or u8 each, with the axes that `matmul` takes
///           a_zero, optional: one number of a's dtype
///           b_zero, optional: of b's dtype; one number, or [N]
/// Output    c: [..., M, N]; i32
/// Errors    C1 a or b neither i8 nor u8; a_zero not of a's dtype, b_zero not of b's
///                                                        Errc::unsupported_dtype
///           C2 an operand of rank 0                      Errc::shape_mismatch
///           C3 sizes or tags of K differ                 Errc::shape_mismatch
///           C4 leading axes that do not broadcast, or whose tags differ
///                                                        Errc::shape_mismatch
///           C5 two axes of the result with one tag       Errc::shape_mismatch
///           C6 a_zero not one number; b_zero neither one number nor [N]
///                                                        Errc::shape_mismatch
/// Numerics  exact; sums wrap modulo 2^32, which takes more than 33 000 products
/// Source    ONNX operator MatMulInteger
struct MatmulInteger {
  static constexpr std::string_view name = "matmul_integer";
  static constexpr int min_inputs = 2, max_inputs = 4;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(MatmulInteger);

/// Convolution of codes: `conv2d` of x - x_zero and w - w_zero. Outside of x is x_zero, so padding
/// adds nothing.
///
/// Inputs    x: [N, C, H, W]; w: [O, C / groups, KH, KW]; i8 or u8 each
///           x_zero, optional: one number of x's dtype
///           w_zero, optional: of w's dtype; one number, or [O]
/// Output    y: [N, O, H', W'] as of conv2d; i32
/// Attributes those of conv2d
/// Errors    C1 x or w neither i8 nor u8; x_zero not of x's dtype, w_zero not of w's
///                                                                    Errc::unsupported_dtype
///           C2 x or w not of rank 4                                  Errc::shape_mismatch
///           C3 groups < 1, or no divisor of C or of O                Errc::bad_attribute
///           C4 C / groups differs from w                             Errc::shape_mismatch
///           C5 x_zero not one number; w_zero neither one number nor [O]
///                                                                    Errc::shape_mismatch
///           C6 a list of another length; stride or dilation < 1; padding negative or not smaller
///              than the kernel's extent                              Errc::bad_attribute
///           C7 KH or KW is 0; the kernel exceeds the padded input    Errc::bad_shape
///           C8 two axes of the result with one tag                   Errc::shape_mismatch
/// Numerics  exact; sums wrap modulo 2^32, which takes more than 33 000 products
/// Source    ONNX operator ConvInteger
struct Conv2dInteger {
  static constexpr std::string_view name = "conv2d_integer";
  static constexpr int min_inputs = 2, max_inputs = 4;
  IntList stride{};
  IntList padding{};
  IntList dilation{};
  std::int64_t groups = 1;
  static constexpr auto fields = FieldList{
      field("stride", &Conv2dInteger::stride), field("padding", &Conv2dInteger::padding),
      field("dilation", &Conv2dInteger::dilation), field("groups", &Conv2dInteger::groups)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Conv2dInteger);

/// An empty zero point means 0.
Tensor matmul_integer(const Tensor& a, const Tensor& b, const Tensor& a_zero = {},
                      const Tensor& b_zero = {},
                      const std::source_location& where = std::source_location::current());

/// The product with a weight as linear layers store it, w: [N, K]; w_zero: one number or [N].
Tensor linear_integer(const Tensor& x, const Tensor& w, const Tensor& x_zero = {},
                      const Tensor& w_zero = {},
                      const std::source_location& where = std::source_location::current());

Tensor conv2d_integer(const Tensor& x, const Tensor& w, const Tensor& x_zero = {},
                      const Tensor& w_zero = {}, const Conv2dInteger& options = {},
                      const std::source_location& where = std::source_location::current());

/// Codes of 8 bits and what they mean: (codes - zero_point) * scale. An empty zero point means 0.
struct QuantizedTensor {
  Tensor codes;
  Tensor scale;
  Tensor zero_point{};
};
/// What the codes of a result are to mean; they have the zero point's dtype.
struct ScaleAndZero {
  Tensor scale;
  Tensor zero_point;
};

/// Products of codes whose result is rounded to codes, requantize(sums + bias, scales): the bits of
/// ONNX's QLinearMatMul and QLinearConv as ONNX Runtime computes them. A weight's scale and zero
/// point are one number each, or one for each output. The bias is i32 [N], in units of x's scale
/// times w's.
Tensor qlinear_matmul(const QuantizedTensor& a, const QuantizedTensor& b, const ScaleAndZero& y,
                      const std::source_location& where = std::source_location::current());
/// The same with w.codes [N, K], as linear layers store it, and by a convolution.
Tensor qlinear_linear(const QuantizedTensor& x, const QuantizedTensor& w, const ScaleAndZero& y,
                      const Tensor& bias = {},
                      const std::source_location& where = std::source_location::current());
Tensor qlinear_conv2d(const QuantizedTensor& x, const QuantizedTensor& w, const ScaleAndZero& y,
                      const Tensor& bias = {}, const Conv2dInteger& options = {},
                      const std::source_location& where = std::source_location::current());

}  // namespace tenon
