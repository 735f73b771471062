#pragma once

#include <tenon/attributes.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace tenon {

/// The shortest decimal that reads back as the same double, spelled as Python's repr spells it:
/// 1e-05, 10000.0, -0.0, and nan, inf, -inf. Every NaN is nan.
std::string real_literal(double value);

/// A double-quoted string in Python's spelling; `text` is UTF-8.
std::string string_literal(std::string_view text);

/// Any attribute: 3, 0.5, True, "silu", "f16", [0, 2, 1].
std::string literal(const AttributeValue& value);

/// The text of a string literal, given what stands between its quotes; nothing when an escape is
/// wrong.
std::optional<std::string> unescape(std::string_view body);

}  // namespace tenon
