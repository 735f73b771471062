#include "grammar_syntax.hpp"

#include "base/utf8.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

constexpr int deepest_group = 100, deepest_repeat = 100;
constexpr std::uint32_t most_repetitions = 65536;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '_';
}
bool is_surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

class GrammarParser {
 public:
  explicit GrammarParser(std::string_view text) : text_(text) {
    if (is_utf8(text)) return;
    throw Error(Errc::bad_encoding, "grammar", "the text is not UTF-8");
  }

  GrammarSyntax parse(std::string_view root) {
    for (skip_space(true); !at_end(); skip_space(true)) parse_rule();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (is_defined_[i]) continue;
      fail_at(places_[i], Errc::bad_reference,
              fmt::format("no rule is named \"{}\"", syntax_.rules[i].name));
    }
    const auto found = names_.find(root);
    if (found == names_.end()) {
      throw Error(Errc::bad_reference, "grammar", fmt::format("no rule is named \"{}\"", root));
    }
    syntax_.root = found->second;
    return std::move(syntax_);
  }

 private:
  bool at_end() const { return at_ == text_.size(); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool takes(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  [[noreturn]] void fail_at(std::size_t place, Errc code, const std::string& what) const {
    const std::string_view before = text_.substr(0, place);
    const auto line = std::ranges::count(before, '\n') + 1;
    const std::size_t start = before.rfind('\n') + 1;  // of npos, 0
    throw Error(code, "grammar", fmt::format("{}:{}: {}", line, place - start + 1, what));
  }
  [[noreturn]] void fail(const std::string& what) const {
    const std::string found = at_end()         ? "the end"
                              : peek() == '\n' ? "the end of the line"
                                               : fmt::format("\"{}\"", character_here());
    fail_at(at_, Errc::syntax, fmt::format("{}, not {}", what, found));
  }
  std::string_view character_here() const {
    return text_.substr(at_, code_point_at(text_, at_).length);
  }

  /// White space and comments.
  void skip_space(bool over_lines) {
    while (!at_end()) {
      if (peek() == '#') {
        while (!at_end() && peek() != '\n') ++at_;
      } else if (peek() == ' ' || peek() == '\t' || peek() == '\r' ||
                 (over_lines && peek() == '\n')) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view parse_name() {
    const std::size_t begin = at_;
    while (is_name_char(peek())) ++at_;
    if (at_ == begin) fail("wanted is a rule's name");
    return text_.substr(begin, at_ - begin);
  }

  std::size_t rule_named(std::string_view name, std::size_t place) {
    const auto [found, is_new] = names_.try_emplace(std::string(name), syntax_.rules.size());
    if (is_new) {
      syntax_.rules.push_back({std::string(name)});
      places_.push_back(place);
      is_defined_.push_back(false);
    }
    return found->second;
  }

  void parse_rule() {
    const std::size_t place = at_;
    const std::size_t rule = rule_named(parse_name(), place);
    if (is_defined_[rule]) {
      fail_at(place, Errc::syntax,
              fmt::format("\"{}\" is defined twice", syntax_.rules[rule].name));
    }
    skip_space(false);
    if (!text_.substr(at_).starts_with("::=")) fail("wanted is ::= behind a rule's name");
    at_ += 3;
    skip_space(true);
    GrammarPart body = parse_choice(0);
    syntax_.rules[rule].body = std::move(body);
    is_defined_[rule] = true;
    if (!at_end() && peek() != '\n') fail("wanted is a part of a rule, or the next line");
  }

  static void append(GrammarPart& whole, GrammarPart part) {
    whole.repeats = std::max(whole.repeats, part.repeats);
    whole.parts.push_back(std::move(part));
  }

  GrammarPart parse_choice(int depth) {
    GrammarPart choice{.kind = GrammarPart::Kind::choice};
    do {
      skip_space(true);
      append(choice, parse_sequence(depth));
      if (depth > 0) continue;
      const std::size_t line_end = at_;
      skip_space(true);
      if (peek() != '|') at_ = line_end;
    } while (takes('|'));
    return choice.parts.size() == 1 ? std::move(choice.parts.front()) : std::move(choice);
  }

  GrammarPart parse_sequence(int depth) {
    GrammarPart sequence;
    for (;; skip_space(depth > 0)) {
      const std::size_t place = at_;
      if (auto part = parse_part(depth)) {
        append(sequence, std::move(*part));
      } else if (const auto bounds = parse_repetition()) {
        if (sequence.parts.empty()) fail_at(place, Errc::syntax, "a repetition of nothing");
        GrammarPart& last = sequence.parts.back();
        GrammarPart repeat{
            .kind = GrammarPart::Kind::repeat, .least = bounds->first, .most = bounds->second};
        append(repeat, std::move(last));
        if (++repeat.repeats > deepest_repeat) {
          fail_at(place, Errc::depth_limit,
                  fmt::format("more than {} nested repetitions", deepest_repeat));
        }
        sequence.repeats = std::max(sequence.repeats, repeat.repeats);
        last = std::move(repeat);
      } else {
        return sequence.parts.size() == 1 ? std::move(sequence.parts.front()) : std::move(sequence);
      }
    }
  }

  std::optional<GrammarPart> parse_part(int depth) {
    const char c = peek();
    if (c == '"') return parse_literal();
    if (c == '[') return parse_set();
    if (takes('.')) {
      return GrammarPart{.kind = GrammarPart::Kind::characters, .characters = all_but({})};
    }
    if (c == '(') return parse_group(depth + 1);
    if (is_name_char(c)) {
      const std::size_t place = at_;
      return GrammarPart{.kind = GrammarPart::Kind::rule, .rule = rule_named(parse_name(), place)};
    }
    if (c == '<' || c == '!') {
      fail_at(at_, Errc::unsupported, "a grammar of tokens; it is one of characters here");
    }
    return std::nullopt;
  }

  GrammarPart parse_group(int depth) {
    if (depth > deepest_group) {
      fail_at(at_, Errc::depth_limit,
              fmt::format("more than {} nested parentheses", deepest_group));
    }
    takes('(');
    GrammarPart group = parse_choice(depth);
    if (!takes(')')) fail("wanted is a part, | or )");
    return group;
  }

  GrammarPart parse_literal() {
    const std::size_t place = at_;
    GrammarPart literal{.kind = GrammarPart::Kind::text};
    takes('"');
    while (!takes('"')) {
      if (at_end()) fail_at(place, Errc::syntax, "a literal without its second \"");
      append_utf8(literal.text, parse_character());
    }
    return literal;
  }

  GrammarPart parse_set() {
    const std::size_t place = at_;
    takes('[');
    const bool is_negated = takes('^');
    std::vector<Interval> intervals;
    while (!takes(']')) {
      if (at_end()) fail_at(place, Errc::syntax, "a set without its ]");
      Interval interval{parse_character(), 0};
      interval.last = interval.first;
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
        ++at_;
        interval.last = parse_character();
        if (interval.last < interval.first) {
          fail_at(place, Errc::syntax, "a set has a range that ends before it begins");
        }
      }
      intervals.push_back(interval);
    }
    if (intervals.empty()) fail_at(place, Errc::syntax, "a set of no characters");
    intervals = in_order(std::move(intervals));
    GrammarPart set{.kind = GrammarPart::Kind::characters};
    set.characters = is_negated ? all_but(intervals) : std::move(intervals);
    return set;
  }

  char32_t parse_character() {
    if (!takes('\\')) {
      const CodePoint c = code_point_at(text_, at_);
      at_ += c.length;
      return c.value;
    }
    const std::size_t place = at_ - 1;
    const char c = peek();
    if (at_end()) fail("wanted is the character of an escape");
    ++at_;
    switch (c) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case 'x':
        return parse_hex(2, place);
      case 'u':
        return parse_hex(4, place);
      case 'U':
        return parse_hex(8, place);
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<char32_t>(c);
      default:
        fail_at(place, Errc::syntax,
                "an unknown escape; known are \\n \\r \\t \\\\ \\\" \\[ \\] \\x \\u \\U");
    }
  }

  char32_t parse_hex(std::size_t digits, std::size_t place) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char c = peek();
      const int digit = is_digit(c)              ? c - '0'
                        : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                        : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                 : -1;
      if (digit < 0) fail(fmt::format("wanted are {} hexadecimal digits of an escape", digits));
      value = (value << 4) | static_cast<char32_t>(digit);
      ++at_;
    }
    if (value > last_character || is_surrogate(value)) {
      fail_at(place, Errc::syntax, "an escape that is no character");
    }
    return value;
  }

  using Bounds = std::pair<std::uint32_t, std::uint32_t>;
  std::optional<Bounds> parse_repetition() {
    if (takes('*')) return Bounds{0, GrammarPart::unlimited};
    if (takes('+')) return Bounds{1, GrammarPart::unlimited};
    if (takes('?')) return Bounds{0, 1};
    const std::size_t place = at_;
    if (!takes('{')) return std::nullopt;
    skip_space(false);
    Bounds bounds{parse_count(), 0};
    bounds.second = bounds.first;
    skip_space(false);
    if (takes(',')) {
      skip_space(false);
      bounds.second = peek() == '}' ? GrammarPart::unlimited : parse_count();
      skip_space(false);
    }
    if (!takes('}')) fail("wanted is }");
    if (bounds.second < bounds.first) {
      fail_at(place, Errc::syntax, "a repetition whose most is less than its least");
    }
    return bounds;
  }

  std::uint32_t parse_count() {
    if (!is_digit(peek())) fail("wanted is a number of repetitions");
    const std::size_t place = at_;
    std::uint32_t value = 0;
    while (is_digit(peek())) {
      value = value * 10 + static_cast<std::uint32_t>(text_[at_++] - '0');
      if (value > most_repetitions) {
        fail_at(place, Errc::limit_exceeded,
                fmt::format("more than {} repetitions", most_repetitions));
      }
    }
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  GrammarSyntax syntax_;
  std::map<std::string, std::size_t, std::less<>> names_;
  std::vector<std::size_t> places_;  // where each rule is named first
  std::vector<bool> is_defined_;
};

}  // namespace

std::vector<Interval> in_order(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::first);
  std::vector<Interval> joined;
  for (const Interval& next : intervals) {
    if (!joined.empty() && next.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, next.last);
    } else {
      joined.push_back(next);
    }
  }
  std::vector<Interval> kept;
  for (const Interval& one : joined) {
    if (one.first < 0xD800) kept.push_back({one.first, std::min<char32_t>(one.last, 0xD7FF)});
    if (one.last > 0xDFFF) kept.push_back({std::max<char32_t>(one.first, 0xE000), one.last});
  }
  return kept;
}

std::vector<Interval> all_but(const std::vector<Interval>& intervals) {
  std::vector<Interval> rest;
  char32_t next = 0;
  for (const Interval& one : intervals) {
    if (one.first > next) rest.push_back({next, one.first - 1});
    next = one.last + 1;
  }
  if (next <= last_character) rest.push_back({next, last_character});
  return in_order(std::move(rest));
}

GrammarSyntax parse_grammar(std::string_view gbnf, std::string_view root) {
  return GrammarParser(gbnf).parse(root);
}

}  // namespace tenon::text
