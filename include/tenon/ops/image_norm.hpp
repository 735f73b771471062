// Norms composed of other ops; batch_norm and group_norm have headers of their own.
#pragma once

#include <tenon/axis_list.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>

namespace tenon {

/// x / max(|x|, eps), with |x| the Euclidean length along `axes`: torch.nn.functional.normalize.
/// Needs f32 or f64 where eps^2 is to count: it is below the smallest half.
Tensor l2_normalize(const Tensor& x, const AxisList& axes = -1, double eps = 1e-12,
                    const std::source_location& where = std::source_location::current());

/// y = x / (k + alpha / size * s)^beta, with s the sum of squares over the channels from
/// c - floor((size - 1) / 2) to c + ceil((size - 1) / 2) that there are: ONNX's LRN. PyTorch's
/// window is the same for an odd size; for an even one it lies one channel lower. x [N, C, ...],
/// rank >= 2.
///
/// Errors  x of rank below 2                                Errc::shape_mismatch
///         size below 1                                     Errc::bad_attribute
///         rank above 3, and sizes from axis 2 on not known Errc::unsupported
Tensor local_response_norm(const Tensor& x, std::int64_t size, double alpha = 1e-4,
                           double beta = 0.75, double k = 1,
                           const std::source_location& where = std::source_location::current());

}  // namespace tenon
