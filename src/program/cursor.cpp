#include "program/cursor.hpp"

#include "program/limits.hpp"
#include "program/words.hpp"

#include <tenon/object.hpp>

#include <fmt/format.h>

namespace tenon {

std::string quoted(const Token& token) {
  if (token.kind == Token::Kind::end) return "the end of the line";
  constexpr std::size_t shown = 40;
  const bool cut = token.text.size() > shown;
  const char mark = token.kind == Token::Kind::string ? '"' : '\'';
  return fmt::format("{}{}{}{}", mark, token.text.substr(0, shown), cut ? "..." : "", mark);
}

Name WordBudget::intern(const Token& token, std::string_view text) {
  if (!words_.contains(text)) {
    if (text.size() > program_limits::name_bytes) {
      throw Fault{Errc::limit_exceeded, token.offset, "a word of more than 255 bytes"};
    }
    if (words_.size() == program_limits::words) {
      throw Fault{Errc::limit_exceeded, token.offset,
                  fmt::format("more than {} different words", program_limits::words)};
    }
    words_.emplace(text);
  }
  return text;
}

bool Cursor::accept(char mark) noexcept {
  if (!peek().is(mark)) return false;
  next();
  return true;
}

const Token& Cursor::expect(Token::Kind kind, std::string_view what) {
  if (peek().kind == kind && !peek().is_truth()) return next();
  throw Fault{Errc::syntax, peek().offset,
              fmt::format("expected {}, found {}", what, quoted(peek()))};
}

void Cursor::expect(char mark) {
  if (accept(mark)) return;
  throw Fault{Errc::syntax, peek().offset,
              fmt::format("expected '{}', found {}", mark, quoted(peek()))};
}

void Cursor::expect_end() { expect(Token::Kind::end, "the end of the line"); }

std::int64_t Cursor::size(WordBudget& words) {
  const Token& token = peek();
  if (token.kind == Token::Kind::integer && token.integer >= 0 && token.text[0] != '-') {
    return next().integer;
  }
  if (token.kind == Token::Kind::name && is_identifier(token.text)) {
    next();
    if (token.text == "_") return unknown_dim;
    if (!is_keyword(token.text)) return symbol(words.intern(token, token.text));
  }
  throw Fault{Errc::syntax, token.offset,
              fmt::format("expected a size (a number, a name or _), found {}", quoted(token))};
}

Cursor::Type Cursor::type(WordBudget& words) {
  const Token& word = expect(Token::Kind::name, "a type");
  if (word.text == "Scope") return {ValueKind::scope, std::nullopt};
  if (word.text == "Tensor") return {};
  std::optional<DType> dtype = find_dtype(word.text);
  if (word.text == "Index") dtype = i64;
  if (!dtype) {
    if (const auto object = find_object_type(word.text)) {
      return {ValueKind::tensor, Shape(std::span<const Axis>(), *object)};
    }
  }
  if (!dtype) {
    throw Fault{Errc::bad_type, word.offset, fmt::format("there is no type {}", quoted(word))};
  }
  std::vector<std::int64_t> dims;
  if (accept('[') && !accept(']')) {
    do {
      dims.push_back(size(words));
      if (dims.size() > max_rank) {
        throw Fault{Errc::bad_shape, word.offset, fmt::format("more than {} axes", max_rank)};
      }
    } while (accept(','));
    expect(']');
  }
  try {
    return {ValueKind::tensor, Shape(dims, *dtype)};
  } catch (const Error& error) {
    throw Fault{error.code(), word.offset, error.message()};
  }
}

IntList Cursor::list() {
  IntList list;
  if (accept(']')) return list;
  do {
    const Token& item = expect(Token::Kind::integer, "an integer");
    if (list.size() == max_rank) {
      throw Fault{Errc::limit_exceeded, item.offset,
                  fmt::format("more than {} numbers in a list", max_rank)};
    }
    list.push_back(item.integer);
  } while (accept(','));
  expect(']');
  return list;
}

Argument Cursor::argument() {
  Argument result;
  result.offset = peek().offset;
  Token token = next();
  if (token.kind == Token::Kind::name && !token.is_truth() && peek().is('=')) {
    next();
    result.keyword = token.text;
    token = next();
  }
  result.value = token;
  if (token.is('[')) {
    result.is_list = true;
    result.list = list();
  } else if (token.kind == Token::Kind::mark || token.kind == Token::Kind::end) {
    throw Fault{Errc::syntax, token.offset,
                fmt::format("expected a name or a literal, found {}", quoted(token))};
  } else if (token.kind == Token::Kind::name && peek().is('(')) {
    throw Fault{
        Errc::syntax, peek().offset,
        fmt::format("a call of '{}' within a call: give its result a name, on a line before",
                    token.text)};
  }
  return result;
}

std::vector<Argument> Cursor::arguments() {
  std::vector<Argument> result;
  if (accept(')')) return result;
  do {
    result.push_back(argument());
    if (result.size() > program_limits::operands + 64) {
      throw Fault{Errc::limit_exceeded, result.back().offset, "too many arguments"};
    }
    const bool by_position = result.back().keyword.empty();
    if (by_position && result.size() > 1 && !result[result.size() - 2].keyword.empty()) {
      throw Fault{Errc::syntax, result.back().offset, "operands come before attributes"};
    }
  } while (accept(','));
  expect(')');
  return result;
}

}  // namespace tenon
