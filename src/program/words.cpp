#include "program/words.hpp"

#include "program/limits.hpp"

#include <tenon/op.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tenon {
namespace {

// The Python Language Reference, section 2.3.1; sorted.
constexpr std::array<std::string_view, 36> keywords = {
    "False", "None",  "True",     "_",     "and",    "as",   "assert", "async",  "await",
    "break", "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",
    "for",   "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal",
    "not",   "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};
static_assert(std::ranges::is_sorted(keywords));

constexpr std::array<std::string_view, 8> language = {"Index",  "Scope", "const",  "item",
                                                      "module", "pack",  "repeat", "scope"};
static_assert(std::ranges::is_sorted(language));

}  // namespace

bool is_identifier(std::string_view word) noexcept {
  return !word.empty() && word.size() <= program_limits::name_bytes && is_letter(word[0]) &&
         std::ranges::all_of(word, [](char c) { return is_letter(c) || is_digit(c); });
}

bool is_keyword(std::string_view word) noexcept {
  return std::ranges::binary_search(keywords, word);
}

bool is_language_word(std::string_view word) noexcept {
  return std::ranges::binary_search(language, word);
}

bool is_builtin(std::string_view word) noexcept {
  return is_language_word(word) || find_op(word) != nullptr;
}

}  // namespace tenon
