// Methods, filters and tests of Jinja's values.
#include "base/utf8.hpp"
#include "jinja.hpp"
#include "unicode.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include <fmt/format.h>

namespace tenon::text::jinja {
namespace {

constexpr std::int64_t max_width = 100'000;  // of indents and the like

bool is_space(char32_t c) { return has(c, trait_space) || (c >= 0x1C && c <= 0x1F); }

[[noreturn]] void refuse_undefined(const Value& value) {
  refuse(fmt::format("{} is undefined", value.as<Undefined>()->name));
}

const Value* argument(const Arguments& arguments, std::size_t index, std::string_view name) {
  if (index < arguments.values.size()) return &arguments.values[index];
  const auto found =
      std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
  return found == arguments.named.end() ? nullptr : &found->second;
}

Text text_argument(const Arguments& arguments, std::size_t index, std::string_view name) {
  const Value* const value = argument(arguments, index, name);
  if (value == nullptr || value->text() == nullptr) {
    refuse(fmt::format("'{}' is no text, but {}", name,
                       value == nullptr ? "missing" : value->type_name()));
  }
  return *value->text();
}

std::optional<Text> optional_text(const Arguments& arguments, std::size_t index,
                                  std::string_view name) {
  const Value* const value = argument(arguments, index, name);
  if (value == nullptr || value->is_none()) return std::nullopt;
  return text_argument(arguments, index, name);
}

std::int64_t integer_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                              std::int64_t otherwise) {
  const Value* const value = argument(arguments, index, name);
  if (value == nullptr || value->is_none()) return otherwise;
  if (!value->is_integer())
    refuse(fmt::format("'{}' is no integer, but {}", name, value->type_name()));
  return value->integer();
}

std::int64_t width_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                            std::int64_t otherwise) {
  const std::int64_t width = integer_argument(arguments, index, name, otherwise);
  if (width < 0 || width > max_width) refuse(fmt::format("'{}' is {}", name, width));
  return width;
}

bool flag_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                   bool otherwise = false) {
  const Value* const value = argument(arguments, index, name);
  return value == nullptr ? otherwise : value->is_true();
}

// Texts.

enum Sides : unsigned { left_side = 1, right_side = 2 };

/// Python's strip(): of blanks, or of these characters.
Text stripped(const Text& text, const std::optional<Text>& characters, unsigned sides) {
  const auto is_stripped = [&](std::string_view one, char32_t value) {
    return characters ? characters->bytes.find(one) != std::string::npos : is_space(value);
  };
  const std::string_view bytes = text.bytes;
  std::size_t begin = 0, end = bytes.size();
  if ((sides & left_side) != 0) {
    while (begin < end) {
      const CodePoint c = code_point_at(bytes, begin);
      if (!is_stripped(bytes.substr(begin, c.length), c.value)) break;
      begin += c.length;
    }
  }
  if ((sides & right_side) != 0) {
    end = begin;
    for (std::size_t i = begin; i < bytes.size();) {
      const CodePoint c = code_point_at(bytes, i);
      i += c.length;
      if (!is_stripped(bytes.substr(i - c.length, c.length), c.value)) end = i;
    }
  }
  return part_of(text, begin, end);
}

Text replaced(const Text& text, const Text& from, const Text& to, std::int64_t most) {
  Text out;
  std::size_t at = 0;
  if (most < 0) most = std::numeric_limits<std::int64_t>::max();
  const auto check = [&] {
    if (out.bytes.size() > (std::size_t{1} << 26)) refuse("a text that becomes too long");
  };
  if (from.bytes.empty()) {
    for (const std::size_t place : character_places(text.bytes)) {
      append(out, part_of(text, at, place));
      at = place;
      if (most-- > 0) append(out, to);
      check();
    }
    append(out, part_of(text, at, text.bytes.size()));
    return out;
  }
  for (std::size_t found = text.bytes.find(from.bytes); found != std::string::npos && most-- > 0;
       found = text.bytes.find(from.bytes, at)) {
    append(out, part_of(text, at, found));
    append(out, to);
    check();
    at = found + from.bytes.size();
  }
  append(out, part_of(text, at, text.bytes.size()));
  return out;
}

/// Where the words of a text are: what has blanks around it.
std::vector<TextRange> words_of(const Text& text) {
  std::vector<TextRange> words;
  bool is_in_word = false;
  for (std::size_t i = 0; i < text.bytes.size();) {
    const CodePoint c = code_point_at(text.bytes, i);
    const bool was_in_word = std::exchange(is_in_word, !is_space(c.value));
    if (is_in_word && !was_in_word) words.push_back({i, i});
    i += c.length;
    if (is_in_word) words.back().end = i;
  }
  return words;
}

Value split(const Text& text, const std::optional<Text>& separator, std::int64_t most) {
  std::vector<Value> parts;
  if (most < 0) most = std::numeric_limits<std::int64_t>::max();
  std::size_t at = 0;
  if (separator) {
    if (separator->bytes.empty()) refuse("split() by an empty text");
    for (std::size_t found = text.bytes.find(separator->bytes);
         found != std::string::npos && most-- > 0; found = text.bytes.find(separator->bytes, at)) {
      parts.emplace_back(part_of(text, at, found));
      at = found + separator->bytes.size();
    }
    parts.emplace_back(part_of(text, at, text.bytes.size()));
    return Value::list(std::move(parts));
  }
  for (const TextRange& word : words_of(text)) {
    if (most-- == 0) {
      parts.emplace_back(part_of(text, word.begin, text.bytes.size()));
      break;
    }
    parts.emplace_back(part_of(text, word.begin, word.end));
  }
  return Value::list(std::move(parts));
}

/// At most so many last words, behind what is before them.
Value words_from_right(const Text& text, std::int64_t most) {
  const std::vector<TextRange> words = words_of(text);
  const auto first = static_cast<std::size_t>(std::max<std::int64_t>(std::ssize(words) - most, 0));
  std::vector<Value> parts;
  if (first > 0) parts.emplace_back(part_of(text, 0, words[first - 1].end));
  for (std::size_t i = first; i < words.size(); ++i) {
    parts.emplace_back(part_of(text, words[i].begin, words[i].end));
  }
  return Value::list(std::move(parts));
}

