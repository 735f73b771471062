#include "jinja_functions.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

namespace tenon::text::jinja {
namespace {

/// Where the words of a text are: what has blanks around it. Errors: limit_exceeded for more than 4 Mi of them.
std::vector<TextRange> words_of(const Text& text) {
  constexpr std::size_t max_words = std::size_t{1} << 22;
  std::vector<TextRange> words;
  bool is_in_word = false;
  for (std::size_t i = 0; i < text.bytes.size();) {
    const CodePoint c = code_point_at(text.bytes, i);
    const bool was_in_word = std::exchange(is_in_word, !is_space(c.value));
    if (is_in_word && !was_in_word) words.push_back({i, i});
    if (words.size() > max_words) {
      throw Error(Errc::limit_exceeded, "chat template", "a text of more than 4,194,304 words");
    }
    i += c.length;
    if (is_in_word) words.back().end = i;
  }
  return words;
}

/// At most so many last words, behind what is before them.
Value words_from_right(const Text& text, std::int64_t most) {
  const std::vector<TextRange> words = words_of(text);
  const auto first = static_cast<std::size_t>(std::max<std::int64_t>(std::ssize(words) - most, 0));
  ListBuilder parts;
  if (first > 0) parts.add(part_of(text, 0, words[first - 1].end));
  for (std::size_t i = first; i < words.size(); ++i) {
    parts.add(part_of(text, words[i].begin, words[i].end));
  }
  return Value::list(parts.take());
}

struct Line {
  std::size_t end = 0, next = 0;  ///< of what it says, and where the next line begins
};

Line line_at(std::string_view bytes, std::size_t at) {
  const std::size_t end = std::min(bytes.find_first_of("\n\r\v\f", at), bytes.size());
  if (bytes.substr(end).starts_with("\r\n")) return {.end = end, .next = end + 2};
  return {.end = end, .next = std::min(end + 1, bytes.size())};
}

}  // namespace

bool is_space(char32_t c) { return has(c, trait_space) || (c >= 0x1C && c <= 0x1F); }

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
  if (from.bytes.empty()) {
    for (const std::size_t place : character_places(text.bytes)) {
      append(out, part_of(text, at, place));
      at = place;
      if (most-- > 0) append(out, to);
    }
    append(out, part_of(text, at, text.bytes.size()));
    return out;
  }
  for (std::size_t found = text.bytes.find(from.bytes); found != std::string::npos && most-- > 0;
       found = text.bytes.find(from.bytes, at)) {
    append(out, part_of(text, at, found));
    append(out, to);
    at = found + from.bytes.size();
  }
  append(out, part_of(text, at, text.bytes.size()));
  return out;
}

Value split(const Text& text, const std::optional<Text>& separator, std::int64_t most) {
  ListBuilder parts;
  if (most < 0) most = std::numeric_limits<std::int64_t>::max();
  std::size_t at = 0;
  if (separator) {
    if (separator->bytes.empty()) refuse("split() by an empty text");
    for (std::size_t found = text.bytes.find(separator->bytes);
         found != std::string::npos && most-- > 0; found = text.bytes.find(separator->bytes, at)) {
      parts.add(part_of(text, at, found));
      at = found + separator->bytes.size();
    }
    parts.add(part_of(text, at, text.bytes.size()));
    return Value::list(parts.take());
  }
  for (const TextRange& word : words_of(text)) {
    if (most-- == 0) {
      parts.add(part_of(text, word.begin, text.bytes.size()));
      break;
    }
    parts.add(part_of(text, word.begin, word.end));
  }
  return Value::list(parts.take());
}

Value split_from_right(const Text& text, const std::optional<Text>& separator, std::int64_t most) {
  if (most < 0) return split(text, separator, -1);
  if (!separator) return words_from_right(text, most);
  if (separator->bytes.empty()) refuse("rsplit() by an empty text");
  ListBuilder parts;
  std::size_t end = text.bytes.size();
  while (most-- > 0) {
    const std::size_t size = separator->bytes.size();
    const std::size_t found =
        end < size ? std::string::npos : text.bytes.rfind(separator->bytes, end - size);
    if (found == std::string::npos) break;
    parts.add(part_of(text, found + size, end));
    end = found;
  }
  parts.add(part_of(text, 0, end));
  std::vector<Value> in_order = parts.take();
  std::ranges::reverse(in_order);
  return Value::list(std::move(in_order));
}

Value lines_of(const Text& text, bool keeps_ends) {
  ListBuilder lines;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const Line line = line_at(text.bytes, at);
    lines.add(part_of(text, at, keeps_ends ? line.next : line.end));
    at = line.next;
  }
  return Value::list(lines.take());
}

char32_t lower_of(char32_t c) {
  std::vector<char32_t> mapped;
  append_lowercase(mapped, c);
  return mapped.size() == 1 ? mapped.front() : c;
}

char32_t upper_of(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  for (const char32_t distance : {32U, 1U, 80U, 48U, 8U, 16U, 7264U}) {
    if (c > distance && c - distance >= 0x80 && lower_of(c - distance) == c) return c - distance;
  }
  return c == 0xFF ? char32_t{0x178} : c;
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
  for (std::size_t at = 0; at < text.bytes.size();) {
    const std::size_t next = line_at(text.bytes, at).next;
    const Text line = part_of(text, at, next);
    const bool is_blank = line.bytes.find_first_not_of("\r\n") == std::string::npos;
    if (at == 0 ? first : (blank || !is_blank)) append(out, indent);
    append(out, line);
    at = next;
  }
  if (text.bytes.ends_with('\n') && blank) append(out, indent);
  return out;
}

bool is_upper_case(const Text& text) {
  return upper(text).bytes == text.bytes && lower(text).bytes != text.bytes;
}
bool is_lower_case(const Text& text) {
  return lower(text).bytes == text.bytes && upper(text).bytes != text.bytes;
}

Text padded(const Text& text, std::int64_t width, std::string_view fill, unsigned sides) {
  const std::int64_t missing = std::max<std::int64_t>(width - count_characters(text.bytes), 0);
  // Python's center() has the larger half before a text if the width is odd, and behind it if not.
  const std::int64_t half = missing / 2 + (missing & width & 1);
  const std::int64_t before = sides == left_side ? missing : sides == right_side ? 0 : half;
  Text out;
  for (std::int64_t i = 0; i < before; ++i) append(out, fill);
  append(out, text);
  for (std::int64_t i = before; i < missing; ++i) append(out, fill);
  return out;
}

}  // namespace tenon::text::jinja
