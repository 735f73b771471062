// The syntax of Jinja templates (Jinja 3.1) as a tree.
#pragma once

#include "jinja_value.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::text::jinja {

struct Expression {
  enum class Kind : std::uint8_t {
    literal,      ///< value
    name,         ///< text
    attribute,    ///< operand.text
    item,         ///< operand[operand]
    slice,        ///< operand[operand:operand:operand], with empty ones
    call,         ///< operand(operands..., named)
    filter,       ///< operand | text(operands..., named); without an operand, of a block: `empty`
    test,         ///< operand is text(operands...)
    unary,        ///< text: "not", "-", "+"
    binary,       ///< text: "and", "or", "+", "~", "//", ...
    compare,      ///< operand text operand; a chain is several joined by "and"
    conditional,  ///< operand if operand else operand
    list,
    tuple,
    dict,   ///< key, value, key, value, ...
    empty,  ///< nothing
  };

  Kind kind = Kind::empty;
  int line = 0;
  int depth = 1;  ///< of its tree
  std::string text{};
  Value value{};
  std::vector<Expression> operands{};
  std::vector<std::pair<std::string, Expression>> named{};
};

struct Statement {
  enum class Kind : std::uint8_t {
    data,          ///< text
    output,        ///< expression
    if_,           ///< branches: bodies[i] under expressions[i]; the last one may have none
    for_,          ///< names in expressions[0], where expressions[1] holds; bodies: each, otherwise
    set,           ///< targets = expressions[0]
    set_block,     ///< targets = bodies[0], through expressions[0], filters, which may be empty
    macro,         ///< text, names, defaults in expressions (of the last names), bodies[0]
    call_block,    ///< expressions[0] is a call; caller(names) is bodies[0]
    filter_block,  ///< bodies[0] through expressions[0]
    scope,         ///< with: names = expressions; bodies[0]
    break_,
    continue_,
  };

  Kind kind = Kind::data;
  int line = 0;
  std::string text{};
  std::vector<std::string> names{};
  std::vector<Expression> targets{};  ///< names, attributes of namespaces, or tuples of them
  std::vector<Expression> expressions{};
  std::vector<std::vector<Statement>> bodies{};
};

/// With trim_blocks and lstrip_blocks, as chat templates are meant. Errc::template_error, with the line, for what is no
/// template and for tags that have no use in one (extends, include, import, block); depth_limit.
std::vector<Statement> parse(std::string_view source);

}  // namespace tenon::text::jinja