Value split_from_right(const Text& text, const std::optional<Text>& separator, std::int64_t most) {
  if (most < 0) return split(text, separator, -1);
  if (!separator) return words_from_right(text, most);
  if (separator->bytes.empty()) refuse("rsplit() by an empty text");
  std::vector<Value> parts;
  std::size_t end = text.bytes.size();
  while (most-- > 0) {
    const std::size_t size = separator->bytes.size();
    const std::size_t found =
        end < size ? std::string::npos : text.bytes.rfind(separator->bytes, end - size);
    if (found == std::string::npos) break;
    parts.emplace_back(part_of(text, found + size, end));
    end = found;
  }
  parts.emplace_back(part_of(text, 0, end));
  std::ranges::reverse(parts);
  return Value::list(std::move(parts));
}

Value lines_of(const Text& text, bool keeps_ends) {
  std::vector<Value> lines;
  std::size_t at = 0;
  const std::string_view bytes = text.bytes;
  while (at < bytes.size()) {
    std::size_t end = std::min(bytes.find_first_of("\n\r\v\f", at), bytes.size());
    std::size_t next = std::min(end + 1, bytes.size());
    if (bytes.substr(end).starts_with("\r\n")) next = end + 2;
    lines.emplace_back(part_of(text, at, keeps_ends ? next : end));
    at = next;
  }
  return Value::list(std::move(lines));
}

char32_t lower_of(char32_t c) {
  std::vector<char32_t> mapped;
  append_lowercase(mapped, c);
  return mapped.size() == 1 ? mapped.front() : c;
}

/// The capital whose lower case it is: they stand near each other.
char32_t upper_of(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  for (const char32_t distance : {32U, 1U, 80U, 48U, 8U, 16U, 7264U}) {
    if (c > distance && c - distance >= 0x80 && lower_of(c - distance) == c) return c - distance;
  }
  return c == 0xFF ? char32_t{0x178} : c;
}

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

Text lower(const Text& text) { return mapped(text, lower_of); }
Text upper(const Text& text) { return mapped(text, upper_of); }

Text capitalized(const Text& text) {
  bool is_first = true;
  return mapped(
      text, [&](char32_t c) { return std::exchange(is_first, false) ? upper_of(c) : lower_of(c); });
}

bool is_letter(char32_t c) { return has(c, trait_letter); }

Text title(const Text& text) {
  bool is_in_word = false;
  return mapped(text, [&](char32_t c) {
    const bool continues = std::exchange(is_in_word, is_letter(c));
    return continues ? lower_of(c) : upper_of(c);
  });
}

/// Jinja's own title: words are what lies between blanks, hyphens and brackets.
Text title_filter(const Text& text) {
  bool is_first = true;
  return mapped(text, [&](char32_t c) {
    const bool ends =
        is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                        std::string_view::npos);
    return std::exchange(is_first, ends) ? upper_of(c) : lower_of(c);
  });
}

Text joined(const std::vector<Value>& items, const Text& separator) {
  Text out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) append(out, separator);
    append(out, to_text(items[i]));
  }
  return out;
}

Text indented(const Text& text, const Text& indent, bool first, bool blank) {
  Text out;
  const std::vector<Value> lines = items_of(lines_of(text, true));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Text& line = *lines[i].text();
    const bool is_blank = line.bytes.find_first_not_of("\r\n") == std::string::npos;
    if (i == 0 ? first : (blank || !is_blank)) append(out, indent);
    append(out, line);
  }
  if (text.bytes.ends_with('\n') && blank) append(out, indent);
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

/// Whether it has letters with a case, and all of them are so.
bool is_upper_case(const Text& text) {
  return upper(text).bytes == text.bytes && lower(text).bytes != text.bytes;
}
bool is_lower_case(const Text& text) {
  return lower(text).bytes == text.bytes && upper(text).bytes != text.bytes;
}

bool has_affix(const Text& text, const Arguments& arguments, bool at_end) {
  const Value* const wanted = argument(arguments, 0, "prefix");
  const auto matches = [&](const Value& one) {
    if (one.text() == nullptr) refuse(fmt::format("an affix that is {}", one.type_name()));
    const std::string& affix = one.text()->bytes;
    return at_end ? text.bytes.ends_with(affix) : text.bytes.starts_with(affix);
  };
  if (wanted == nullptr) refuse("startswith() and endswith() take a text");
  if (wanted->list() != nullptr) return std::ranges::any_of(wanted->list()->items, matches);
  return matches(*wanted);
}

/// Python's str.format(), of fields without a format of their own: {}, {0}, {name}.
Value formatted(const Text& text, const Arguments& a) {
  Text out;
  std::size_t next = 0;
  bool is_numbered = false;
  for (std::size_t i = 0; i < text.bytes.size();) {
    const std::string_view rest = std::string_view(text.bytes).substr(i);
    if (rest.starts_with("{{") || rest.starts_with("}}")) {
      append(out, part_of(text, i, i + 1));
      i += 2;
    } else if (rest.front() == '{') {
      const std::size_t end = rest.find('}');
      if (end == std::string_view::npos) refuse("format() with a '{' that is not closed");
      const std::string_view field = rest.substr(1, end - 1);
      if (field.find_first_of(":!.[") != std::string_view::npos) {
        refuse(fmt::format("format() of '{}'", field));
      }
      const bool is_number =
          std::ranges::all_of(field, [](char c) { return c >= '0' && c <= '9'; }) &&
          field.size() < 6;
      std::size_t index = std::numeric_limits<std::size_t>::max();
      if (is_number) {
        is_numbered = is_numbered || !field.empty();
        if (is_numbered && (field.empty() || next > 0)) refuse("format() with both {} and {0}");
        index =
            field.empty()
                ? next++
                : static_cast<std::size_t>(std::strtol(std::string(field).c_str(), nullptr, 10));
      }
      const Value* const value = argument(a, index, field);
      if (value == nullptr) refuse(fmt::format("format() without a value for '{}'", field));
      append(out, to_text(*value));
      i += end + 1;
    } else {
      const std::size_t end = std::min(rest.find_first_of("{}", 1), rest.size());
      append(out, part_of(text, i, i + end));
      i += end;
    }
  }
  return out;
}

std::int64_t character_index(const Text& text, std::size_t byte) {
  return byte == std::string::npos ? -1
                                   : count_characters(std::string_view(text.bytes).substr(0, byte));
}

/// What is before the separator at `at`, the separator, and what is behind it.
Value parted(const Text& text, const Text& by, std::size_t at, std::vector<Value> otherwise) {
  if (by.bytes.empty() || at == std::string::npos) return Value::list(std::move(otherwise), true);
  return Value::list(
      {part_of(text, 0, at), by, part_of(text, at + by.bytes.size(), text.bytes.size())}, true);
}

