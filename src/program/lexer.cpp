#include "program/lexer.hpp"

#include "base/utf8.hpp"
#include "program/limits.hpp"
#include "program/words.hpp"

#include <charconv>
#include <span>
#include <string>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr bool is_word(char c) noexcept { return is_letter(c) || is_digit(c); }

class Lexer {
 public:
  Lexer(std::string_view line, std::vector<Token>& tokens) : line_(line), tokens_(tokens) {}

  std::optional<LexError> run();

 private:
  char peek(std::size_t ahead = 0) const noexcept {
    return at_ + ahead < line_.size() ? line_[at_ + ahead] : '\0';
  }
  void push(Token::Kind kind, std::size_t begin) {
    tokens_.push_back({kind, line_.substr(begin, at_ - begin), begin});
  }
  std::optional<LexError> string();
  std::optional<LexError> number();

  std::string_view line_;
  std::vector<Token>& tokens_;
  std::size_t at_ = 0;
};

std::string no_meaning(char32_t point) {
  if (point > 0x20 && point < 0x7F)
    return fmt::format("'{}' has no meaning here", static_cast<char>(point));
  if (point < 0x80)
    return fmt::format("byte 0x{:02X} has no meaning here", static_cast<unsigned>(point));
  return fmt::format(
      "U+{:04X} has no meaning here: outside of strings and comments a text is ASCII",
      static_cast<unsigned>(point));
}

std::optional<LexError> Lexer::string() {
  const std::size_t begin = at_++;
  while (at_ < line_.size() && line_[at_] != '"') at_ += line_[at_] == '\\' ? 2u : 1u;
  if (at_ >= line_.size()) return LexError{Errc::syntax, begin, "this string does not end"};
  tokens_.push_back({Token::Kind::string, line_.substr(begin + 1, at_ - begin - 1), begin});
  ++at_;
  return std::nullopt;
}

std::optional<LexError> Lexer::number() {
  const std::size_t begin = at_;
  if (peek() == '-') ++at_;
  if (peek() == '-' || (!is_digit(peek()) && !line_.substr(at_).starts_with("inf"))) {
    return LexError{Errc::syntax, begin, "a '-' without a number"};
  }
  if (!is_digit(peek())) {
    at_ += 3;
    if (is_word(peek())) return LexError{Errc::syntax, begin, "a '-' without a number"};
    push(Token::Kind::name, begin);
    return std::nullopt;
  }
  const std::size_t digits = at_;
  while (is_digit(peek())) ++at_;
  if (line_[digits] == '0' && at_ - digits > 1) {
    return LexError{Errc::syntax, begin, "a number does not begin with 0"};
  }
  bool real = false;
  if (peek() == '.') {
    real = true;
    ++at_;
    if (!is_digit(peek()))
      return LexError{Errc::syntax, begin, "digits are missing after the point"};
    while (is_digit(peek())) ++at_;
  }
  if (peek() == 'e' || peek() == 'E') {
    real = true;
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    if (!is_digit(peek()))
      return LexError{Errc::syntax, begin, "digits are missing in the exponent"};
    while (is_digit(peek())) ++at_;
  }
  if (is_word(peek()) || peek() == '.') {
    return LexError{Errc::syntax, begin, fmt::format("'{}' inside a number", peek())};
  }
  push(real ? Token::Kind::real : Token::Kind::integer, begin);
  Token& token = tokens_.back();
  const char* const first = token.text.data();
  const char* const last = first + token.text.size();
  const auto [end, error] =
      real ? std::from_chars(first, last, token.real) : std::from_chars(first, last, token.integer);
  if (error != std::errc() || end != last) {
    return LexError{Errc::syntax, begin,
                    real ? "a number that no double holds" : "an integer that 64 bits cannot hold"};
  }
  return std::nullopt;
}

std::optional<LexError> Lexer::run() {
  int depth = 0;
  tokens_.clear();
  while (at_ < line_.size()) {
    const char c = line_[at_];
    if (c == ' ') {
      ++at_;
    } else if (c == '#') {
      break;
    } else if (c == '"') {
      if (auto error = string()) return error;
    } else if (is_digit(c) || c == '-') {
      if (auto error = number()) return error;
    } else if (is_word(c)) {
      const std::size_t begin = at_;
      while (is_word(peek())) ++at_;
      if (at_ - begin > program_limits::name_bytes) {
        return LexError{Errc::limit_exceeded, begin, "a name of more than 255 letters"};
      }
      push(Token::Kind::name, begin);
    } else if (std::string_view("()[],:=").find(c) != std::string_view::npos && c != '\0') {
      if (c == '(' || c == '[') ++depth;
      if (c == ')' || c == ']') --depth;
      if (depth > program_limits::bracket_depth) {
        return LexError{
            Errc::depth_limit, at_,
            fmt::format("more than {} brackets inside each other", program_limits::bracket_depth)};
      }
      ++at_;
      push(Token::Kind::mark, at_ - 1);
    } else {
      if (c == '\t') return LexError{Errc::syntax, at_, "tabs are not allowed; use spaces"};
      if (std::string_view("+-*/@%<>").find(c) != std::string_view::npos) {
        return LexError{Errc::syntax, at_,
                        fmt::format("'{}' has no meaning here: texts have ops by name, such as "
                                    "add, sub, mul, div, matmul and lt",
                                    c)};
      }
      return LexError{Errc::syntax, at_, no_meaning(code_point_at(line_, at_).value)};
    }
  }
  for (const Token& token : std::span(tokens_).subspan(tokens_.empty() ? 0 : 1)) {
    if (token.kind == Token::Kind::name && is_keyword(token.text) && token.text != "_" &&
        !token.is_truth()) {
      return LexError{Errc::syntax, token.offset,
                      fmt::format("'{}' has no meaning here", token.text)};
    }
  }
  tokens_.push_back({Token::Kind::end, line_.substr(line_.size()), at_});
  return std::nullopt;
}

}  // namespace

std::optional<LexError> tokenize(std::string_view line, std::vector<Token>& tokens) {
  return Lexer(line, tokens).run();
}

}  // namespace tenon
