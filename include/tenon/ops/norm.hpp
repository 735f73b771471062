#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Normalises each slice along the last axis to mean 0 and variance 1, then scales and shifts it:
/// y_i = (x_i - mean) / sqrt(variance + eps) * w_i + b_i; the variance divides by the slice's size.
///
/// Inputs    x[..., D]: rank >= 1, floating; optional w[D], then optional b[D], each of any
///           floating type
/// Output    y: shape and dtype of x; may share x's buffer
/// Errors    C1 x is a scalar                               Errc::bad_shape
///           C2 a dtype is not floating                     Errc::unsupported_dtype
///           C3 w or b not [D], or of another tag           Errc::shape_mismatch
///           C4 eps negative or a NaN                       Errc::bad_attribute
/// Numerics  reference in f64, two passes
/// Source    Ba et al., "Layer Normalization", arXiv:1607.06450
struct LayerNorm {
  static constexpr std::string_view name = "layer_norm";
  static constexpr int min_inputs = 1, max_inputs = 3;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  double eps = 1e-5;
  static constexpr auto fields = FieldList{field("eps", &LayerNorm::eps)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(LayerNorm);

/// Scales each slice along the last axis to a root mean square of 1, then by w:
/// y_i = x_i / sqrt(mean_j x_j^2 + eps) * w_i.
///
/// Inputs    x[..., D]: rank >= 1, floating; optional w[D] of any floating type
/// Output    y: shape and dtype of x; may share x's buffer
/// Errors    C1 .. C4 as for layer_norm
/// Numerics  reference in f64
/// Source    Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467
struct RmsNorm {
  static constexpr std::string_view name = "rms_norm";
  static constexpr int min_inputs = 1, max_inputs = 2;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  double eps = 1e-5;
  static constexpr auto fields = FieldList{field("eps", &RmsNorm::eps)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(RmsNorm);

Tensor layer_norm(const Tensor& x, double eps = 1e-5,
                  const std::source_location& where = std::source_location::current());
Tensor layer_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5,
                  const std::source_location& where = std::source_location::current());
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5,
                  const std::source_location& where = std::source_location::current());
Tensor rms_norm(const Tensor& x, double eps = 1e-5,
                const std::source_location& where = std::source_location::current());
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5,
                const std::source_location& where = std::source_location::current());

}  // namespace tenon