using Method = Value (*)(const Text& text, const Arguments& arguments);
constexpr std::size_t any_number = std::numeric_limits<std::size_t>::max();
struct NamedMethod {
  std::string_view name;
  std::size_t most;  // arguments by position: Python's bounds of the part to look at are not known
  Method call;
};
/// Errc::template_error for more arguments than these, which would not be heeded.
void check_count(std::string_view name, const Arguments& arguments, std::size_t most) {
  if (arguments.values.size() <= most) return;
  refuse(fmt::format("{}() with more than {} argument{}", name, most, most == 1 ? "" : "s"));
}
constexpr NamedMethod text_methods[] = {
    {"strip", 1,
     [](const Text& t, const Arguments& a) {
       return Value(stripped(t, optional_text(a, 0, "chars"), left_side | right_side));
     }},
    {"lstrip", 1,
     [](const Text& t, const Arguments& a) {
       return Value(stripped(t, optional_text(a, 0, "chars"), left_side));
     }},
    {"rstrip", 1,
     [](const Text& t, const Arguments& a) {
       return Value(stripped(t, optional_text(a, 0, "chars"), right_side));
     }},
    {"split", 2,
     [](const Text& t, const Arguments& a) {
       return split(t, optional_text(a, 0, "sep"), integer_argument(a, 1, "maxsplit", -1));
     }},
    {"rsplit", 2,
     [](const Text& t, const Arguments& a) {
       return split_from_right(t, optional_text(a, 0, "sep"),
                               integer_argument(a, 1, "maxsplit", -1));
     }},
    {"splitlines", 1,
     [](const Text& t, const Arguments& a) {
       return lines_of(t, flag_argument(a, 0, "keepends"));
     }},
    {"partition", 1,
     [](const Text& t, const Arguments& a) {
       const Text by = text_argument(a, 0, "sep");
       return parted(t, by, t.bytes.find(by.bytes), {t, Text{}, Text{}});
     }},
    {"rpartition", 1,
     [](const Text& t, const Arguments& a) {
       const Text by = text_argument(a, 0, "sep");
       return parted(t, by, t.bytes.rfind(by.bytes), {Text{}, Text{}, t});
     }},
    {"format", any_number, formatted},
    {"replace", 3,
     [](const Text& t, const Arguments& a) {
       return Value(replaced(t, text_argument(a, 0, "old"), text_argument(a, 1, "new"),
                             integer_argument(a, 2, "count", -1)));
     }},
    {"startswith", 1,
     [](const Text& t, const Arguments& a) { return Value(has_affix(t, a, false)); }},
    {"endswith", 1, [](const Text& t, const Arguments& a) { return Value(has_affix(t, a, true)); }},
    {"removeprefix", 1,
     [](const Text& t, const Arguments& a) {
       const Text affix = text_argument(a, 0, "prefix");
       return Value(
           t.bytes.starts_with(affix.bytes) ? part_of(t, affix.bytes.size(), t.bytes.size()) : t);
     }},
    {"removesuffix", 1,
     [](const Text& t, const Arguments& a) {
       const Text affix = text_argument(a, 0, "suffix");
       return Value(
           t.bytes.ends_with(affix.bytes) ? part_of(t, 0, t.bytes.size() - affix.bytes.size()) : t);
     }},
    {"upper", 0, [](const Text& t, const Arguments&) { return Value(upper(t)); }},
    {"lower", 0, [](const Text& t, const Arguments&) { return Value(lower(t)); }},
    {"capitalize", 0, [](const Text& t, const Arguments&) { return Value(capitalized(t)); }},
    {"title", 0, [](const Text& t, const Arguments&) { return Value(title(t)); }},
    {"swapcase", 0,
     [](const Text& t, const Arguments&) {
       return Value(
           mapped(t, [](char32_t c) { return lower_of(c) == c ? upper_of(c) : lower_of(c); }));
     }},
    {"join", 1,
     [](const Text& t, const Arguments& a) {
       if (a.values.empty()) refuse("join() takes a list");
       const std::vector<Value> items = items_of(a.values[0]);
       for (const Value& item : items) {
         if (item.text() == nullptr) refuse(fmt::format("join() of {}", item.type_name()));
       }
       return Value(joined(items, t));
     }},
    {"find", 1,
     [](const Text& t, const Arguments& a) {
       return Value(character_index(t, t.bytes.find(text_argument(a, 0, "sub").bytes)));
     }},
    {"rfind", 1,
     [](const Text& t, const Arguments& a) {
       return Value(character_index(t, t.bytes.rfind(text_argument(a, 0, "sub").bytes)));
     }},
    {"index", 1,
     [](const Text& t, const Arguments& a) {
       const std::size_t at = t.bytes.find(text_argument(a, 0, "sub").bytes);
       if (at == std::string::npos) refuse("index() of a text that does not occur");
       return Value(character_index(t, at));
     }},
    {"rindex", 1,
     [](const Text& t, const Arguments& a) {
       const std::size_t at = t.bytes.rfind(text_argument(a, 0, "sub").bytes);
       if (at == std::string::npos) refuse("rindex() of a text that does not occur");
       return Value(character_index(t, at));
     }},
    {"count", 1,
     [](const Text& t, const Arguments& a) {
       const std::string part = text_argument(a, 0, "sub").bytes;
       if (part.empty()) return Value(count_characters(t.bytes) + 1);
       std::int64_t count = 0;
       for (std::size_t at = t.bytes.find(part); at != std::string::npos;
            at = t.bytes.find(part, at + part.size()))
         ++count;
       return Value(count);
     }},
    {"isdigit", 0,
     [](const Text& t, const Arguments&) {
       return Value(all_characters(t, [](char32_t c) { return c >= '0' && c <= '9'; }));
     }},
    {"isnumeric", 0,
     [](const Text& t, const Arguments&) {
       return Value(all_characters(t, [](char32_t c) { return has(c, trait_number); }));
     }},
    {"isalpha", 0,
     [](const Text& t, const Arguments&) { return Value(all_characters(t, is_letter)); }},
    {"isalnum", 0,
     [](const Text& t, const Arguments&) {
       return Value(
           all_characters(t, [](char32_t c) { return has(c, trait_letter | trait_number); }));
     }},
    {"isspace", 0,
     [](const Text& t, const Arguments&) { return Value(all_characters(t, is_space)); }},
    {"isupper", 0, [](const Text& t, const Arguments&) { return Value(is_upper_case(t)); }},
    {"islower", 0, [](const Text& t, const Arguments&) { return Value(is_lower_case(t)); }},
    {"zfill", 1,
     [](const Text& t, const Arguments& a) {
       const std::int64_t missing = width_argument(a, 0, "width", 0) - count_characters(t.bytes);
       const bool is_signed = t.bytes.starts_with('-') || t.bytes.starts_with('+');
       Text out = part_of(t, 0, is_signed ? 1 : 0);
       append(out, std::string(static_cast<std::size_t>(std::max<std::int64_t>(missing, 0)), '0'));
       append(out, part_of(t, is_signed ? 1 : 0, t.bytes.size()));
       return Value(out);
     }},
};

