#pragma once

#include <string_view>

namespace tenon {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
/// Of a word: [A-Za-z_].
constexpr bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// [A-Za-z_][A-Za-z0-9_]*, at most 255 bytes.
bool is_identifier(std::string_view word) noexcept;

/// Python's keywords and `_`, which no value, function or size may be called.
bool is_keyword(std::string_view word) noexcept;

/// A word of the language that is no op: const, pack, ...
bool is_language_word(std::string_view word) noexcept;

/// Reserved names of functions: ops and the words of the language (const, pack, ...).
bool is_builtin(std::string_view word) noexcept;

}  // namespace tenon
