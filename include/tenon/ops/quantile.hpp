#pragma once

#include <tenon/axis_list.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>

namespace tenon {

/// What a quantile is whose place falls between two of the sorted elements.
enum class QuantileMethod : std::uint8_t {
  linear,    ///< between them, as near as the place is
  lower,     ///< the smaller one
  higher,    ///< the larger one
  nearest,   ///< the nearer one; of places in the middle, the one with the even number
  midpoint,  ///< their mean
};

struct QuantileOptions {
  QuantileMethod method = QuantileMethod::linear;
  bool keep_dims = false;
  bool ignore_nan = false;  ///< quantiles of the elements that are no NaN: numpy.nanquantile
};

/// The element at place q (n - 1) of the n elements of `axes`, sorted: numpy.quantile. A NaN among them
/// makes it NaN, or, where they are ignored, only when all are. Halves are computed in f32. The
/// gradient goes to the elements that are read.
///
/// Errors    x not floating                                Errc::unsupported_dtype
///           q outside [0, 1]                              Errc::bad_argument
///           a reduced axis of size 0                      Errc::bad_shape
Tensor quantile(const Tensor& x, double q, const AxisList& axes = {},
                const QuantileOptions& options = {},
                const std::source_location& where = std::source_location::current());

/// Several, along a new first axis, of one sort.
Tensor quantile(const Tensor& x, std::span<const double> q, const AxisList& axes = {},
                const QuantileOptions& options = {},
                const std::source_location& where = std::source_location::current());

/// quantile of 1/2: of an even number of elements the mean of the two in the middle, as in NumPy
/// (PyTorch takes the lower one: QuantileMethod::lower).
Tensor median(const Tensor& x, const AxisList& axes = {}, const QuantileOptions& options = {},
              const std::source_location& where = std::source_location::current());

}  // namespace tenon
