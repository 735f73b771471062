#include "scanners.hpp"

#include "base/utf8.hpp"
#include "character_set.hpp"
#include "intervals.hpp"
#include "unicode.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace tenon::text::scan {
namespace {

/// A character with its traits; length 0 past the end. Ill-formed bytes count as symbols, which
/// U+FFFD is.
struct Char {
  char32_t value = 0;
  std::uint32_t length = 0;
  std::uint8_t kind = 0;

  bool is_letter() const { return (kind & trait_letter) != 0; }
  bool is_number() const { return (kind & trait_number) != 0; }
  bool is_space() const { return (kind & trait_space) != 0; }
  bool is_newline() const { return value == '\r' || value == '\n'; }
  /// [^\s\p{L}\p{N}]
  bool is_rest() const {
    return length != 0 && (kind & (trait_space | trait_letter | trait_number)) == 0;
  }
};

Char at(std::string_view text, std::size_t position) {
  const CodePoint c = code_point_at(text, position);
  if (c.length == 0) return {};
  return {c.value, c.length, traits(c.value)};
}

template <typename Predicate>
std::size_t skip_while(std::string_view text, std::size_t position, Predicate&& accepts) {
  for (Char c = at(text, position); c.length != 0 && accepts(c); c = at(text, position)) {
    position += c.length;
  }
  return position;
}

std::size_t letters_from(std::string_view text, std::size_t position) {
  return skip_while(text, position, [](const Char& c) { return c.is_letter(); });
}

std::size_t numbers_from(std::string_view text, std::size_t position) {
  return skip_while(text, position, [](const Char& c) { return c.is_number(); });
}

std::size_t rest_from(std::string_view text, std::size_t position) {
  return skip_while(text, position, [](const Char& c) { return c.is_rest(); });
}

/// \s?X+ for a set X.
template <typename Predicate>
std::size_t spaced_run(std::string_view text, std::size_t position, Predicate&& accepts) {
  const Char first = at(text, position);
  std::size_t start = position;
  // X may hold spaces itself, and \s? gives its one back where nothing else matches.
  if (first.is_space()) {
    start += first.length;
    const Char next = at(text, start);
    if (next.length == 0 || !accepts(next)) start = position;
  }
  const std::size_t end = skip_while(text, start, accepts);
  return end == start ? position : end;
}

/// 's|'t|'re|'ve|'m|'ll|'d after the apostrophe at `position`; 0 where none follows.
std::size_t contraction_length(std::string_view text, std::size_t position, bool any_case) {
  const auto letter = [&](std::size_t i) -> char {
    if (position + i >= text.size()) return 0;
    const char c = text[position + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      // U+017F, the long s, folds to s.
      return any_case && text.substr(position + 1).starts_with("\xC5\xBF") ? 3 : 0;
  }
}

/// \s+(?!\S)|\s+: white space, leaving the last one to the word that follows.
std::size_t space_run(std::string_view text, std::size_t position) {
  std::size_t last = position;
  const std::size_t end =
      skip_while(text, position, [&, at_byte = position](const Char& c) mutable {
        if (!c.is_space()) return false;
        last = at_byte;
        at_byte += c.length;
        return true;
      });
  return end == text.size() || last == position ? end : last;
}

/// \s*[\r\n]+; `position` where the run of white space holds no line end.
std::size_t space_to_newline(std::string_view text, std::size_t position) {
  std::size_t end = position;
  skip_while(text, position, [&, at_byte = position](const Char& c) mutable {
    if (!c.is_space()) return false;
    at_byte += c.length;
    if (c.is_newline()) end = at_byte;
    return true;
  });
  return end;
}

std::size_t llama3_like(std::string_view text, std::size_t position, int max_digits) {
  const Char first = at(text, position);
  if (first.length == 0) return position;
  if (first.value == '\'') {
    if (const std::size_t length = contraction_length(text, position, true)) {
      return position + length;
    }
  }
  const std::size_t second = position + first.length;
  if (first.is_letter()) return letters_from(text, second);
  if (first.is_number()) {
    std::size_t end = second;
    for (int digits = 1; digits < max_digits; ++digits) {
      const Char next = at(text, end);
      if (!next.is_number()) break;
      end += next.length;
    }
    return end;
  }
  const Char next = at(text, second);
  if (!first.is_newline() && next.is_letter()) return letters_from(text, second);
  if (first.is_rest() || (first.value == ' ' && next.is_rest())) {
    return skip_while(text, rest_from(text, second), [](const Char& c) { return c.is_newline(); });
  }
  const std::size_t line_end = space_to_newline(text, position);
  return line_end != position ? line_end : space_run(text, position);
}

Char before(std::string_view text, std::size_t position) {
  return position == 0 ? Char{} : at(text, character_before(text, position));
}

/// The end of the next piece of a text whose runs of digits are cut into threes from their right.
/// `position` is 0 or the end of a piece: before a multiple of three digits.
template <typename IsDigit>
std::size_t threes_from_right(std::string_view text, std::size_t position, IsDigit&& is_digit) {
  const auto skip = [&](std::size_t from, std::size_t digits) {
    for (; digits != 0; --digits) from += at(text, from).length;
    return from;
  };
  std::size_t i = position;
  if (position != 0) {
    i = skip(i, 3);
    if (i >= text.size() || is_digit(at(text, i).value)) return i;
  }
  while (i < text.size()) {
    i = skip_while(text, i, [&](const Char& c) { return !is_digit(c.value); });
    std::size_t count = 0;
    const std::size_t run_end = skip_while(text, i, [&](const Char& c) {
      if (!is_digit(c.value)) return false;
      ++count;
      return true;
    });
    if (count >= 3) {
      const std::size_t cut = skip(i, count % 3);
      if (cut != position) return cut;
      if (count > 3) return skip(cut, 3);
    }
    i = run_end;
  }
  return text.size();
}

// The cased letters of scripts with case, as DeepSeek's tokenizers list them, in code point order.
constexpr std::array deepseek_letter_intervals{
    Interval{0x41, 0x5A},       Interval{0x61, 0x7A},       Interval{0xB5, 0xB5},
    Interval{0xC0, 0xD6},       Interval{0xD8, 0xF6},       Interval{0xF8, 0x1BA},
    Interval{0x1BC, 0x1BF},     Interval{0x1C4, 0x293},     Interval{0x295, 0x2AF},
    Interval{0x370, 0x373},     Interval{0x376, 0x377},     Interval{0x37B, 0x37D},
    Interval{0x37F, 0x37F},     Interval{0x386, 0x386},     Interval{0x388, 0x38A},
    Interval{0x38C, 0x38C},     Interval{0x38E, 0x3A1},     Interval{0x3A3, 0x3F5},
    Interval{0x3F7, 0x481},     Interval{0x48A, 0x52F},     Interval{0x531, 0x556},
    Interval{0x10A0, 0x10C5},   Interval{0x13A0, 0x13F5},   Interval{0x13F8, 0x13FD},
    Interval{0x1C90, 0x1CBA},   Interval{0x1CBD, 0x1CBF},   Interval{0x1D00, 0x1D2B},
    Interval{0x1D6B, 0x1D77},   Interval{0x1D79, 0x1D9A},   Interval{0x1E00, 0x1F15},
    Interval{0x1F18, 0x1F1D},   Interval{0x1F20, 0x1F45},   Interval{0x1F48, 0x1F4D},
    Interval{0x1F50, 0x1F57},   Interval{0x1F59, 0x1F59},   Interval{0x1F5B, 0x1F5B},
    Interval{0x1F5D, 0x1F5D},   Interval{0x1F5F, 0x1F7D},   Interval{0x1F80, 0x1FB4},
    Interval{0x1FB6, 0x1FBC},   Interval{0x1FBE, 0x1FBE},   Interval{0x1FC2, 0x1FC4},
    Interval{0x1FC6, 0x1FCC},   Interval{0x1FD0, 0x1FD3},   Interval{0x1FD6, 0x1FDB},
    Interval{0x1FE0, 0x1FEC},   Interval{0x1FF2, 0x1FF4},   Interval{0x1FF6, 0x1FFC},
    Interval{0x2102, 0x2102},   Interval{0x2107, 0x2107},   Interval{0x210A, 0x2113},
    Interval{0x2115, 0x2115},   Interval{0x2119, 0x211D},   Interval{0x2124, 0x2124},
    Interval{0x2126, 0x2126},   Interval{0x2128, 0x2128},   Interval{0x212A, 0x212D},
    Interval{0x212F, 0x2134},   Interval{0x2139, 0x2139},   Interval{0x213C, 0x213F},
    Interval{0x2145, 0x2149},   Interval{0x214E, 0x214E},   Interval{0x2183, 0x2184},
    Interval{0x2C00, 0x2C7B},   Interval{0x2C7E, 0x2CE4},   Interval{0x2CEB, 0x2CEE},
    Interval{0x2CF2, 0x2CF3},   Interval{0xA640, 0xA66D},   Interval{0xA680, 0xA69B},
    Interval{0xA722, 0xA76F},   Interval{0xA771, 0xA787},   Interval{0xA78B, 0xA78E},
    Interval{0xAB70, 0xABBF},   Interval{0xFB00, 0xFB06},   Interval{0xFB13, 0xFB17},
    Interval{0xFF21, 0xFF3A},   Interval{0xFF41, 0xFF5A},   Interval{0x10400, 0x1044F},
    Interval{0x104B0, 0x104D3}, Interval{0x104D8, 0x104FB}, Interval{0x10C80, 0x10CB2},
    Interval{0x10CC0, 0x10CF2}, Interval{0x118A0, 0x118DF}, Interval{0x1E900, 0x1E943},
};

bool is_deepseek_letter(char32_t value) { return lies_in(deepseek_letter_intervals, value); }

bool is_deepseek_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '~') || (c >= 0xFF01 && c <= 0xFF0F) ||
         (c >= 0xFF1A && c <= 0xFF5E) || (c >= 0x2018 && c <= 0x201F) ||
         (c >= 0x3000 && c <= 0x3002);
}

}  // namespace

