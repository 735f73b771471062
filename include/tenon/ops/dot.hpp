#pragma once

#include <tenon/name.hpp>
#include <tenon/shape.hpp>
#include <tenon/tensor.hpp>

#include <initializer_list>
#include <source_location>

namespace tenon {

/// Sum of products over tagged axes: `dot(x, w, "in")` contracts the axis `in` of both operands.
///
/// Axes tagged `contract` are summed over; those tagged `batch` are walked in step. The result has
/// the batch axes in the order given, then the rest of a, then the rest of b, with their tags; a
/// tag that both rests have needs a rename first. Composed of views and one `matmul`, whose dtypes
/// and numerics apply; sizes may be symbolic. Without any axis to contract it is the outer product.
///
/// Errors: an axis that an operand lacks, Errc::axis_out_of_range; one named twice,
/// Errc::bad_argument; sizes that differ, a tag in both rests, Errc::shape_mismatch; a result of
/// more than 8 axes, Errc::bad_shape. The text shows both operands with their tags.
Tensor dot(const Tensor& a, const Tensor& b, Name contract,
           const std::source_location& where = std::source_location::current());
Tensor dot(const Tensor& a, const Tensor& b, std::initializer_list<Name> contract,
           std::initializer_list<Name> batch = {},
           const std::source_location& where = std::source_location::current());

/// Two axes that `dot` brings together, each by index or tag.
struct AxisPair {
  AxisRef a;
  AxisRef b;
};

/// As above for axes without tags, or of different tags: `dot(a, b, {{-1, 0}})`. A batch axis keeps
/// the tag that either operand gives it (Errc::shape_mismatch where both give one and they differ).
Tensor dot(const Tensor& a, const Tensor& b, std::initializer_list<AxisPair> contract,
           std::initializer_list<AxisPair> batch = {},
           const std::source_location& where = std::source_location::current());

}  // namespace tenon
