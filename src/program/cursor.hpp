#pragma once

#include "program/lexer.hpp"

#include <tenon/error.hpp>
#include <tenon/program.hpp>

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// An error in a line, with its position. Thrown within the parser only.
struct Fault {
  Errc code;
  std::size_t offset;
  std::string message;
};

/// An argument of a call: `name`, `3`, `"text"`, `[1, 2]`, or one of these after `keyword=`.
struct Argument {
  std::string_view keyword;  ///< empty: by position
  Token value;               ///< of a list: its bracket
  std::size_t offset = 0;
  bool is_list = false;
  IntList list;
};

/// Maximal number of names of a text that are added to the process-wide table of names.
class WordBudget {
 public:
  Name intern(const Token& token, std::string_view text);

 private:
  std::set<std::string, std::less<>> words_;
};

/// Reads the tokens of one line in order; the vector may be refilled before `restart`.
class Cursor {
 public:
  explicit Cursor(const std::vector<Token>& tokens) : tokens_(tokens) {}

  void restart() noexcept { at_ = 0; }
  const Token& peek() const noexcept { return tokens_[at_]; }
  const Token& next() noexcept { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool accept(char mark) noexcept;
  /// The next token, which must be of this kind; `what` completes "expected ...".
  const Token& expect(Token::Kind kind, std::string_view what);
  void expect(char mark);
  void expect_end();

  /// `f32[B, 256]`, `f32`, `Scope`, `Index` or `Tensor`.
  struct Type {
    ValueKind kind = ValueKind::tensor;
    std::optional<Shape> shape;
  };
  Type type(WordBudget& words);
  /// Everything between parentheses, the closing one included.
  std::vector<Argument> arguments();

 private:
  std::int64_t size(WordBudget& words);
  Argument argument();
  IntList list();

  const std::vector<Token>& tokens_;
  std::size_t at_ = 0;
};

/// The token as a message quotes it.
std::string quoted(const Token& token);

}  // namespace tenon
