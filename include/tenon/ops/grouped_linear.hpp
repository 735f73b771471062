#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Linear layers that each row chooses from, as a mixture of experts does:
/// y[..., j, n] = sum_k x[..., j, k] * w[group[..., j], n, k] (+ bias[group[..., j], n]).
///
/// Inputs    x: [..., J, K], or [..., 1, K] where all J choices of a row read the same elements;
///             rank >= 2; f16, bf16, f32 or f64
///           w: [G, N, K]; a floating or a block type, decoded as `dequantize` (quant.hpp) does
///           group: [..., J], the leading axes of x; i32 or i64
///           bias: [G, N], floating, when has_bias
/// Output    y: [..., J, N], dtype of x; tags of x, group, and of w's second axis
/// Errors    C1 wrong number of inputs for the flag      Errc::bad_argument
///           C2 x not floating; w neither floating nor of a block type; group neither i32 nor i64;
///              bias not floating                        Errc::unsupported_dtype
///           C3 x of rank < 2, w not of rank 3, group's rank not one less than x's, bias not of rank 2
///                                                       Errc::shape_mismatch
///           C4 sizes or tags of K differ in x and w     Errc::shape_mismatch
///           C5 leading axes of x and group differ; x has neither J nor 1 rows
///                                                       Errc::shape_mismatch
///           C6 bias is not [G, N]                       Errc::shape_mismatch
///           C7 two axes of the result with one tag      Errc::shape_mismatch
///           when run: a group outside [0, G)            Errc::out_of_range
/// Numerics  reference in f64, rounded once
struct GroupedLinear {
  static constexpr std::string_view name = "grouped_linear";
  static constexpr int min_inputs = 3, max_inputs = 4;
  static constexpr OpTraits traits{.picked_inputs = 0b1010};
  bool has_bias = false;
  static constexpr auto fields = FieldList{field("has_bias", &GroupedLinear::has_bias)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
  double flops(std::span<const Shape> in, const Shape& out) const;
};
TENON_DECLARE_OP(GroupedLinear);

/// An empty `bias` means none.
Tensor grouped_linear(const Tensor& x, const Tensor& w, const Tensor& group,
                      const Tensor& bias = {},
                      const std::source_location& where = std::source_location::current());

}  // namespace tenon
