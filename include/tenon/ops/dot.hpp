#pragma once

#include <tenon/name.hpp>
#include <tenon/shape.hpp>
#include <tenon/tensor.hpp>

#include <initializer_list>
#include <source_location>
#include <span>

namespace tenon {

/// Sum of products over tagged axes: `dot(x, w, "in")` contracts the axis `in` of both operands.
///
/// Axes tagged `contract` are summed over; axes tagged `batch` are batch axes of both operands. The
/// result has the batch axes in the order given, then the remaining axes of a, then those of b,
/// with their tags. Composed of views and one `matmul`, whose dtypes and numerics apply; sizes may
/// be symbolic. Without an axis to contract it is the outer product.
///
/// Errors  axis_out_of_range  an operand lacks an axis
///         bad_argument       an axis is named twice
///         shape_mismatch     sizes differ, or a remaining axis of a and one of b have the same tag
///         bad_shape          a result of more than 8 axes
/// Messages show both operands with their tags.
Tensor dot(const Tensor& a, const Tensor& b, Name contract,
           const std::source_location& where = std::source_location::current());
Tensor dot(const Tensor& a, const Tensor& b, std::initializer_list<Name> contract,
           std::initializer_list<Name> batch = {},
           const std::source_location& where = std::source_location::current());

/// An axis of a and the axis of b that it is paired with, each by index or tag.
struct AxisPair {
  AxisRef a;
  AxisRef b;
};

/// The same for axes without tags, or of different tags: `dot(a, b, {{-1, 0}})`. A batch axis keeps
/// the tag that either operand gives it (Errc::shape_mismatch if both have one and they differ).
Tensor dot(const Tensor& a, const Tensor& b, std::initializer_list<AxisPair> contract,
           std::initializer_list<AxisPair> batch = {},
           const std::source_location& where = std::source_location::current());
Tensor dot(const Tensor& a, const Tensor& b, std::span<const AxisPair> contract,
           std::span<const AxisPair> batch,
           const std::source_location& where = std::source_location::current());

}  // namespace tenon
