#pragma once

#include <tenon/attributes.hpp>
#include <tenon/op.hpp>

#include <cstddef>

namespace tenon {

/// Equality of the text form: 0.0 differs from -0.0, and all NaNs are equal.
bool same_attribute(const AttributeValue& a, const AttributeValue& b) noexcept;
bool same_op(const OpInstance& a, const OpInstance& b) noexcept;
/// Equal for ops that same_op() calls equal.
std::size_t hash_op(const OpInstance& op) noexcept;

}  // namespace tenon