Value no_attribute(const Value& value, std::string_view name) {
  return Value::undefined(fmt::format("'{}' of {}", name, value.type_name()));
}

Value method_of_dict(const Value& value, std::string_view name) {
  const auto make = [&](auto call) {
    return Value(Function{std::string(name),
                          [value, call](const Arguments& a) { return call(*value.dict(), a); }});
  };
  if (name == "get") {
    return make([](const Dict& dict, const Arguments& a) {
      if (a.values.empty()) refuse("get() takes a key");
      const Value* const found = dict.find(a.values[0]);
      if (found != nullptr) return *found;
      const Value* const otherwise = argument(a, 1, "default");
      return otherwise == nullptr ? Value(nullptr) : *otherwise;
    });
  }
  const bool wants_keys = name != "values", wants_values = name != "keys";
  if (name != "items" && name != "keys" && name != "values" && name != "copy") return {};
  if (name == "copy")
    return make([](const Dict& dict, const Arguments&) { return Value::dict(dict.entries); });
  return make([wants_keys, wants_values](const Dict& dict, const Arguments&) {
    std::vector<Value> items;
    for (const Entry& entry : dict.entries) {
      items.push_back(wants_keys && wants_values ? Value::list({entry.first, entry.second}, true)
                      : wants_keys               ? entry.first
                                                 : entry.second);
    }
    return Value::list(std::move(items));
  });
}

Value method_of_list(const Value& value, std::string_view name) {
  if (name == "append" || name == "extend" || name == "insert" || name == "pop" ||
      name == "remove" || name == "sort" || name == "reverse" || name == "clear") {
    refuse(fmt::format("{}() changes a list, which the sandbox does not allow", name));
  }
  if (name != "index" && name != "count") return {};
  const bool counts = name == "count";
  return Function{std::string(name), [value, counts](const Arguments& a) {
                    if (a.values.empty()) refuse("index() and count() take a value");
                    check_count(counts ? "count" : "index", a, 1);
                    const auto& items = value.list()->items;
                    const auto is_it = [&](const Value& one) {
                      return are_equal(one, a.values[0]);
                    };
                    if (counts)
                      return Value(static_cast<std::int64_t>(std::ranges::count_if(items, is_it)));
                    const auto found = std::ranges::find_if(items, is_it);
                    if (found == items.end()) refuse("index() of a value that is not in the list");
                    return Value(static_cast<std::int64_t>(found - items.begin()));
                  }};
}

Value attribute_of_loop(const Value& value, std::string_view name) {
  const Loop& loop = *value.loop();
  const auto count = static_cast<std::int64_t>(loop.items->items.size());
  const auto item_at = [&](std::int64_t index) {
    if (index < 0 || index >= count) return Value::undefined("an item beyond the loop's");
    return loop.items->items[static_cast<std::size_t>(index)];
  };
  if (name == "index") return loop.index + 1;
  if (name == "index0") return loop.index;
  if (name == "revindex") return count - loop.index;
  if (name == "revindex0") return count - loop.index - 1;
  if (name == "first") return loop.index == 0;
  if (name == "last") return loop.index == count - 1;
  if (name == "length") return count;
  if (name == "depth") return std::int64_t{1};  // of `recursive` loops, which are refused
  if (name == "depth0") return std::int64_t{0};
  if (name == "previtem") return item_at(loop.index - 1);
  if (name == "nextitem") return item_at(loop.index + 1);
  if (name == "cycle") {
    return Function{
        "cycle", [value](const Arguments& a) {
          if (a.values.empty()) refuse("cycle() takes values");
          return a.values[static_cast<std::size_t>(value.loop()->index) % a.values.size()];
        }};
  }
  if (name == "changed") {
    return Function{"changed", [value](const Arguments& a) {
                      const Value now = Value::list(a.values, true);
                      Loop& of = *value.loop();
                      const bool is_other = !of.has_changed || !are_equal(of.last_changed, now);
                      of.has_changed = true;
                      of.last_changed = now;
                      return Value(is_other);
                    }};
  }
  return Value::undefined(fmt::format("'loop.{}'", name));
}

// Filters.

/// Of what select, map and the like take: nothing of a value that is false.
std::vector<Value> items_if_true(const Value& value) {
  return value.is_true() ? items_of(value) : std::vector<Value>();
}

/// The value at a path of attributes, "a.b.0".
Value at_path(const Value& value, const Value& path) {
  if (path.is_integer()) return item_of(value, path);
  if (path.text() == nullptr) refuse(fmt::format("an attribute that is {}", path.type_name()));
  Value at = value;
  std::string_view rest = path.text()->bytes;
  while (true) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    const bool is_number =
        !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    if (is_number && name.size() < 10) {
      at = item_of(at,
                   static_cast<std::int64_t>(std::strtol(std::string(name).c_str(), nullptr, 10)));
    } else {
      at = item_of(at, Value::of(name));
    }
    if (name.size() == rest.size()) return at;
    rest.remove_prefix(name.size() + 1);
  }
}

Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.values.erase(rest.values.begin(), rest.values.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                   count, rest.values.size())));
  return rest;
}

Value map_filter(const Value& value, const Arguments& a) {
  std::vector<Value> out;
  if (const Value* const path = argument(a, std::numeric_limits<std::size_t>::max(), "attribute")) {
    const Value* const otherwise = argument(a, std::numeric_limits<std::size_t>::max(), "default");
    for (const Value& item : items_if_true(value)) {
      Value found = at_path(item, *path);
      out.push_back(found.is_undefined() && otherwise != nullptr ? *otherwise : std::move(found));
    }
    return Value::list(std::move(out));
  }
  const std::string name = text_argument(a, 0, "filter").bytes;
  const Filter filter = find_filter(name);
  if (filter == nullptr) refuse(fmt::format("no filter '{}'", name));
  const Arguments rest = without_first(a, 1);
  for (const Value& item : items_if_true(value)) out.push_back(filter(item, rest));
  return Value::list(std::move(out));
}

