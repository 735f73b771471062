#pragma once

#include <tenon/attributes.hpp>
#include <tenon/op.hpp>

namespace tenon {

/// Equal as the text tells them apart: 0.0 is not -0.0, and a NaN is a NaN.
bool same_attribute(const AttributeValue& a, const AttributeValue& b) noexcept;
bool same_op(const OpInstance& a, const OpInstance& b) noexcept;

}  // namespace tenon
