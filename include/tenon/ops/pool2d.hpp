#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <tuple>

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
      std::tuple{field("kernel", &MaxPool2d::kernel), field("stride", &MaxPool2d::stride),
                 field("padding", &MaxPool2d::padding), field("dilation", &MaxPool2d::dilation)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
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
      std::tuple{field("kernel", &AvgPool2d::kernel), field("stride", &AvgPool2d::stride),
                 field("padding", &AvgPool2d::padding),
                 field("count_include_pad", &AvgPool2d::count_include_pad)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(AvgPool2d);

/// `max_pool2d(x, {.kernel = {2, 2}})`.
Tensor max_pool2d(const Tensor& x, const MaxPool2d& options,
                  const std::source_location& where = std::source_location::current());
Tensor avg_pool2d(const Tensor& x, const AvgPool2d& options,
                  const std::source_location& where = std::source_location::current());

/// Mean and maximum over the last two axes, which are kept with size 1.
Tensor global_avg_pool2d(const Tensor& x,
                         const std::source_location& where = std::source_location::current());
Tensor global_max_pool2d(const Tensor& x,
                         const std::source_location& where = std::source_location::current());

}  // namespace tenon