Value selected(const Value& value, const Arguments& a, bool by_attribute, bool is_kept) {
  const std::size_t first = by_attribute ? 1 : 0;
  if (by_attribute && a.values.empty()) refuse("selectattr and rejectattr take an attribute");
  Test test = nullptr;
  if (a.values.size() > first) {
    const std::string name = text_argument(a, first, "test").bytes;
    test = find_test(name);
    if (test == nullptr) refuse(fmt::format("no test '{}'", name));
  }
  const Arguments rest = without_first(a, first + 1);
  std::vector<Value> out;
  for (const Value& item : items_if_true(value)) {
    const Value of = by_attribute ? at_path(item, a.values[0]) : item;
    const bool holds = test == nullptr ? of.is_true() : test(of, rest);
    if (holds == is_kept) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value sort_key(const Value& item, const Value* path, bool is_sensitive) {
  const Value key = path == nullptr ? item : at_path(item, *path);
  if (is_sensitive || key.text() == nullptr) return key;
  return lower(*key.text());
}

/// Of "a,b": by a, and by b where these are equal.
Value sort_key_of_paths(const Value& item, const Value& paths, bool is_sensitive) {
  if (paths.text() == nullptr || paths.text()->bytes.find(',') == std::string::npos) {
    return sort_key(item, &paths, is_sensitive);
  }
  std::vector<Value> keys;
  for (const Value& path : items_of(split(*paths.text(), Text{","}, -1))) {
    keys.push_back(sort_key(item, &path, is_sensitive));
  }
  return Value::list(std::move(keys), true);
}

std::vector<std::size_t> order_of(const std::vector<Value>& keys, bool is_reversed) {
  std::vector<std::size_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t i, std::size_t j) {
    if (are_equal(keys[i], keys[j])) return i < j;  // also of what has no order
    if (is_less(keys[i], keys[j])) return !is_reversed;
    if (is_less(keys[j], keys[i])) return is_reversed;
    return i < j;
  });
  return order;
}

Value sort_filter(const Value& value, const Arguments& a) {
  const bool is_reversed = flag_argument(a, 0, "reverse"),
             is_sensitive = flag_argument(a, 1, "case_sensitive");
  const Value* const path = argument(a, 2, "attribute");
  const std::vector<Value> items = items_of(value);
  std::vector<Value> keys, out;
  for (const Value& item : items) {
    keys.push_back(path == nullptr ? sort_key(item, nullptr, is_sensitive)
                                   : sort_key_of_paths(item, *path, is_sensitive));
  }
  for (const std::size_t i : order_of(keys, is_reversed)) out.push_back(items[i]);
  return Value::list(std::move(out));
}

Value dictsort_filter(const Value& value, const Arguments& a) {
  if (value.dict() == nullptr) refuse(fmt::format("dictsort of {}", value.type_name()));
  const bool is_sensitive = flag_argument(a, 0, "case_sensitive");
  const std::optional<Text> by = optional_text(a, 1, "by");
  const bool by_value = by && by->bytes == "value";
  const auto& entries = value.dict()->entries;
  std::vector<Value> keys, out;
  for (const Entry& entry : entries) {
    keys.push_back(sort_key(by_value ? entry.second : entry.first, nullptr, is_sensitive));
  }
  for (const std::size_t i : order_of(keys, flag_argument(a, 2, "reverse"))) {
    out.push_back(Value::list({entries[i].first, entries[i].second}, true));
  }
  return Value::list(std::move(out));
}

Value unique_filter(const Value& value, const Arguments& a) {
  const bool is_sensitive = flag_argument(a, 0, "case_sensitive");
  const Value* const path = argument(a, 1, "attribute");
  std::vector<Value> seen, out;
  for (const Value& item : items_of(value)) {
    const Value key = sort_key(item, path, is_sensitive);
    if (std::ranges::any_of(seen, [&](const Value& one) { return are_equal(one, key); })) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value extreme(const Value& value, const Arguments& a, bool wants_largest) {
  const bool is_sensitive = flag_argument(a, 0, "case_sensitive");
  const Value* const path = argument(a, 1, "attribute");
  const std::vector<Value> items = items_of(value);
  if (items.empty()) return Value::undefined("the extreme of nothing");
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    const Value one = sort_key(items[i], path, is_sensitive),
                other = sort_key(items[best], path, is_sensitive);
    if (wants_largest ? is_less(other, one) : is_less(one, other)) best = i;
  }
  return items[best];
}

Value groupby_filter(const Value& value, const Arguments& a) {
  const Value* const path = argument(a, 0, "attribute");
  if (path == nullptr) refuse("groupby takes an attribute");
  const std::vector<Value> items = items_of(value);
  std::vector<Value> keys, groups, members;
  for (const Value& item : items) keys.push_back(sort_key(item, path, false));
  const std::vector<std::size_t> order = order_of(keys, false);
  for (std::size_t i = 0; i < order.size(); ++i) {
    members.push_back(items[order[i]]);
    if (i + 1 < order.size() && are_equal(keys[order[i]], keys[order[i + 1]])) continue;
    const Value key = at_path(members.front(), *path);
    groups.push_back(Value::list({key, Value::list(std::exchange(members, {}))}, true));
  }
  return Value::list(std::move(groups));
}

Value sum_filter(const Value& value, const Arguments& a) {
  const Value* const path = argument(a, 0, "attribute");
  const Value* const start = argument(a, 1, "start");
  Value sum = start == nullptr ? Value(std::int64_t{0}) : *start;
  for (const Value& item : items_of(value)) {
    const Value one = path == nullptr ? item : at_path(item, *path);
    if (!one.is_number() || !sum.is_number()) refuse(fmt::format("a sum of {}", one.type_name()));
    std::int64_t both = 0;
    if (one.is_integer() && sum.is_integer() &&
        !__builtin_add_overflow(one.integer(), sum.integer(), &both)) {
      sum = both;
    } else {
      sum = one.number() + sum.number();
    }
  }
  return sum;
}

Value batch_filter(const Value& value, const Arguments& a) {
  const std::int64_t size = width_argument(a, 0, "linecount", 0);
  const Value* const fill = argument(a, 1, "fill_with");
  if (size == 0) refuse("batch of 0");
  std::vector<Value> out, part;
  for (const Value& item : items_of(value)) {
    part.push_back(item);
    if (static_cast<std::int64_t>(part.size()) == size)
      out.push_back(Value::list(std::exchange(part, {})));
  }
  if (!part.empty()) {
    while (fill != nullptr && static_cast<std::int64_t>(part.size()) < size) part.push_back(*fill);
    out.push_back(Value::list(std::move(part)));
  }
  return Value::list(std::move(out));
}

Value default_filter(const Value& value, const Arguments& a) {
  const bool is_missing =
      value.is_undefined() || (flag_argument(a, 1, "boolean") && !value.is_true());
  if (!is_missing) return value;
  const Value* const otherwise = argument(a, 0, "default_value");
  return otherwise == nullptr ? Value::of("") : *otherwise;
}

Value json_filter(const Value& value, const Arguments& a) {
  if (value.is_undefined()) refuse_undefined(value);
  JsonStyle style;
  style.ensure_ascii = flag_argument(a, std::numeric_limits<std::size_t>::max(), "ensure_ascii");
  style.sort_keys = flag_argument(a, std::numeric_limits<std::size_t>::max(), "sort_keys");
  const Value* const indent = argument(a, 0, "indent");
  if (indent != nullptr && !indent->is_none()) style.indent = width_argument(a, 0, "indent", 0);
  const Value* const separators =
      argument(a, std::numeric_limits<std::size_t>::max(), "separators");
  if (separators != nullptr && !separators->is_none()) {
    const std::vector<Value> both = items_of(*separators);
    if (both.size() != 2) refuse("'separators' are two texts");
    style.item_separator = to_text(both[0]).bytes;
    style.key_separator = to_text(both[1]).bytes;
  }
  return marked(to_json(value, style), has_content(value));
}

Value integer_filter(const Value& value, const Arguments& a) {
  const Value* const given = argument(a, 0, "default");
  const Value otherwise = given == nullptr ? Value(std::int64_t{0}) : *given;
  if (value.is_integer()) return value.integer();
  double number = 0;
  if (value.is_number()) {
    number = value.number();
  } else {
    if (value.text() == nullptr) return otherwise;
    if (integer_argument(a, 1, "base", 10) != 10) refuse("int of a text of another base than 10");
    const std::string text = stripped(*value.text(), std::nullopt, left_side | right_side).bytes;
    char* end = nullptr;
    number = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || text.find_first_of("xXpP") != std::string::npos)
      return otherwise;
  }
  if (!(std::abs(number) < 9e18)) return otherwise;
  return static_cast<std::int64_t>(number);
}

