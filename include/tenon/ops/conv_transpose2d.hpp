#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Transposed convolution of images, the gradient of conv2d with respect to its input: each element
/// of x adds its multiple of the filter to the result.
///
///   y[n, o, p, q] = bias[o] + sum over c, i, j, r, s of x[n, c, i, j] * w[c, o - g * Og, r, s]
///                   with p = i * stride + r * dilation - top, q = j * ... - left
///
/// where g is the group of channel c and of output o, and Og = O / groups.
///
/// Inputs    x: [N, C, H, W]; w: [C, O / groups, KH, KW]; bias: [O], when has_bias; one floating
///           dtype
/// Output    y: [N, O, H', W'],
///           H' = (H - 1) * stride - top - bottom + dilation * (KH - 1) + 1 + output_padding
/// Attributes lists of rows, columns; empty: 1, 0, 0 and 1
///   stride, dilation  two values, each at least 1
///   padding           four values top, bottom, left, right, or two for both sides of each axis:
///                     what is cut off the result
///   output_padding    two values: rows and columns that are added at the end, where only sums that
///                     the padding would cut off, or none, arrive
///   groups            divides C
/// Errors    C1 wrong number of inputs for the flag                   Errc::bad_argument
///           C2 a dtype that is not floating                          Errc::unsupported_dtype
///           C3 x or w not of rank 4, bias not of rank 1, dtypes differ
///                                                                    Errc::shape_mismatch
///           C4 groups < 1, or no divisor of C                        Errc::bad_attribute
///           C5 the channels of x and w, or bias and O, differ        Errc::shape_mismatch
///           C6 a list of another length; stride or dilation < 1; padding negative; output_padding
///              negative, or below neither stride nor dilation        Errc::bad_attribute
///           C7 KH or KW is 0; a size of the result is negative       Errc::bad_shape
///           C8 two axes of the result with one tag                   Errc::shape_mismatch
/// Numerics  reference in f64, rounded once
/// Source    ONNX operator ConvTranspose; torch.nn.functional.conv_transpose2d
struct ConvTranspose2d {
  static constexpr std::string_view name = "conv_transpose2d";
  static constexpr int min_inputs = 2, max_inputs = 3;
  IntList stride{};
  IntList padding{};
  IntList output_padding{};
  IntList dilation{};
  std::int64_t groups = 1;
  bool has_bias = false;
  static constexpr auto fields =
      FieldList{field("stride", &ConvTranspose2d::stride),
                field("padding", &ConvTranspose2d::padding),
                field("output_padding", &ConvTranspose2d::output_padding),
                field("dilation", &ConvTranspose2d::dilation),
                field("groups", &ConvTranspose2d::groups),
                field("has_bias", &ConvTranspose2d::has_bias)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(ConvTranspose2d);

/// `conv_transpose2d(x, w, bias, {.stride = {2, 2}, .padding = {1, 1}})`. An empty `bias` means
/// none; has_bias of `options` is ignored and set accordingly.
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose2d& options = {},
                        const std::source_location& where = std::source_location::current());

/// The same along one axis: x [N, C, W], w [C, O / groups, KW]; a conv_transpose2d of one row.
struct ConvTranspose1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding_left = 0;
  std::int64_t padding_right = 0;
  std::int64_t output_padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
};
Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose1dOptions& options = {},
                        const std::source_location& where = std::source_location::current());

/// The same along three axes: x [N, C, D, H, W], w [C, O / groups, KD, KH, KW], bias [O]. A
/// conv_transpose2d of N * D images, whose results are added up along the depth by fold2d.
///
/// Attributes  three values each, as for conv_transpose2d; padding is the same on both sides
/// Errors      those of conv_transpose2d; also x or w not of rank 5 (Errc::shape_mismatch), lists
///             of another length (Errc::bad_attribute), sizes of x or w that are not known but for
///             N (Errc::unsupported)
struct ConvTranspose3dOptions {
  IntList stride{};
  IntList padding{};
  IntList output_padding{};
  IntList dilation{};
  std::int64_t groups = 1;
};
Tensor conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose3dOptions& options = {},
                        const std::source_location& where = std::source_location::current());

}  // namespace tenon
