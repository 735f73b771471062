#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace tenon {

/// Parses JSON that a stranger wrote (RFC 8259, one value, no comments).
///
/// `where` names the text in errors, usually its file.
/// Errors: syntax (with line:column, also for invalid UTF-8 and numbers out of range),
/// duplicate_name (a key twice in one object), depth_limit (nesting beyond 512).
nlohmann::json parse_strict_json(std::string_view text, std::string_view where);

}  // namespace tenon