Value real_filter(const Value& value, const Arguments& a) {
  const Value* const given = argument(a, 0, "default");
  const Value otherwise = given == nullptr ? Value(0.0) : *given;
  if (value.is_number()) return value.number();
  if (value.text() == nullptr) return otherwise;
  const std::string text = stripped(*value.text(), std::nullopt, left_side | right_side).bytes;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? otherwise : Value(number);
}

Value round_filter(const Value& value, const Arguments& a) {
  if (!value.is_number()) refuse(fmt::format("round of {}", value.type_name()));
  const std::int64_t digits =
      std::clamp<std::int64_t>(integer_argument(a, 0, "precision", 0), -15, 15);
  const std::optional<Text> method = optional_text(a, 1, "method");
  if (value.is_integer() && !method && digits >= 0) return value.integer();
  const double scale = std::pow(10.0, static_cast<double>(digits)), number = value.number() * scale;
  if (method && method->bytes == "ceil") return std::ceil(number) / scale;
  if (method && method->bytes == "floor") return std::floor(number) / scale;
  return std::nearbyint(number) / scale;
}

Value reverse_filter(const Value& value, const Arguments&) {
  if (const Text* const text = value.text()) {
    const std::vector<std::size_t> places = character_places(text->bytes);
    Text out;
    for (std::size_t i = places.size() - 1; i > 0; --i)
      append(out, part_of(*text, places[i - 1], places[i]));
    return out;
  }
  std::vector<Value> items = items_of(value);
  std::ranges::reverse(items);
  return Value::list(std::move(items));
}

Value join_filter(const Value& value, const Arguments& a) {
  const Value* const separator = argument(a, 0, "d");
  const Value* const path = argument(a, 1, "attribute");
  std::vector<Value> items = items_of(value);
  for (Value& item : items) {
    if (path != nullptr) item = at_path(item, *path);
  }
  return joined(items, separator == nullptr ? Text{} : to_text(*separator));
}

Value indent_filter(const Value& value, const Arguments& a) {
  const Value* const width = argument(a, 0, "width");
  Text indent{std::string(4, ' ')};
  if (width != nullptr && width->text() != nullptr) {
    indent = *width->text();
  } else if (width != nullptr) {
    indent = Text{std::string(static_cast<std::size_t>(width_argument(a, 0, "width", 4)), ' ')};
  }
  return indented(to_text(value), indent, flag_argument(a, 1, "first"),
                  flag_argument(a, 2, "blank"));
}

Value truncate_filter(const Value& value, const Arguments& a) {
  if (value.text() == nullptr) return value;
  const Text& text = *value.text();
  const std::int64_t length = width_argument(a, 0, "length", 255);
  const Text end = optional_text(a, 2, "end").value_or(Text{"..."});
  const std::int64_t leeway = integer_argument(a, 3, "leeway", 5);
  const std::vector<std::size_t> places = character_places(text.bytes);
  if (static_cast<std::int64_t>(places.size()) - 1 <= length + leeway) return text;
  const std::int64_t kept = length - count_characters(end.bytes);
  if (kept < 0) refuse("truncate to less than its end");
  Text out = part_of(text, 0, places[static_cast<std::size_t>(kept)]);
  if (!flag_argument(a, 1, "killwords")) {
    const std::size_t space = out.bytes.rfind(' ');
    if (space != std::string::npos) out = part_of(out, 0, space);
  }
  append(out, end);
  return out;
}

