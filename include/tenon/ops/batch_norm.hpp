#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

/// Batch normalisation with statistics that are given:
/// y = (x - mean[c]) / sqrt(variance[c] + eps) * weight[c] + bias[c].
///
/// Inputs    x: [N, C, ...]: rank >= 2, floating; mean[C], variance[C], optional weight[C] and
///           bias[C], of x's dtype
/// Output    y: shape and dtype of x; may share x's buffer
/// Errors    C1 x not floating                                        Errc::unsupported_dtype
///           C2 x of rank below 2, another operand not [C] or of another dtype
///                                                                    Errc::shape_mismatch
///           C3 eps negative or not finite                            Errc::bad_attribute
/// Numerics  reference in f64, rounded once
/// Source    ONNX operator BatchNormalization; torch.nn.functional.batch_norm
struct BatchNorm {
  static constexpr std::string_view name = "batch_norm";
  static constexpr int min_inputs = 3, max_inputs = 5;
  static constexpr OpTraits traits{.in_place_inputs = 1};
  double eps = 1e-5;
  static constexpr auto fields = FieldList{field("eps", &BatchNorm::eps)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
  std::vector<Tensor> gradient(const Backward& at) const;
};
TENON_DECLARE_OP(BatchNorm);

/// Without weight, or with weight and without bias, the rest is left out: pass empty tensors. A
/// bias without a weight is Errc::bad_argument.
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance,
                  const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
                  const std::source_location& where = std::source_location::current());

/// The same with the statistics of x itself, over all axes but the channels', composed of other
/// ops; a bias may come without a weight. `variance` is without Bessel's correction, as y uses it;
/// PyTorch's running variance takes variance * n / (n - 1), with n elements per channel. f16 and bf16
/// are widened to f32, and results rounded once.
struct BatchNormTraining {
  Tensor y;
  Tensor mean;      ///< [C]
  Tensor variance;  ///< [C]
};
BatchNormTraining batch_norm_training(
    const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
    const std::source_location& where = std::source_location::current());

}  // namespace tenon
