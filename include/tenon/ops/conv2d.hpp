#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Convolution of images (a cross-correlation, as in every deep-learning framework):
///
///   y[n, o, i, j] = bias[o] + sum over c, r, s of
///                   x[n, g * Cg + c, i * stride + r * dilation - top, j * ...] * w[o, c, r, s]
///
/// with Cg = C / groups, g the group of output channel o, and zeros outside x.
///
/// Inputs    x: [N, C, H, W]; w: [O, Cg, KH, KW]; bias: [O], when has_bias; one floating dtype
/// Output    y: [N, O, H', W'], H' = (H + top + bottom - (dilation * (KH - 1) + 1)) / stride + 1
/// Attributes lists of rows, columns; empty: 1, 0 and 1
///   stride, dilation  two values, each at least 1
///   padding           four values top, bottom, left, right, or two for both sides of each axis
///   groups            divides C and O
/// Errors    C1 wrong number of inputs for the flag                   Errc::bad_argument
///           C2 a dtype that is not floating                          Errc::unsupported_dtype
///           C3 x or w not of rank 4, bias not of rank 1, dtypes differ
///                                                                    Errc::shape_mismatch
///           C4 groups < 1, or no divisor of C or of O                Errc::bad_attribute
///           C5 C / groups differs from w, bias from O                Errc::shape_mismatch
///           C6 a list of another length; stride or dilation < 1; padding negative or not smaller
///              than the kernel's extent                              Errc::bad_attribute
///           C7 KH or KW is 0; the kernel exceeds the padded input    Errc::bad_shape
///           C8 two axes of the result with one tag                   Errc::shape_mismatch
/// Numerics  reference in f64, rounded once; the CPU may sum whole tiles of 3x3 convolutions (by
///           Winograd's filtering), so that an infinity, a NaN or a very large number reaches all
///           outputs of its tiles
/// Source    ONNX operator Conv; Dumoulin and Visin, A guide to convolution arithmetic (2016)
struct Conv2d {
  static constexpr std::string_view name = "conv2d";
  static constexpr int min_inputs = 2, max_inputs = 3;
  IntList stride{};
  IntList padding{};
  IntList dilation{};
  std::int64_t groups = 1;
  bool has_bias = false;
  static constexpr auto fields =
      FieldList{field("stride", &Conv2d::stride), field("padding", &Conv2d::padding),
                field("dilation", &Conv2d::dilation), field("groups", &Conv2d::groups),
                field("has_bias", &Conv2d::has_bias)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Conv2d);

/// The gradient of conv2d with respect to its filter:
///
///   y[o, c, r, s] = sum over n, i, j of
///                   upstream[n, o, i, j] * x[n, g * Cg + c, i * stride + r * dilation - top, j * ...]
///
/// Inputs    x: [N, C, H, W]; upstream: [N, O, H', W']; one floating dtype. H' and W' are free:
///           outside x there are zeros, wherever a window lies; these take part as factors, too
/// Output    y: [O, C / groups, KH, KW], dtype of x, no tags
/// Attributes kernel: KH and KW, at least 1; stride, padding, dilation, groups as for conv2d, but
///           for a padding of any size
/// Errors    C1 wrong number of inputs                                Errc::bad_argument
///           C2 a dtype that is not floating                          Errc::unsupported_dtype
///           C3 x or upstream not of rank 4, dtypes or N differ       Errc::shape_mismatch
///           C4 groups < 1, or no divisor of C or of O                Errc::bad_attribute
///           C5 kernel missing or below 1; a list of another length; stride or dilation < 1; a
///              negative padding                                      Errc::bad_attribute
///           C6 O or C not known                                      Errc::unsupported
/// Numerics  reference in f64, rounded once
/// Source    the derivative of conv2d's formula
struct Conv2dFilterBackward {
  static constexpr std::string_view name = "conv2d_filter_backward";
  static constexpr int min_inputs = 2, max_inputs = 2;
  IntList kernel{};
  IntList stride{};
  IntList padding{};
  IntList dilation{};
  std::int64_t groups = 1;
  static constexpr auto fields = FieldList{field("kernel", &Conv2dFilterBackward::kernel),
                                           field("stride", &Conv2dFilterBackward::stride),
                                           field("padding", &Conv2dFilterBackward::padding),
                                           field("dilation", &Conv2dFilterBackward::dilation),
                                           field("groups", &Conv2dFilterBackward::groups)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Conv2dFilterBackward);

/// `conv2d(x, w, bias, {.stride = {2, 2}, .padding = {1, 1}})`. An empty `bias` means none;
/// has_bias of `options` is ignored and set accordingly.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2d& options = {},
              const std::source_location& where = std::source_location::current());

/// `conv2d_filter_backward(x, upstream, {.kernel = {3, 3}, .padding = {1, 1}})`.
Tensor conv2d_filter_backward(const Tensor& x, const Tensor& upstream,
                              const Conv2dFilterBackward& options,
                              const std::source_location& where = std::source_location::current());

/// conv2d along one axis: x [N, C, W], w [O, C / groups, KW]; a conv2d of one row.
struct Conv1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding_left = 0;
  std::int64_t padding_right = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
};
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Conv1dOptions& options = {},
              const std::source_location& where = std::source_location::current());

/// The same along three axes: x [N, C, D, H, W], w [O, C / groups, KD, KH, KW], bias [O]. A conv2d
/// of N * D' images, whose channels are those of the KD slices that a slice of the result sees; where
/// there are several groups of one channel each, of f32 or f64, the sum of a conv2d for each of the KD.
///
/// Attributes  stride and dilation: three values, each at least 1; padding: three values for both
///             sides of each axis; empty: 1, 0 and 1
/// Errors      those of conv2d; also x or w not of rank 5 (Errc::shape_mismatch), lists of another
///             length (Errc::bad_attribute), D or KD not known (Errc::unsupported)
struct Conv3dOptions {
  IntList stride{};
  IntList padding{};
  IntList dilation{};
  std::int64_t groups = 1;
};
Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Conv3dOptions& options = {},
              const std::source_location& where = std::source_location::current());

}  // namespace tenon