Value escape_filter(const Value& value, const Arguments&) {
  Text out = to_text(value);
  static constexpr std::pair<std::string_view, std::string_view> escapes[] = {
      {"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  for (const auto& [from, to] : escapes) {
    out = replaced(out, Text{std::string(from)}, marked(std::string(to), out.has_content()), -1);
  }
  return out;
}

/// Runs of letters, digits and "_".
std::int64_t count_words(const Text& text) {
  std::int64_t count = 0;
  bool is_in_word = false;
  for (std::size_t i = 0; i < text.bytes.size();) {
    const CodePoint c = code_point_at(text.bytes, i);
    const bool continues =
        std::exchange(is_in_word, c.value == '_' || has(c.value, trait_letter | trait_number));
    if (is_in_word && !continues) ++count;
    i += c.length;
  }
  return count;
}

Value length_filter(const Value& value, const Arguments&) { return length_of(value); }

struct NamedFilter {
  std::string_view name;
  Filter filter;
};
constexpr NamedFilter all_filters[] = {
    {"abs",
     [](const Value& v, const Arguments&) {
       if (!v.is_number()) refuse(fmt::format("abs of {}", v.type_name()));
       if (v.is_integer()) return Value(std::abs(v.integer()));
       return Value(std::abs(v.number()));
     }},
    {"attr",
     [](const Value& v, const Arguments& a) {
       const std::string name = text_argument(a, 0, "name").bytes;
       if (v.dict() == nullptr || v.dict()->is_namespace) return attribute_of(v, name);
       // Not the items of a dictionary, which v.name also finds.
       const Value method = method_of_dict(v, name);
       return method.is_undefined() ? no_attribute(v, name) : method;
     }},
    {"batch", batch_filter},
    {"capitalize", [](const Value& v, const Arguments&) { return Value(capitalized(to_text(v))); }},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"first",
     [](const Value& v, const Arguments&) {
       const std::vector<Value> items = items_of(v);
       return items.empty() ? Value::undefined("the first of nothing") : items.front();
     }},
    {"float", real_filter},
    {"from_json",
     [](const Value& v, const Arguments&) {
       const Text text = to_text(v);
       return from_json(text.bytes, text.has_content());
     }},
    {"groupby", groupby_filter},
    {"indent", indent_filter},
    {"int", integer_filter},
    {"items",
     [](const Value& v, const Arguments& a) {
       if (v.is_undefined()) return Value::list({});
       if (v.dict() == nullptr) refuse(fmt::format("items of {}", v.type_name()));
       return method_of_dict(v, "items").function()->call(a);
     }},
    {"join", join_filter},
    {"last",
     [](const Value& v, const Arguments&) {
       const std::vector<Value> items = items_of(v);
       return items.empty() ? Value::undefined("the last of nothing") : items.back();
     }},
    {"length", length_filter},
    {"list", [](const Value& v, const Arguments&) { return Value::list(items_of(v)); }},
    {"lower", [](const Value& v, const Arguments&) { return Value(lower(to_text(v))); }},
    {"map", map_filter},
    {"max", [](const Value& v, const Arguments& a) { return extreme(v, a, true); }},
    {"min", [](const Value& v, const Arguments& a) { return extreme(v, a, false); }},
    {"reject", [](const Value& v, const Arguments& a) { return selected(v, a, false, false); }},
    {"rejectattr", [](const Value& v, const Arguments& a) { return selected(v, a, true, false); }},
    {"replace",
     [](const Value& v, const Arguments& a) {
       return Value(replaced(to_text(v), text_argument(a, 0, "old"), text_argument(a, 1, "new"),
                             integer_argument(a, 2, "count", -1)));
     }},
    {"reverse", reverse_filter},
    {"round", round_filter},
    {"safe", [](const Value& v,
                const Arguments&) { return v.is_undefined() ? Value::of("") : Value(to_text(v)); }},
    {"select", [](const Value& v, const Arguments& a) { return selected(v, a, false, true); }},
    {"selectattr", [](const Value& v, const Arguments& a) { return selected(v, a, true, true); }},
    {"sort", sort_filter},
    {"string", [](const Value& v, const Arguments&) { return Value(to_text(v)); }},
    {"sum", sum_filter},
    {"title", [](const Value& v, const Arguments&) { return Value(title_filter(to_text(v))); }},
    {"tojson", json_filter},
    {"trim",
     [](const Value& v, const Arguments& a) {
       return Value(stripped(to_text(v), optional_text(a, 0, "chars"), left_side | right_side));
     }},
    {"truncate", truncate_filter},
    {"unique", unique_filter},
    {"upper", [](const Value& v, const Arguments&) { return Value(upper(to_text(v))); }},
    {"wordcount", [](const Value& v, const Arguments&) { return Value(count_words(to_text(v))); }},
};

// Tests.

const Value& other_of(const Arguments& a) {
  if (a.values.empty()) refuse("a test without the value to compare with");
  return a.values[0];
}
std::int64_t integer_of(const Value& value) {
  if (!value.is_integer()) refuse(fmt::format("a test of integers, with {}", value.type_name()));
  return value.integer();
}
/// As Python's %, whose sign follows the divisor.
double remainder_of(const Value& value, std::int64_t by) {
  if (!value.is_number()) refuse(fmt::format("a test of numbers, with {}", value.type_name()));
  const auto divisor = static_cast<double>(by);
  if (!value.is_integer()) return value.number() - divisor * std::floor(value.number() / divisor);
  return static_cast<double>(((value.integer() % by) + by) % by);
}
bool is_equal_test(const Value& v, const Arguments& a) { return are_equal(v, other_of(a)); }
bool is_unequal_test(const Value& v, const Arguments& a) { return !are_equal(v, other_of(a)); }
bool is_less_test(const Value& v, const Arguments& a) { return is_less(v, other_of(a)); }
bool is_greater_test(const Value& v, const Arguments& a) { return is_less(other_of(a), v); }
bool is_most_test(const Value& v, const Arguments& a) { return !is_less(other_of(a), v); }
bool is_least_test(const Value& v, const Arguments& a) { return !is_less(v, other_of(a)); }
bool is_sequence(const Value& v, const Arguments&) {
  return v.text() != nullptr || v.list() != nullptr ||
         (v.dict() != nullptr && !v.dict()->is_namespace) || v.is_undefined();
}

