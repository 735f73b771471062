// Pools along one to three axes, composed of pool2d and reductions.
#pragma once

#include <tenon/attributes.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>

namespace tenon {

/// A window along the last one, two or three axes of x [N, C, ...]. Sizes of the result are those
/// of conv2d, axis by axis.
struct PoolOptions {
  IntList kernel{};    ///< as many values as x has axes behind N and C, each at least 1
  IntList stride{};    ///< as many; empty: the kernel
  IntList padding{};   ///< as many, for both sides, or two for each axis: before, after; empty: 0
  IntList dilation{};  ///< max_pool only; empty: 1
  /// Windows that reach beyond the end count too if they begin inside of x or its padding before:
  /// as in PyTorch and ONNX. The sizes of x must be known (Errc::unsupported).
  bool ceil_mode = false;
  /// avg_pool only: divides by all elements of a window on x and its padding, not by those on x.
  bool count_include_pad = false;
};

/// The greatest element of each window; a NaN fills its windows.
///
/// Errors  those of max_pool2d; a kernel of another length than x's axes but two:
///         Errc::bad_attribute. Along three axes D, H and W must be known (Errc::unsupported)
Tensor max_pool(const Tensor& x, const PoolOptions& options,
                const std::source_location& where = std::source_location::current());

/// The mean of each window. Errors as for max_pool; a dilation is Errc::bad_attribute.
Tensor avg_pool(const Tensor& x, const PoolOptions& options,
                const std::source_location& where = std::source_location::current());

/// (sum of |x|^p)^(1/p) over each window, p > 0, where padding counts as 0: ONNX's LpPool. Errors
/// as for avg_pool; another p is Errc::bad_attribute.
Tensor lp_pool(const Tensor& x, double p, const PoolOptions& options,
               const std::source_location& where = std::source_location::current());

/// The mean, or the greatest element, over sizes[i] windows along each of the last axes: window i
/// of `out` along an axis of `in` elements is [floor(i * in / out), ceil((i + 1) * in / out)), as
/// in PyTorch. A size of -1 leaves its axis as it is.
///
/// Errors  no sizes, or more than x has axes; one below 1 but not -1    Errc::bad_attribute
///         an axis whose size is not known                              Errc::unsupported
///         an axis of size 0                                            Errc::bad_shape
Tensor adaptive_avg_pool(const Tensor& x, const IntList& sizes,
                         const std::source_location& where = std::source_location::current());
Tensor adaptive_max_pool(const Tensor& x, const IntList& sizes,
                         const std::source_location& where = std::source_location::current());

/// The mean, or the greatest element, over all axes behind N and C, which are kept with size 1.
/// Errc::shape_mismatch for x of rank below 3.
Tensor global_avg_pool(const Tensor& x,
                       const std::source_location& where = std::source_location::current());
Tensor global_max_pool(const Tensor& x,
                       const std::source_location& where = std::source_location::current());

}  // namespace tenon
