#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// A linear layer: y[..., n] = sum_k x[..., k] * w[n, k] (+ bias[n]) (+ residual[..., n]).
///
/// Inputs    x: [..., K], rank >= 1; f16, bf16, f32 or f64
///           w: [N, K]; a floating or a block type, decoded as `dequantize` (quant.hpp) does
///           bias: [N], floating, when has_bias
///           residual: [..., N], shape and dtype of y, when has_residual; y may share its buffer
/// Output    y: [..., N], dtype of x; tags of x, and of w's first axis
/// Errors    C1 wrong number of inputs for the flags      Errc::bad_argument
///           C2 x not floating; w neither floating nor of a block type; bias not floating
///                                                        Errc::unsupported_dtype
///           C3 x of rank 0, w not of rank 2, bias not of rank 1
///                                                        Errc::shape_mismatch
///           C4 sizes or tags of K differ in x and w      Errc::shape_mismatch
///           C5 bias is not [N]                           Errc::shape_mismatch
///           C6 residual's shape or dtype is not y's      Errc::shape_mismatch
///           C7 the tag of w's first axis is also one of x's leading axes
///                                                        Errc::shape_mismatch
/// Numerics  reference in f64, rounded once; K = 0 gives exactly bias + residual
struct Linear {
  static constexpr std::string_view name = "linear";
  static constexpr int min_inputs = 2, max_inputs = 4;
  /// Input 2 is the residual when there is no bias. A bias has the type of y only for x of rank 1;
  /// it is then read element by element, as the residual is, so it may be overwritten too.
  static constexpr OpTraits traits{.in_place_inputs = 0b1100};
  bool has_bias = false;
  bool has_residual = false;
  static constexpr auto fields =
      FieldList{field("has_bias", &Linear::has_bias), field("has_residual", &Linear::has_residual)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(Linear);

/// An empty `bias` or `residual` means none.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Tensor& residual = {},
              const std::source_location& where = std::source_location::current());

}  // namespace tenon