std::size_t gpt2(std::string_view text, std::size_t position) {
  const Char first = at(text, position);
  if (first.length == 0) return position;
  if (first.value == '\'') {
    if (const std::size_t length = contraction_length(text, position, false)) {
      return position + length;
    }
  }
  const std::size_t start = first.value == ' ' ? position + 1 : position;
  const Char body = first.value == ' ' ? at(text, start) : first;
  if (body.is_letter()) return letters_from(text, start);
  if (body.is_number()) return numbers_from(text, start);
  if (body.is_rest()) return rest_from(text, start);
  return space_run(text, position);
}

std::size_t llama3(std::string_view text, std::size_t position) {
  return llama3_like(text, position, 3);
}

std::size_t qwen2(std::string_view text, std::size_t position) {
  return llama3_like(text, position, 1);
}

std::size_t newline(std::string_view text, std::size_t position) {
  return at(text, position).is_newline() ? position + 1 : position;
}

std::size_t number(std::string_view text, std::size_t position) {
  const Char c = at(text, position);
  return c.is_number() ? position + c.length : position;
}

std::size_t numbers(std::string_view text, std::size_t position) {
  return numbers_from(text, position);
}

std::size_t three_digits(std::string_view text, std::size_t position) {
  if (text.size() - position < 3) return position;
  const std::string_view digits = text.substr(position, 3);
  const bool all =
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  return all ? position + 3 : position;
}

