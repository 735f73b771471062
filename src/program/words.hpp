#pragma once

#include <string_view>

namespace tenon {

/// [A-Za-z_][A-Za-z0-9_]*, at most 255 bytes.
bool is_identifier(std::string_view word) noexcept;

/// Python's keywords and `_`, which no value, function or size may be called.
bool is_keyword(std::string_view word) noexcept;

/// What a program's functions may not be called: ops and the words of the language (const, pack,
/// ...).
bool is_builtin(std::string_view word) noexcept;

/// Well-formed UTF-8, which string literals hold.
bool is_utf8(std::string_view text) noexcept;

}  // namespace tenon
