// What methods, filters and tests of Jinja's values have in common.
#pragma once

#include "base/utf8.hpp"
#include "jinja.hpp"
#include "unicode.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tenon::text::jinja {

// Arguments of calls, by position or by name. Errors: template_error for those of other types.

constexpr std::int64_t max_width = 100'000;  // of indents and the like

[[noreturn]] void refuse_undefined(const Value& value);
/// Null where it is missing.
const Value* argument(const Arguments& arguments, std::size_t index, std::string_view name);
Text text_argument(const Arguments& arguments, std::size_t index, std::string_view name);
std::optional<Text> optional_text(const Arguments& arguments, std::size_t index,
                                  std::string_view name);
std::int64_t integer_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                              std::int64_t otherwise);
/// From 0 to max_width.
std::int64_t width_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                            std::int64_t otherwise);
bool flag_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                   bool otherwise = false);

// Texts, as Python's str changes them.

bool is_space(char32_t c);
bool is_letter(char32_t c);
char32_t lower_of(char32_t c);
/// The capital whose lower case it is: they stand near each other.
char32_t upper_of(char32_t c);

enum Sides : unsigned { left_side = 1, right_side = 2, both_sides = 3 };
/// Without blanks, or these characters.
Text stripped(const Text& text, const std::optional<Text>& characters, unsigned sides);
/// Negative `most`: all.
Text replaced(const Text& text, const Text& from, const Text& to, std::int64_t most);
Value split(const Text& text, const std::optional<Text>& separator, std::int64_t most);
Value split_from_right(const Text& text, const std::optional<Text>& separator, std::int64_t most);
Value lines_of(const Text& text, bool keeps_ends);
Text lower(const Text& text);
Text upper(const Text& text);
Text capitalized(const Text& text);
Text title(const Text& text);
/// Jinja's own title: words are what lies between blanks, hyphens and brackets.
Text title_filter(const Text& text);
/// Whether it has letters with a case, and all of them are so.
bool is_upper_case(const Text& text);
bool is_lower_case(const Text& text);
Text joined(const std::vector<Value>& items, const Text& separator);
Text indented(const Text& text, const Text& indent, bool first, bool blank);
/// Of at least so many characters: `fill` is put before it, behind it, or on both sides.
Text padded(const Text& text, std::int64_t width, std::string_view fill, unsigned sides);
/// Python's str.format(), of fields without a format of their own: {}, {0}, {name}.
Value formatted(const Text& text, const Arguments& arguments);

/// Every character in its place; one of several letters, such as U+00DF, stays.
template <class Map>
Text mapped(const Text& text, const Map& map) {
  Text out;
  std::size_t range = 0;
  for (std::size_t i = 0; i < text.bytes.size();) {
    const CodePoint c = code_point_at(text.bytes, i);
    const std::size_t begin = out.bytes.size();
    if (c.is_valid) {
      append_utf8(out.bytes, map(c.value));
    } else {
      append(out, std::string_view(text.bytes).substr(i, c.length));
    }
    while (range < text.content.size() && text.content[range].end <= i) ++range;
    if (range < text.content.size() && text.content[range].begin <= i) {
      if (out.content.empty() || out.content.back().end != begin)
        out.content.push_back({begin, begin});
      out.content.back().end = out.bytes.size();
    }
    i += c.length;
  }
  return out;
}

template <class Holds>
bool all_characters(const Text& text, const Holds& holds) {
  for (std::size_t i = 0; i < text.bytes.size();) {
    const CodePoint c = code_point_at(text.bytes, i);
    if (!holds(c.value)) return false;
    i += c.length;
  }
  return !text.bytes.empty();
}

// Attributes.

Value no_attribute(const Value& value, std::string_view name);
/// Undefined where there is none of this name.
Value method_of_dict(const Value& value, std::string_view name);

}  // namespace tenon::text::jinja
