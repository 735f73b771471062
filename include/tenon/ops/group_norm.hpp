#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Shifts and scales groups of channels to mean 0 and variance 1, then channels by weight and bias:
/// y = (x - mean) / sqrt(variance + eps) * weight[c] + bias[c], with mean and variance over the
/// group's channels and all positions of each array x[n].
///
/// Inputs    x: [N, C, ...]: rank >= 2, floating; optional weight[C] and bias[C] of x's dtype
/// Output    y: shape and dtype of x; may share x's buffer
/// Errors    C1 x not floating                                        Errc::unsupported_dtype
///           C2 x of rank below 2, weight or bias not [C] or of another dtype
///                                                                    Errc::shape_mismatch
///           C3 groups < 1, or no divisor of C; eps negative or not finite
///                                                                    Errc::bad_attribute
/// Numerics  reference in f64. Variance without Bessel's correction
/// Source    Wu and He, Group Normalization (2018); ONNX operator GroupNormalization (weights per
///           channel, as since opset 21)
struct GroupNorm {
  static constexpr std::string_view name = "group_norm";
  static constexpr int min_inputs = 1, max_inputs = 3;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  std::int64_t groups = 1;
  double eps = 1e-5;
  static constexpr auto fields =
      FieldList{field("groups", &GroupNorm::groups), field("eps", &GroupNorm::eps)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(GroupNorm);

/// Without weight, or with weight and without bias, the rest is left out: pass empty tensors. A
/// bias without a weight is Errc::bad_argument.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5,
                  const std::source_location& where = std::source_location::current());

/// Each channel of each array is a group: group_norm with C groups. C must be known
/// (Errc::unsupported).
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     double eps = 1e-5,
                     const std::source_location& where = std::source_location::current());

}  // namespace tenon
