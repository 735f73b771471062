#include "json_pattern.hpp"

#include "base/utf8.hpp"
#include "grammar_syntax.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::text {
namespace {

using Intervals = std::vector<Interval>;

constexpr int deepest_pattern_group = 50;

const Interval pattern_digits[] = {{'0', '9'}};
const Interval pattern_word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Interval pattern_spaces[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Interval pattern_line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

Intervals list(std::span<const Interval> intervals) { return {intervals.begin(), intervals.end()}; }

/// The escapes that JSON has for a character.
struct JsonEscape {
  char32_t character;
  char letter;
};
constexpr JsonEscape json_escapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                       {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

std::string in_set(char32_t c) {
  if (c < 0x20 || c > 0x7E) return fmt::format("\\U{:08X}", static_cast<std::uint32_t>(c));
  const auto letter = static_cast<char>(c);
  const bool is_special =
      letter == '\\' || letter == ']' || letter == '[' || letter == '^' || letter == '-';
  return is_special ? fmt::format("\\x{:02X}", static_cast<unsigned>(c)) : std::string(1, letter);
}

/// One of these characters, as JSON spells it.
std::string spelled(const Intervals& characters) {
  Intervals not_plain = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  Intervals plain = all_but(characters);
  plain.insert(plain.end(), not_plain.begin(), not_plain.end());
  plain = all_but(in_order(std::move(plain)));
  std::vector<std::string> choices;
  if (!plain.empty()) {
    std::string set = "[";
    for (const auto& [first, last] : plain) {
      set += in_set(first);
      if (last > first) set += (last > first + 1 ? "-" : "") + in_set(last);
    }
    choices.push_back(set + "]");
  }
  for (const auto& [character, letter] : json_escapes) {
    if (lies_in(characters, character)) {
      choices.push_back(grammar_literal(std::string{'\\', letter}));
    }
  }
  if (choices.empty()) {
    throw Error(Errc::unsupported, "JSON schema",
                "\"pattern\": a set of control characters that JSON has no short escape for");
  }
  return choices.size() == 1 ? choices.front() : fmt::format("({})", fmt::join(choices, " | "));
}

class PatternParser {
 public:
  explicit PatternParser(std::string_view pattern) : pattern_(pattern) {}

  std::string parse() {
    std::vector<std::string> choices;
    do {
      const bool is_anchored = takes('^');
      std::string choice = is_anchored ? "" : "char* ";
      choice += parse_sequence(0);
      choice += takes('$') ? "" : " char*";
      choices.push_back(choice.empty() ? "\"\"" : choice);
    } while (takes('|'));
    if (!at_end()) fail(Errc::bad_argument, "a ) without its (");
    return fmt::format("({})", fmt::join(choices, " | "));
  }

 private:
  bool at_end() const { return at_ == pattern_.size(); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool takes(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  bool takes(char c) { return takes(std::string_view(&c, 1)); }
  [[noreturn]] void fail(Errc code, std::string_view what) const {
    throw Error(code, "JSON schema",
                fmt::format("\"pattern\": \"{}\" at {}: {}", pattern_, at_, what));
  }

  std::string parse_choice(int depth) {
    std::vector<std::string> choices;
    do {
      std::string choice = parse_sequence(depth);
      choices.push_back(choice.empty() ? "\"\"" : std::move(choice));
    } while (takes('|'));
    return fmt::format("({})", fmt::join(choices, " | "));
  }

  std::string parse_sequence(int depth) {
    std::string sequence;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (peek() == '$' && depth == 0) {
        if (peek(1) != '\0' && peek(1) != '|') fail(Errc::unsupported, "$ that is not at the end");
        break;
      }
      if (!sequence.empty()) sequence += ' ';
      sequence += parse_part(depth);
      sequence += parse_repetition();
    }
    return sequence;
  }

  std::string parse_part(int depth) {
    const char c = peek();
    if (c == '(') return parse_group(depth + 1);
    if (c == '[') return spelled(parse_set());
    if (c == '^' || c == '$') fail(Errc::unsupported, "an anchor within the expression");
    if (c == '*' || c == '+' || c == '?' || c == '{') {
      fail(Errc::bad_argument, "nothing to repeat");
    }
    if (takes('.')) return spelled(all_but(list(pattern_line_ends)));
    if (takes('\\')) return spelled(parse_escape(false));
    const char32_t character = parse_plain();
    return spelled({{character, character}});
  }

  char32_t parse_plain() {
    const CodePoint c = code_point_at(pattern_, at_);
    at_ += c.length;
    return c.value;
  }

  std::string parse_group(int depth) {
    if (depth > deepest_pattern_group) fail(Errc::depth_limit, "groups nested too deep");
    takes('(');
    if (takes('?')) {
      if (peek() == '<' && peek(1) != '=' && peek(1) != '!') {
        while (!at_end() && peek() != '>') ++at_;
        takes('>');
      } else if (!takes(':')) {
        fail(Errc::unsupported, "a lookahead, lookbehind or mode");
      }
    }
    std::string group = parse_choice(depth);
    if (!takes(')')) fail(Errc::bad_argument, "a group without its )");
    return group;
  }

  std::string parse_repetition() {
    std::string repetition;
    if (peek() == '*' || peek() == '+' || peek() == '?') {
      repetition = peek();
      ++at_;
    } else if (takes('{')) {
      const std::size_t begin = at_;
      while (!at_end() && peek() != '}') ++at_;
      const std::string_view bounds = pattern_.substr(begin, at_ - begin);
      const auto is_bound = [](char c) { return (c >= '0' && c <= '9') || c == ','; };
      if (!takes('}') || bounds.empty() || bounds.front() == ',' ||
          !std::ranges::all_of(bounds, is_bound)) {
        fail(Errc::bad_argument, "a malformed repetition");
      }
      repetition = fmt::format("{{{}}}", bounds);
    }
    if (!repetition.empty()) takes('?');  // lazy: the same texts
    return repetition;
  }

  Intervals parse_set() {
    takes('[');
    const bool is_negated = takes('^');
    Intervals characters;
    while (!takes(']')) {
      if (at_end()) fail(Errc::bad_argument, "a set without its ]");
      Intervals one = parse_member();
      const bool is_character = one.size() == 1 && one[0].first == one[0].last;
      if (is_character && peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
        ++at_;
        const Intervals other = parse_member();
        if (other.size() != 1 || other[0].first != other[0].last || other[0].last < one[0].first) {
          fail(Errc::bad_argument, "a range that is none");
        }
        one[0].last = other[0].last;
      }
      characters.insert(characters.end(), one.begin(), one.end());
    }
    characters = in_order(std::move(characters));
    if (is_negated) characters = all_but(characters);
    if (characters.empty()) fail(Errc::unsupported, "a set of no characters");
    return characters;
  }

  Intervals parse_member() {
    if (takes('\\')) return parse_escape(true);
    const char32_t character = parse_plain();
    return {{character, character}};
  }

  /// What an escape stands for, behind its backslash.
  Intervals parse_escape(bool is_in_set) {
    if (at_end()) fail(Errc::bad_argument, "an escape of nothing");
    const char c = peek();
    const auto one = [](char32_t character) { return Intervals{{character, character}}; };
    if (static_cast<unsigned char>(c) >= 0x80) return one(parse_plain());
    ++at_;
    switch (c) {
      case 'd':
        return list(pattern_digits);
      case 'D':
        return all_but(list(pattern_digits));
      case 'w':
        return list(pattern_word);
      case 'W':
        return all_but(list(pattern_word));
      case 's':
        return list(pattern_spaces);
      case 'S':
        return all_but(list(pattern_spaces));
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one('\0');
      case 'x':
        return one(parse_hex(2));
      case 'u':
        return one(takes('{') ? parse_braced_hex() : parse_hex(4));
      case 'b':
        if (is_in_set) return one('\b');
        [[fallthrough]];
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9')) {
          fail(Errc::unsupported, fmt::format("\\{}", c));
        }
        return one(static_cast<char32_t>(c));
    }
  }

  std::optional<char32_t> hex_digit() {
    const char c = peek();
    const bool is_lower = c >= 'a' && c <= 'f', is_upper = c >= 'A' && c <= 'F';
    if (!is_lower && !is_upper && !(c >= '0' && c <= '9')) return std::nullopt;
    ++at_;
    return static_cast<char32_t>(is_lower ? c - 'a' + 10 : is_upper ? c - 'A' + 10 : c - '0');
  }
  char32_t parse_hex(int count) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const auto digit = hex_digit();
      if (!digit) fail(Errc::bad_argument, "an escape without its hexadecimal digits");
      value = value * 16 + *digit;
    }
    return checked(value);
  }
  char32_t parse_braced_hex() {
    char32_t value = 0;
    while (const auto digit = hex_digit())
      value = std::min<char32_t>(value * 16 + *digit, 0x110000);
    if (!takes('}')) fail(Errc::bad_argument, "an escape without its }");
    return checked(value);
  }
  char32_t checked(char32_t value) const {
    if (value <= last_character && (value < 0xD800 || value > 0xDFFF)) return value;
    fail(Errc::unsupported, "an escape that is no character");
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
};

}  // namespace

std::string grammar_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      literal += '\\';
      literal += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      literal += fmt::format("\\x{:02X}", static_cast<unsigned>(c));
    } else {
      literal += c;
    }
  }
  return literal + '"';
}

std::string grammar_of_pattern(std::string_view pattern) { return PatternParser(pattern).parse(); }

}  // namespace tenon::text
