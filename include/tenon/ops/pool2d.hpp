#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Maximum over windows of images: y[n, c, i, j] = max over r, s of
/// x[n, c, i * stride + r * dilation - top, j * stride + s * dilation - left], inside x.
///
/// Input     x: [N, C, H, W]; f16, bf16, f32 or f64
/// Output    y: [N, C, H', W'] of the same dtype; sizes as for conv2d
/// Attributes lists of rows, columns
///   kernel            two values, each at least 1
///   stride            two values, each at least 1; empty: the kernel
///   padding           four values top, bottom, left, right, or two for both sides of each axis;
///                     empty: 0
///   dilation          two values, each at least 1; empty: 1
/// Errors    C1 x not floating                                        Errc::unsupported_dtype
///           C2 x not of rank 4                                       Errc::shape_mismatch
///           C3 a list of another length; a value below 1; padding negative or not smaller than the
///              window's extent                                       Errc::bad_attribute
///           C4 the window exceeds the padded input                   Errc::bad_shape
/// Numerics  exact; a NaN fills its windows; a window without elements (its dilated taps all fall
///           on padding) gives -inf
struct MaxPool2d {
  static constexpr std::string_view name = "max_pool2d";
  static constexpr int min_inputs = 1, max_inputs = 1;
  IntList kernel{};
  IntList stride{};
  IntList padding{};
  IntList dilation{};
  static constexpr auto fields =
      FieldList{field("kernel", &MaxPool2d::kernel), field("stride", &MaxPool2d::stride),
                field("padding", &MaxPool2d::padding), field("dilation", &MaxPool2d::dilation)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(MaxPool2d);

/// Mean over windows of images. Input, output, attributes and errors as for max_pool2d, without
/// dilation. A window is divided by the number of its taps inside x, or, with count_include_pad, by
/// all of them.
///
/// Numerics  reference in f64, rounded once; the mean of a window without elements (x has no rows
///           or no columns) is NaN
struct AvgPool2d {
  static constexpr std::string_view name = "avg_pool2d";
  static constexpr int min_inputs = 1, max_inputs = 1;
  IntList kernel{};
  IntList stride{};
  IntList padding{};
  bool count_include_pad = false;
  static constexpr auto fields =
      FieldList{field("kernel", &AvgPool2d::kernel), field("stride", &AvgPool2d::stride),
                field("padding", &AvgPool2d::padding),
                field("count_include_pad", &AvgPool2d::count_include_pad)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(AvgPool2d);

/// The gradient of max_pool2d with respect to x: each element of `upstream` is added to the first
/// (in row-major order) of the greatest elements of its window, to the last NaN where there is one,
/// and to none where the window lies on padding alone.
///
/// Inputs    x: [N, C, H, W]; upstream: the shape of the pool's result; one floating dtype
/// Output    y: sizes and dtype of x
/// Attributes, Errors  C1 to C4 as for max_pool2d
///           C5 upstream has another type than the pool's result      Errc::shape_mismatch
/// Numerics  reference in f64, rounded once
/// Source    torch.nn.functional.max_pool2d
struct MaxPool2dBackward {
  static constexpr std::string_view name = "max_pool2d_backward";
  static constexpr int min_inputs = 2, max_inputs = 2;
  IntList kernel{};
  IntList stride{};
  IntList padding{};
  IntList dilation{};
  static constexpr auto fields = FieldList{field("kernel", &MaxPool2dBackward::kernel),
                                           field("stride", &MaxPool2dBackward::stride),
                                           field("padding", &MaxPool2dBackward::padding),
                                           field("dilation", &MaxPool2dBackward::dilation)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(MaxPool2dBackward);

/// The gradient of avg_pool2d with respect to x, of which only the shape counts: each element of
/// `upstream`, divided as the pool divides, is added to the elements of its window.
///
/// Inputs, Output, Attributes, Errors, Numerics  as for max_pool2d_backward, with the attributes of
/// avg_pool2d
struct AvgPool2dBackward {
  static constexpr std::string_view name = "avg_pool2d_backward";
  static constexpr int min_inputs = 2, max_inputs = 2;
  IntList kernel{};
  IntList stride{};
  IntList padding{};
  bool count_include_pad = false;
  static constexpr auto fields = FieldList{
      field("kernel", &AvgPool2dBackward::kernel), field("stride", &AvgPool2dBackward::stride),
      field("padding", &AvgPool2dBackward::padding),
      field("count_include_pad", &AvgPool2dBackward::count_include_pad)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(AvgPool2dBackward);

/// `max_pool2d(x, {.kernel = {2, 2}})`.
Tensor max_pool2d(const Tensor& x, const MaxPool2d& options,
                  const std::source_location& where = std::source_location::current());
Tensor avg_pool2d(const Tensor& x, const AvgPool2d& options,
                  const std::source_location& where = std::source_location::current());

Tensor max_pool2d_backward(const Tensor& x, const Tensor& upstream,
                           const MaxPool2dBackward& options,
                           const std::source_location& where = std::source_location::current());
Tensor avg_pool2d_backward(const Tensor& x, const Tensor& upstream,
                           const AvgPool2dBackward& options,
                           const std::source_location& where = std::source_location::current());

/// Mean and maximum over the last two axes, which are kept with size 1.
Tensor global_avg_pool2d(const Tensor& x,
                         const std::source_location& where = std::source_location::current());
Tensor global_max_pool2d(const Tensor& x,
                         const std::source_location& where = std::source_location::current());

}  // namespace tenon
