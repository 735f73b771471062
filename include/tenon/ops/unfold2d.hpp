#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// The windows of images as columns (im2col): y[n, (c * KH + r) * KW + s, i * W' + j] =
/// x[n, c, i * stride + r * dilation - top, j * stride + s * dilation - left], 0 outside x.
///
/// Input     x: [N, C, H, W]; floating
/// Output    y: [N, C * KH * KW, H' * W'], H' and W' as for conv2d; dtype of x, no tags
/// Attributes lists of rows, columns
///   kernel            two values KH, KW, each at least 1
///   stride, dilation  two values, each at least 1; empty: 1
///   padding           four values top, bottom, left, right, or two for both sides of each axis;
///                     empty: 0
/// Errors    C1 x not floating                                        Errc::unsupported_dtype
///           C2 x not of rank 4                                       Errc::shape_mismatch
///           C3 a list of another length; a value below 1; padding negative
///                                                                    Errc::bad_attribute
///           C4 the window exceeds the padded input                   Errc::bad_shape
/// Numerics  exact
/// Source    torch.nn.functional.unfold
struct Unfold2d {
  static constexpr std::string_view name = "unfold2d";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{};
  IntList kernel{};
  IntList stride{};
  IntList padding{};
  IntList dilation{};
  static constexpr auto fields =
      FieldList{field("kernel", &Unfold2d::kernel), field("stride", &Unfold2d::stride),
                field("padding", &Unfold2d::padding), field("dilation", &Unfold2d::dilation)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Unfold2d);

/// The sum of windows at their places in images (col2im), the gradient of unfold2d: elements of x
/// that unfold2d would take from one place add up there.
///
/// Input     x: [N, C * KH * KW, H' * W'], floating
/// Output    y: [N, C, H, W] with H and W from `size`; dtype of x, no tags
/// Attributes as for unfold2d; size: two values H, W
/// Errors    C1 x not floating                                        Errc::unsupported_dtype
///           C2 x not of rank 3                                       Errc::shape_mismatch
///           C3 a list of another length; a value below 1 (size: below 0); padding negative
///                                                                    Errc::bad_attribute
///           C4 the window exceeds the padded size                    Errc::bad_shape
///           C5 KH * KW does not divide axis 1; axis 2 is not H' * W' Errc::shape_mismatch
/// Numerics  reference in f64, rounded once
/// Source    torch.nn.functional.fold; ONNX operator Col2Im
struct Fold2d {
  static constexpr std::string_view name = "fold2d";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{};
  IntList size{};
  IntList kernel{};
  IntList stride{};
  IntList padding{};
  IntList dilation{};
  static constexpr auto fields =
      FieldList{field("size", &Fold2d::size), field("kernel", &Fold2d::kernel),
                field("stride", &Fold2d::stride), field("padding", &Fold2d::padding),
                field("dilation", &Fold2d::dilation)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(Fold2d);

/// `unfold2d(x, {.kernel = {3, 3}, .padding = {1, 1}})`.
Tensor unfold2d(const Tensor& x, const Unfold2d& options,
                const std::source_location& where = std::source_location::current());
/// `fold2d(x, {.size = {8, 8}, .kernel = {3, 3}})`.
Tensor fold2d(const Tensor& x, const Fold2d& options,
              const std::source_location& where = std::source_location::current());

}  // namespace tenon