struct NamedTest {
  std::string_view name;
  Test test;
};
constexpr NamedTest all_tests[] = {
    {"boolean", [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr; }},
    {"callable", [](const Value& v, const Arguments&) { return v.function() != nullptr; }},
    {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
    {"divisibleby",
     [](const Value& v, const Arguments& a) {
       const std::int64_t by = integer_of(other_of(a));
       if (by == 0) refuse("division by zero");
       return by == -1 || remainder_of(v, by) == 0;
     }},
    {"eq", is_equal_test},
    {"==", is_equal_test},
    {"equalto", is_equal_test},
    {"even", [](const Value& v, const Arguments&) { return remainder_of(v, 2) == 0; }},
    {"false",
     [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr && !*v.as<bool>(); }},
    {"filter",
     [](const Value& v, const Arguments&) {
       return v.text() != nullptr && find_filter(v.text()->bytes) != nullptr;
     }},
    {"float", [](const Value& v, const Arguments&) { return v.as<double>() != nullptr; }},
    {"ge", is_least_test},
    {">=", is_least_test},
    {"greaterthan", is_greater_test},
    {"gt", is_greater_test},
    {">", is_greater_test},
    {"in", [](const Value& v, const Arguments& a) { return is_in(v, other_of(a)); }},
    {"integer", [](const Value& v, const Arguments&) { return v.as<std::int64_t>() != nullptr; }},
    {"iterable", is_sequence},
    {"le", is_most_test},
    {"<=", is_most_test},
    {"lessthan", is_less_test},
    {"lower", [](const Value& v, const Arguments&) { return is_lower_case(to_text(v)); }},
    {"lt", is_less_test},
    {"<", is_less_test},
    {"mapping", [](const Value& v,
                   const Arguments&) { return v.dict() != nullptr && !v.dict()->is_namespace; }},
    {"ne", is_unequal_test},
    {"!=", is_unequal_test},
    {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
    {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
    {"odd", [](const Value& v, const Arguments&) { return remainder_of(v, 2) == 1; }},
    {"sameas",
     [](const Value& v, const Arguments& a) {
       return v.type_name() == other_of(a).type_name() && are_equal(v, other_of(a));
     }},
    {"sequence", is_sequence},
    {"string", [](const Value& v, const Arguments&) { return v.text() != nullptr; }},
    {"test",
     [](const Value& v, const Arguments&) {
       return v.text() != nullptr && find_test(v.text()->bytes) != nullptr;
     }},
    {"true",
     [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr && *v.as<bool>(); }},
    {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
    {"upper", [](const Value& v, const Arguments&) { return is_upper_case(to_text(v)); }},
};

}  // namespace

Text percent_format(const Text& text, const Value& value) {
  const bool is_tuple = value.list() != nullptr && value.list()->is_tuple;
  const std::vector<Value> values = is_tuple ? value.list()->items : std::vector<Value>{value};
  std::size_t next = 0;
  Text out;
  for (std::size_t i = 0; i < text.bytes.size();) {
    if (text.bytes[i] != '%') {
      const std::size_t end = std::min(text.bytes.find('%', i), text.bytes.size());
      append(out, part_of(text, i, end));
      i = end;
      continue;
    }
    const char kind = i + 1 < text.bytes.size() ? text.bytes[i + 1] : ' ';
    i += 2;
    if (kind == '%') {
      append(out, "%");
      continue;
    }
    const bool is_number = kind == 'd' || kind == 'i';
    if (kind != 's' && !is_number) refuse(fmt::format("the format '%{}'", kind));
    if (next == values.size()) refuse("fewer values than a format has places");
    const Value& one = values[next++];
    if (is_number && !one.is_integer())
      refuse(fmt::format("the format '%{}' of {}", kind, one.type_name()));
    append(out, to_text(one));
  }
  const bool may_be_unused =
      value.is_undefined() || value.dict() != nullptr || (value.list() != nullptr && !is_tuple);
  if (next < values.size() && !may_be_unused) refuse("more values than a format has places");
  return out;
}

Filter find_filter(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(all_filters, name, &NamedFilter::name);
  return found == std::end(all_filters) ? nullptr : found->filter;
}

Test find_test(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(all_tests, name, &NamedTest::name);
  return found == std::end(all_tests) ? nullptr : found->test;
}

Value attribute_of(const Value& value, std::string_view name) {
  if (value.is_undefined()) refuse_undefined(value);
  if (value.text() != nullptr) {
    const auto* const found = std::ranges::find(text_methods, name, &NamedMethod::name);
    if (found != std::end(text_methods)) {
      return Function{std::string(name), [value, found](const Arguments& a) {
                        check_count(found->name, a, found->most);
                        return found->call(*value.text(), a);
                      }};
    }
  } else if (value.dict() != nullptr) {
    if (!value.dict()->is_namespace) {
      Value method = method_of_dict(value, name);
      if (!method.is_undefined()) return method;
    }
    if (const Value* const found = value.dict()->find(name)) return *found;
  } else if (value.list() != nullptr) {
    Value method = method_of_list(value, name);
    if (!method.is_undefined()) return method;
  } else if (value.loop() != nullptr) {
    return attribute_of_loop(value, name);
  } else if (value.function() != nullptr && name == "name") {
    return Value::of(value.function()->name);
  }
  return no_attribute(value, name);
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) refuse_undefined(value);
  if (key.is_integer() && (value.text() != nullptr || value.list() != nullptr)) {
    const std::vector<std::size_t> places = value.text() == nullptr
                                                ? std::vector<std::size_t>()
                                                : character_places(value.text()->bytes);
    const auto size = static_cast<std::int64_t>(value.text() == nullptr ? value.list()->items.size()
                                                                        : places.size() - 1);
    const std::int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index < 0 || index >= size)
      return Value::undefined(fmt::format("item {} of {}", key.integer(), size));
    const auto at = static_cast<std::size_t>(index);
    if (value.list() != nullptr) return value.list()->items[at];
    return part_of(*value.text(), places[at], places[at + 1]);
  }
  if (value.dict() != nullptr && !value.dict()->is_namespace) {
    if (const Value* const found = value.dict()->find(key)) return *found;
  }
  if (key.text() != nullptr) return attribute_of(value, key.text()->bytes);
  return Value::undefined(fmt::format("an item of {}", value.type_name()));
}

std::vector<Value> items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (value.list() != nullptr) return value.list()->items;
  std::vector<Value> items;
  if (const Text* const text = value.text()) {
    const std::vector<std::size_t> places = character_places(text->bytes);
    for (std::size_t i = 0; i + 1 < places.size(); ++i)
      items.emplace_back(part_of(*text, places[i], places[i + 1]));
    return items;
  }
  if (value.dict() != nullptr && !value.dict()->is_namespace) {
    for (const Entry& entry : value.dict()->entries) items.push_back(entry.first);
    return items;
  }
  refuse(fmt::format("{} has no items", value.type_name()));
}

bool is_in(const Value& item, const Value& container) {
  if (const Text* const text = container.text()) {
    if (item.text() == nullptr)
      refuse(fmt::format("'in' a text wants a text, not {}", item.type_name()));
    return text->bytes.find(item.text()->bytes) != std::string::npos;
  }
  if (container.dict() != nullptr && !container.dict()->is_namespace)
    return container.dict()->find(item) != nullptr;
  return std::ranges::any_of(items_of(container),
                             [&](const Value& one) { return are_equal(one, item); });
}

std::int64_t length_of(const Value& value) {
  if (value.text() != nullptr) return count_characters(value.text()->bytes);
  if (value.list() != nullptr) return static_cast<std::int64_t>(value.list()->items.size());
  if (value.dict() != nullptr && !value.dict()->is_namespace)
    return static_cast<std::int64_t>(value.dict()->entries.size());
  if (value.is_undefined()) return 0;
  refuse(fmt::format("{} has no length", value.type_name()));
}

}  // namespace tenon::text::jinja
