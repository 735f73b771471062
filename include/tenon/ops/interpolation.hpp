#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <optional>
#include <source_location>

namespace tenon {

// Functions that are given by samples, and counts of samples.

/// The line through (xs_i, ys_i) at x: numpy.interp. `xs` ascends; left of it y is `left`, right of it
/// `right`, without these the first and the last of ys. A NaN in x gives NaN.
///
/// Inputs    x: any shape, f32 or f64; xs, ys: [n], n >= 1, of its dtype
/// Errors    another or different dtypes     Errc::unsupported_dtype
///           xs and ys not [n] of one size   Errc::shape_mismatch
Tensor interp(const Tensor& x, const Tensor& xs, const Tensor& ys, std::optional<double> left = {},
              std::optional<double> right = {},
              const std::source_location& where = std::source_location::current());

/// The integral along an axis by the trapezoidal rule: sum of (y_i + y_i+1) / 2 times the distance of
/// their places, which are x's, in the sizes of y or [n], or `step` apart: numpy.trapezoid.
///
/// Errors    y not floating                                  Errc::unsupported_dtype
///           an axis of size 0                               Errc::bad_shape
///           x neither of y's sizes nor [n]                  Errc::shape_mismatch
Tensor trapezoid(const Tensor& y, const Tensor& x = {}, double step = 1, const AxisRef& axis = -1,
                 const std::source_location& where = std::source_location::current());

struct HistogramResult {
  Tensor counts;  ///< [bins]: i64, of weights their dtype, as a density x's
  Tensor edges;   ///< [bins + 1], x's dtype
};

struct HistogramOptions {
  /// The first and the last edge; both 0: the least and the largest element, as in torch.histc. Where
  /// they are equal, 1/2 is taken off and added.
  double low = 0, high = 0;
  Tensor weights{};      ///< in the sizes of x; empty: 1
  bool density = false;  ///< counts by their sum and the width of their bin
};

/// How many elements of x, of any shape, lie in each of `bins` equally wide bins: numpy.histogram. The
/// last bin has both its edges, the others the left one. Elements outside count for nothing, and so
/// does a NaN (where low and high are stated).
///
/// Errors    x neither f32 nor f64            Errc::unsupported_dtype
///           bins below 1, or low > high      Errc::bad_argument
///           weights of other sizes           Errc::shape_mismatch
HistogramResult histogram(const Tensor& x, std::int64_t bins = 10,
                          const HistogramOptions& options = {},
                          const std::source_location& where = std::source_location::current());

/// The same in bins between given edges, [bins + 1], ascending, of x's dtype; `low` and `high` are not
/// used.
HistogramResult histogram(const Tensor& x, const Tensor& edges,
                          const HistogramOptions& options = {},
                          const std::source_location& where = std::source_location::current());

/// The p-norm of the difference of every row of a and every row of b: torch.cdist, and
/// scipy.spatial.distance.cdist. Differences are taken one by one, in memory for P x R x M of them
/// where no backend merges them with the sum, so that near rows keep their distance's digits.
///
/// Inputs    a: [..., P, M]; b: [..., R, M]; floating
/// Output    [..., P, R]
/// Errors    as for norm and sub; rank below 2   Errc::bad_shape
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2,
             const std::source_location& where = std::source_location::current());

/// sum a b / (max(|a|, eps) max(|b|, eps)) along an axis: torch.cosine_similarity.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, const AxisRef& axis = -1,
                         double eps = 1e-8,
                         const std::source_location& where = std::source_location::current());

}  // namespace tenon
