#pragma once

#include <tenon/axis_list.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>

namespace tenon {

// Reductions that are recorded as several ops. `axes`, `keep_dims`, tags and errors of axes are
// those of sum. Halves are computed in f32 and rounded once.

/// log(sum exp(x)), without overflow; -inf where every element is -inf. The gradient is softmax's
/// output, NaN where the result is infinite.
///
/// Errors    x not floating              Errc::unsupported_dtype
///           a reduced axis of size 0    Errc::bad_shape
Tensor logsumexp(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
                 const std::source_location& where = std::source_location::current());

/// sum (x - mean)^2 / max(n - correction, 0), with n the number of elements reduced: numpy.var with
/// ddof = correction. 1 is Bessel's correction, PyTorch's default; 0 is NumPy's. Two passes.
///
/// Errors    x not floating    Errc::unsupported_dtype
Tensor variance(const Tensor& x, const AxisList& axes = {}, double correction = 1,
                bool keep_dims = false,
                const std::source_location& where = std::source_location::current());

/// The square root of the variance; where that is 0, the gradient is 0.
Tensor standard_deviation(const Tensor& x, const AxisList& axes = {}, double correction = 1,
                          bool keep_dims = false,
                          const std::source_location& where = std::source_location::current());

/// (sum |x|^p)^(1/p): torch.linalg.vector_norm. p = inf and -inf give the largest and the smallest
/// |x|, p = 0 the number of elements other than 0. Powers are not scaled: sums of them beyond the
/// type give inf. The gradient at an element of 0 is 0, and so it is where the norm is 0; for
/// p = 0 it is 0 everywhere.
///
/// Errors    x not floating                                         Errc::unsupported_dtype
///           p is a NaN                                             Errc::bad_argument
///           p = inf or -inf, and a reduced axis of size 0          Errc::bad_shape
Tensor norm(const Tensor& x, double p = 2, const AxisList& axes = {}, bool keep_dims = false,
            const std::source_location& where = std::source_location::current());

/// sum and mean of the elements that are no NaN: numpy.nansum and numpy.nanmean. Where every element is
/// one, 0 and NaN. Their gradient at a NaN is 0.
///
/// Errors    x not floating    Errc::unsupported_dtype
Tensor nansum(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
              const std::source_location& where = std::source_location::current());
Tensor nanmean(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
               const std::source_location& where = std::source_location::current());

/// Covariances of variables, the rows of x, over observations, its columns: [V, V]; of a vector, a
/// scalar. Divided by max(n - correction, 0). numpy.cov(x, ddof=correction), torch.cov.
///
/// Errors    x not floating            Errc::unsupported_dtype
///           rank other than 1 or 2    Errc::bad_shape
Tensor cov(const Tensor& x, double correction = 1,
           const std::source_location& where = std::source_location::current());

/// Covariances divided by both standard deviations, limited to [-1, 1]: numpy.corrcoef. Of a variable
/// that does not change NaN. Errors as above.
Tensor corrcoef(const Tensor& x,
                const std::source_location& where = std::source_location::current());

/// The number of elements other than 0, which a NaN is too: i64. x: any plain type.
Tensor count_nonzero(const Tensor& x, const AxisList& axes = {}, bool keep_dims = false,
                     const std::source_location& where = std::source_location::current());

}  // namespace tenon
