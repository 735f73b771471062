// Norms composed of other ops; group_norm and instance_norm have a header of their own.
#pragma once

#include <tenon/axis_list.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>

namespace tenon {

/// y = (x - mean[c]) / sqrt(variance[c] + eps) * weight[c] + bias[c]: batch normalisation with
/// statistics that are given, as one multiplication and one addition per element. x [N, C, ...] of a
/// floating type and rank >= 2, the others [C] of its dtype; weight and bias may be empty tensors.
///
/// Errors  x of rank below 2, other operands not [C]        Errc::shape_mismatch
/// Source  ONNX operator BatchNormalization; torch.nn.functional.batch_norm
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance,
                  const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
                  const std::source_location& where = std::source_location::current());

/// The same with the statistics of x itself, over all axes but the channels'. `variance` is without
/// Bessel's correction, as y uses it; PyTorch's running variance takes variance * n / (n - 1), with
/// n elements per channel.
struct BatchNormTraining {
  Tensor y;
  Tensor mean;      ///< [C]
  Tensor variance;  ///< [C]
};
BatchNormTraining batch_norm_training(
    const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
    const std::source_location& where = std::source_location::current());

/// x / max(|x|, eps), with |x| the Euclidean length along `axes`: torch.nn.functional.normalize.
/// Needs f32 or f64 where eps^2 is to count: it is below the smallest half.
Tensor l2_normalize(const Tensor& x, const AxisList& axes = -1, double eps = 1e-12,
                    const std::source_location& where = std::source_location::current());

/// y = x / (k + alpha / size * s)^beta, with s the sum of squares over the channels from
/// c - floor((size - 1) / 2) to c + ceil((size - 1) / 2) that there are: ONNX's LRN. PyTorch's window
/// is the same for an odd size; for an even one it lies one channel lower. x [N, C, ...], rank >= 2.
///
/// Errors  x of rank below 2                                Errc::shape_mismatch
///         size below 1                                     Errc::bad_attribute
///         rank above 3, and sizes from axis 2 on not known Errc::unsupported
Tensor local_response_norm(const Tensor& x, std::int64_t size, double alpha = 1e-4,
                           double beta = 0.75, double k = 1,
                           const std::source_location& where = std::source_location::current());

}  // namespace tenon