std::size_t punctuation_mark(std::string_view text, std::size_t position) {
  const Char c = at(text, position);
  return is_punctuation(c.value) ? position + c.length : position;
}

std::size_t punctuation(std::string_view text, std::size_t position) {
  return skip_while(text, position, [](const Char& c) { return is_punctuation(c.value); });
}

std::size_t marked_punctuation(std::string_view text, std::size_t position) {
  return skip_while(text, position, [](const Char& c) {
    return (c.kind & trait_punctuation) != 0 ||
           (c.value < 0x80 && std::string_view("$+<=>^~|").find(static_cast<char>(c.value)) !=
                                  std::string_view::npos);
  });
}

std::size_t spaced_letters(std::string_view text, std::size_t position) {
  return spaced_run(text, position, [](const Char& c) { return c.is_letter(); });
}

std::size_t spaced_punctuation(std::string_view text, std::size_t position) {
  return spaced_run(text, position,
                    [](const Char& c) { return (c.kind & trait_punctuation) != 0; });
}

std::size_t cjk(std::string_view text, std::size_t position) {
  return skip_while(text, position, [](const Char& c) {
    return (c.value >= 0x800 && c.value <= 0x9FA5) || (c.value >= 0xAC00 && c.value <= 0xD7FF);
  });
}

