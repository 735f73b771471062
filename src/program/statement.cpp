#include "program/statement.hpp"

#include "base/suggestion.hpp"
#include "graph/operand_count.hpp"
#include "program/literals.hpp"
#include "program/words.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {
namespace {

using Kind = Instruction::Kind;

class Builder {
 public:
  Builder(const Token& callee, std::span<const Argument> arguments, const Resolve& resolve,
          WordBudget& words)
      : callee_(callee), arguments_(arguments), resolve_(resolve), words_(words) {}

  Statement run();

 private:
  void op(const OpDef& def);
  void attribute(const OpDef& def, const Argument& argument, std::vector<bool>& given);
  AttributeValue value_of(const Argument& argument, const AttributeValue& like);
  void named_text(Kind kind);
  void pack();
  void item();
  void repeat();
  void call();

  void operand(const Argument& argument);
  /// Every argument left is an operand.
  void operands(std::span<const Argument> arguments);
  [[noreturn]] void usage(std::string_view form) const {
    throw Fault{Errc::bad_argument, callee_.offset, fmt::format("expected {}", form)};
  }

  const Token& callee_;
  std::span<const Argument> arguments_;
  const Resolve& resolve_;
  WordBudget& words_;
  Statement statement_;
};

bool is_value(const Argument& argument) {
  return argument.keyword.empty() && argument.value.kind == Token::Kind::name && !argument.is_list;
}

void Builder::operand(const Argument& argument) {
  if (!is_value(argument) || argument.value.text == "True" || argument.value.text == "False") {
    throw Fault{
        Errc::bad_argument, argument.offset,
        argument.keyword.empty()
            ? fmt::format("{} takes the names of values here; literals are attributes: name=value",
                          callee_.text)
            : fmt::format("{} has no attribute '{}'", callee_.text, argument.keyword)};
  }
  statement_.instruction.operands.push_back(resolve_(argument.value));
  statement_.operand_offsets.push_back(argument.offset);
}

void Builder::operands(std::span<const Argument> arguments) {
  for (const Argument& argument : arguments) operand(argument);
}

AttributeValue Builder::value_of(const Argument& argument, const AttributeValue& like) {
  const Token& token = argument.value;
  if (argument.is_list) return argument.list;
  if (token.kind == Token::Kind::integer) return token.integer;
  if (token.kind == Token::Kind::real) return token.real;
  if (token.is_word("True")) return true;
  if (token.is_word("False")) return false;
  if (token.is_word("nan")) return std::numeric_limits<double>::quiet_NaN();
  if (token.is_word("inf")) return std::numeric_limits<double>::infinity();
  if (token.is_word("-inf")) return -std::numeric_limits<double>::infinity();
  if (token.kind != Token::Kind::string) {
    throw Fault{
        Errc::syntax, argument.offset,
        fmt::format("attribute {} is a literal, not the name {}", argument.keyword, quoted(token))};
  }
  const std::string text = string_of(token);
  if (std::holds_alternative<DType>(like)) {
    const std::optional<DType> dtype = find_dtype(text);
    if (!dtype)
      throw Fault{Errc::bad_attribute, argument.offset,
                  fmt::format("there is no type {}", quoted(token))};
    return *dtype;
  }
  if (!std::holds_alternative<Name>(like)) return Name();  // the field refuses it
  return words_.intern(token, text);
}

std::string_view kind_name(const AttributeValue& value) {
  constexpr std::string_view names[] = {"an integer", "a real number",   "True or False",
                                        "a string",   "an element type", "a list of integers"};
  return names[value.index()];
}

void Builder::attribute(const OpDef& def, const Argument& argument, std::vector<bool>& given) {
  const auto field = std::ranges::find(def.fields, argument.keyword, &AttributeField::name);
  if (field == def.fields.end()) {
    std::vector<std::string_view> names;
    for (const AttributeField& known : def.fields) names.push_back(known.name);
    throw Fault{Errc::bad_attribute, argument.offset,
                fmt::format("{} has no attribute '{}'{}{}", def.name, argument.keyword,
                            names.empty() ? "" : "; it has ", fmt::join(names, ", "))};
  }
  const auto index = static_cast<std::size_t>(field - def.fields.begin());
  if (given[index]) {
    throw Fault{Errc::duplicate_name, argument.offset,
                fmt::format("attribute {} is given twice", argument.keyword)};
  }
  given[index] = true;
  const AttributeValue like = field->get(def.defaults);
  const AttributeValue value = value_of(argument, like);
  if (field->set(statement_.instruction.op.attributes(), value)) return;
  const auto* const integer = std::get_if<std::int64_t>(&value);
  const bool is_inexact = integer != nullptr && std::holds_alternative<double>(like);
  throw Fault{Errc::bad_attribute, argument.value.offset,
              fmt::format("attribute {} of {} is {}{}", argument.keyword, def.name, kind_name(like),
                          is_inexact ? fmt::format(", and no double is {}", *integer) : "")};
}

void Builder::op(const OpDef& def) {
  Instruction& instruction = statement_.instruction;
  instruction.op = OpInstance(def);
  std::vector<bool> given(def.fields.size());
  for (const Argument& argument : arguments_) {
    if (argument.keyword.empty()) {
      operand(argument);
    } else {
      attribute(def, argument, given);
    }
  }
  const auto count = static_cast<int>(instruction.operands.size());
  if (const auto refused = refused_operand_count(def, count)) {
    throw Fault{Errc::bad_argument, callee_.offset, fmt::format("{} {}", def.name, *refused)};
  }
}

void Builder::named_text(Kind kind) {
  statement_.instruction.kind = kind;
  if (kind == Kind::scope) statement_.kind = ValueKind::scope;
  const bool scoped = arguments_.size() == 2;
  if ((arguments_.size() != 1 && !scoped) || !arguments_.back().keyword.empty() ||
      arguments_.back().value.kind != Token::Kind::string) {
    usage(fmt::format("{0}(\"name\") or {0}(scope, \"name\")", callee_.text));
  }
  if (scoped) operand(arguments_[0]);
  statement_.instruction.text = string_of(arguments_.back().value);
}

void Builder::pack() {
  statement_.instruction.kind = Kind::pack;
  statement_.kind = ValueKind::tuple;
  operands(arguments_);
}

void Builder::item() {
  statement_.instruction.kind = Kind::item;
  if (arguments_.size() != 2 || !arguments_[1].keyword.empty() ||
      arguments_[1].value.kind != Token::Kind::integer) {
    usage("item(tuple, number)");
  }
  operand(arguments_[0]);
  statement_.instruction.index = arguments_[1].value.integer;
}

void Builder::repeat() {
  Instruction& instruction = statement_.instruction;
  instruction.kind = Kind::repeat;
  statement_.kind = ValueKind::tuple;
  std::span<const Argument> rest = arguments_;
  constexpr std::string_view form =
      "repeat(function, count, tuple, scope, ..., first=0, condition=item)";
  if (rest.size() < 4 || !is_value(rest[0]) || !rest[1].keyword.empty() ||
      rest[1].value.kind != Token::Kind::integer) {
    usage(form);
  }
  instruction.function = rest[0].value.text;
  instruction.count = rest[1].value.integer;
  std::set<std::string_view> given;
  while (!rest.back().keyword.empty()) {
    const Argument& last = rest.back();
    const bool is_first = last.keyword == "first";
    if ((!is_first && last.keyword != "condition") || last.value.kind != Token::Kind::integer ||
        !given.insert(last.keyword).second || (!is_first && last.value.integer < 0)) {
      usage(form);
    }
    (is_first ? instruction.first : instruction.condition) = last.value.integer;
    rest = rest.first(rest.size() - 1);
  }
  operands(rest.subspan(2));
}

void Builder::call() {
  statement_.instruction.kind = Kind::call;
  statement_.instruction.function = callee_.text;
  for (const Argument& argument : arguments_) {
    if (argument.keyword.empty()) continue;
    throw Fault{Errc::unknown_op, callee_.offset,
                fmt::format("there is no op '{}', and functions take no attributes{}", callee_.text,
                            op_suggestion(callee_.text))};
  }
  operands(arguments_);
}

Statement Builder::run() {
  const std::string_view word = callee_.text;
  if (word == "const") {
    named_text(Kind::constant);
  } else if (word == "scope") {
    named_text(Kind::scope);
  } else if (word == "pack") {
    pack();
  } else if (word == "item") {
    item();
  } else if (word == "repeat") {
    repeat();
  } else if (const OpDef* def = find_op(word); def != nullptr) {
    op(*def);
  } else {
    call();
  }
  return std::move(statement_);
}

}  // namespace

Statement make_statement(const Token& callee, const std::vector<Argument>& arguments,
                         const Resolve& resolve, WordBudget& words) {
  return Builder(callee, arguments, resolve, words).run();
}

std::string op_suggestion(std::string_view wanted, std::span<const Function> functions) {
  std::vector<std::string_view> names;
  for (const OpDef* def : all_ops()) names.push_back(def->name);
  for (const Function& function : functions) names.push_back(function.name);
  return suggestion(wanted, names);
}

std::string string_of(const Token& token) {
  std::optional<std::string> text = unescape(token.text);
  if (!text) throw Fault{Errc::syntax, token.offset, "an escape in this string has no meaning"};
  return std::move(*text);
}

}  // namespace tenon
