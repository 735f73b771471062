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

std::size_t utf8_end(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<std::uint8_t>(text[i]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC2 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                               : lead < 0xF5 ? 4
                                             : 0;
    if (length == 0 || length > text.size() - i) return i;
    std::uint32_t point = length == 1 ? lead : lead & (0x7Fu >> length);
    for (std::size_t j = 1; j < length; ++j) {
      const auto next = static_cast<std::uint8_t>(text[i + j]);
      if ((next & 0xC0u) != 0x80u) return i;
      point = point << 6 | (next & 0x3Fu);
    }
    const bool too_long = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    if (too_long || surrogate || point > 0x10FFFF) return i;
    i += length;
  }
  return text.size();
}

}  // namespace tenon