std::size_t trailing_space(std::string_view text, std::size_t position) {
  // Only the first of a run can start a match, for the expression would have matched there before.
  // Without this, a long run before a letter would be scanned once per character.
  if (!at(text, position).is_space() || before(text, position).is_space()) return position;
  const std::size_t end = skip_while(text, position, [](const Char& c) { return c.is_space(); });
  return end == text.size() ? end : position;
}

std::size_t deepseek_letters(std::string_view text, std::size_t position) {
  return spaced_run(text, position, [](const Char& c) { return is_deepseek_letter(c.value); });
}

std::size_t digits_before_edge(std::string_view text, std::size_t position) {
  // Only the first digit of a run can start a match, which saves reading the run again.
  if (!is_decimal_digit(at(text, position).value)) return position;
  if (position != 0 && is_decimal_digit(before(text, position).value)) return position;
  const std::size_t end =
      skip_while(text, position, [](const Char& c) { return is_decimal_digit(c.value); });
  return end < text.size() && is_word(at(text, end).value) ? position : end;
}

std::size_t threes_of_numbers(std::string_view text, std::size_t position) {
  return threes_from_right(text, position, [](char32_t c) { return has(c, trait_number); });
}

std::size_t threes_of_digits(std::string_view text, std::size_t position) {
  return threes_from_right(text, position, is_decimal_digit);
}

std::size_t threes_of_run(std::string_view text, std::size_t position) {
  // What lies between the runs of digits_before_edge() never ends in a digit.
  if (!is_decimal_digit(before(text, text.size()).value)) return text.size();
  return threes_of_digits(text, position);
}

bool is_deepseek_letter_pattern(std::string_view regex) {
  constexpr std::string_view opening = R"(\s?[)";
  constexpr std::string_view closing = "]+";
  if (!regex.starts_with(opening) || !regex.ends_with(closing)) return false;
  regex.remove_prefix(opening.size());
  regex.remove_suffix(closing.size());
  std::vector<Interval> intervals;
  for (std::size_t i = 0; i < regex.size();) {
    const CodePoint first = code_point_at(regex, i);
    i += first.length;
    char32_t last = first.value;
    if (i + 1 < regex.size() && regex[i] == '-') {
      const CodePoint end = code_point_at(regex, ++i);
      i += end.length;
      last = end.value;
    }
    // Adjacent entries of the list may be adjacent in Unicode.
    if (!intervals.empty() && intervals.back().last + 1 == first.value) {
      intervals.back().last = last;
    } else {
      intervals.push_back({first.value, last});
    }
  }
  std::ranges::sort(intervals, {}, &Interval::first);
  return std::ranges::equal(intervals, deepseek_letter_intervals,
                            [](auto a, auto b) { return a.first == b.first && a.last == b.last; });
}

std::size_t deepseek_punctuation(std::string_view text, std::size_t position) {
  return spaced_run(text, position, [](const Char& c) { return is_deepseek_punctuation(c.value); });
}

std::size_t numeric_bytes(std::string_view text, std::size_t position) {
  const auto is_numeric = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= '0' && byte <= '9') || byte == 0xB2 || byte == 0xB3 || byte == 0xB9 ||
           byte == 0xBC || byte == 0xBD || byte == 0xBE;
  };
  if (position == text.size()) return position;
  const bool kind = is_numeric(text[position]);
  while (position < text.size() && is_numeric(text[position]) == kind) ++position;
  return position;
}

}  // namespace tenon::text::scan
