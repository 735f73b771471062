#include "base/utf8.hpp"
#include "program/cursor.hpp"
#include "program/findings.hpp"
#include "program/limits.hpp"
#include "program/source_text.hpp"
#include "program/statement.hpp"
#include "program/words.hpp"

#include <tenon/error.hpp>
#include <tenon/program.hpp>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

/// The positions of a function's parts, for findings of the checks.
struct Places {
  struct Spot {
    int line = 0;
    std::uint32_t offset = 0;
  };
  Spot head;
  std::vector<std::uint32_t> parameters;
  std::vector<Spot> statements;  ///< the op
  std::vector<std::uint32_t> operands;
  std::vector<std::size_t> first_operand;  ///< of each statement, in `operands`
  Spot end;                                ///< the return statement
  std::vector<std::uint32_t> returned;

  Spot find(const checking::Spot& spot) const;
};

Places::Spot Places::find(const checking::Spot& spot) const {
  const auto operand = static_cast<std::size_t>(spot.operand);
  if (spot.instruction == checking::Spot::in_return) {
    return spot.operand >= 0 && operand < returned.size() ? Spot{end.line, returned[operand]} : end;
  }
  if (spot.instruction < 0) {
    return spot.operand >= 0 && operand < parameters.size() ? Spot{head.line, parameters[operand]}
                                                            : head;
  }
  const auto i = static_cast<std::size_t>(spot.instruction);
  const std::size_t last = i + 1 < first_operand.size() ? first_operand[i + 1] : operands.size();
  if (spot.operand >= 0 && first_operand[i] + operand < last) {
    return {statements[i].line, operands[first_operand[i] + operand]};
  }
  return statements[i];
}

void check_encoding(std::string_view line) {
  const std::size_t end = utf8_end(line);
  if (end == line.size()) return;
  throw Fault{
      Errc::syntax, end,
      fmt::format("byte 0x{:02X} is not UTF-8 here", static_cast<unsigned char>(line[end]))};
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : source_(text, file) {}

  ParseResult run(std::size_t bytes);

 private:
  static constexpr ValueId broken = ~ValueId{0};  ///< a name whose statement had an error

  struct Name {
    ValueId id;
    int line;
  };
  /// A name that nothing has defined yet.
  struct Missing {
    std::string_view name;
    int line;
    std::size_t offset;
  };

  void error(Errc code, int line, std::size_t offset, std::string_view message);
  bool full() const noexcept { return result_.errors.size() >= program_limits::errors; }

  bool header();
  void module(std::string_view line);
  void line(std::string_view text);
  void function();
  void statement();
  void return_statement();
  void finish_function();
  void define(const Token& name, ValueId id);
  ValueId resolve(const Token& name);
  void finish_program();
  Function& current() { return result_.program.functions.back(); }

  SourceText source_;
  ParseResult result_;
  std::vector<Places> places_;
  std::vector<Token> tokens_;
  Cursor cursor_{tokens_};
  WordBudget words_;
  int line_ = 0;
  bool in_function_ = false;
  bool returned_ = false;
  bool may_have_returned_ = false;  ///< by a line that could not be read
  bool head_is_read_ = false;       ///< else the parameters are not all known
  std::int64_t statements_ = 0;
  std::unordered_map<std::string_view, Name> names_;
  std::unordered_map<std::string_view, int> functions_;  ///< where each is defined
  std::vector<Missing> missing_;
};

void Parser::error(Errc code, int line, std::size_t offset, std::string_view message) {
  if (full()) return;
  SourceLine place{std::string(source_.file()), line, source_.column(line, offset)};
  result_.errors.push_back(
      {code, std::move(place), std::string(message) + source_.excerpt(line, offset)});
}

ParseResult Parser::run(std::size_t bytes) {
  if (bytes > program_limits::text_bytes) {
    const SourceLine begin{std::string(source_.file()), 1, 1};
    result_.errors.emplace_back(Errc::limit_exceeded, begin,
                                fmt::format("a text of {} bytes; at most {} are allowed", bytes,
                                            program_limits::text_bytes));
    return std::move(result_);
  }
  if (!header()) return std::move(result_);
  while (line_ < source_.line_count() && !full()) {
    ++line_;
    const std::string_view text = source_.line(line_);
    try {
      line(text);
    } catch (const Fault& fault) {
      error(fault.code, line_, fault.offset, fault.message);
    }
  }
  finish_function();
  finish_program();
  std::ranges::sort(result_.errors, [](const Diagnostic& a, const Diagnostic& b) {
    return std::pair(a.line.line, a.line.column) < std::pair(b.line.line, b.line.column);
  });
  if (!result_.errors.empty()) result_.program = {};
  return std::move(result_);
}

bool Parser::header() {
  constexpr std::string_view magic = "# tenon ";
  const std::string_view first = source_.line(1);
  if (!first.starts_with(magic)) {
    error(Errc::bad_magic, 1, 0, "a program begins with the line '# tenon 1.0'");
    return false;
  }
  // Minor versions only add features; an unknown feature is an error where it is used.
  const std::string_view version = first.substr(magic.size());
  const std::size_t point = version.find('.');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.size() < 10 &&
           std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  };
  if (point == std::string_view::npos || !is_number(version.substr(0, point)) ||
      !is_number(version.substr(point + 1))) {
    error(Errc::bad_magic, 1, magic.size(), "a program begins with the line '# tenon 1.0'");
    return false;
  }
  if (version.substr(0, point) != "1") {
    error(Errc::unsupported_version, 1, magic.size(),
          fmt::format("the text has version {}; this library reads 1.0", version));
    return false;
  }
  line_ = 1;
  constexpr std::string_view imports[] = {"from __future__ import annotations",
                                          "from tenon.ir import *"};
  std::size_t import = 0;
  while (line_ < source_.line_count()) {
    const std::string_view text = source_.line(++line_);
    if (text.empty() || text[0] == '#') continue;
    if (import < std::size(imports)) {
      if (text != imports[import]) {
        error(Errc::syntax, line_, 0, fmt::format("expected '{}'", imports[import]));
        return false;
      }
      ++import;
      continue;
    }
    try {
      module(text);
      return true;
    } catch (const Fault& fault) {
      error(fault.code, line_, fault.offset, fault.message);
      return false;
    }
  }
  error(Errc::truncated, std::max(1, source_.line_count()),
        source_.line(source_.line_count()).size(), "the text ends before module(...)");
  return false;
}

void Parser::module(std::string_view line) {
  if (const auto fault = tokenize(line, tokens_))
    throw Fault{fault->code, fault->offset, fault->message};
  cursor_.restart();
  const Token& word = cursor_.expect(Token::Kind::name, "module(...)");
  if (word.text != "module") throw Fault{Errc::syntax, word.offset, "expected module(...)"};
  cursor_.expect('(');
  const std::vector<Argument> arguments = cursor_.arguments();
  cursor_.expect_end();
  Program& program = result_.program;
  std::vector<std::string_view> seen;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    const std::string_view key = i == 0 ? "name" : argument.keyword;
    if ((i == 0) != argument.keyword.empty())
      throw Fault{Errc::syntax, argument.offset, "expected the model's name"};
    if (std::ranges::find(seen, key) != seen.end()) {
      throw Fault{Errc::duplicate_name, argument.offset, fmt::format("{} is given twice", key)};
    }
    seen.push_back(key);
    if (key == "opset" && argument.value.kind == Token::Kind::integer) {
      if (argument.value.integer != 1) {
        throw Fault{
            Errc::unsupported_version, argument.offset,
            fmt::format("the text has opset {}; this library knows 1", argument.value.integer)};
      }
      continue;
    }
    std::string* const target = key == "name"      ? &program.name
                                : key == "weights" ? &program.weights_file
                                : key == "sha256"  ? &program.weights_sha256
                                : key == "entry"   ? &program.entry
                                                   : nullptr;
    if (target == nullptr || argument.value.kind != Token::Kind::string) {
      throw Fault{
          Errc::syntax, argument.offset,
          "expected module(\"name\", opset=1, weights=\"...\", sha256=\"...\", entry=\"...\")"};
    }
    *target = string_of(argument.value);
  }
  if (std::ranges::find(seen, "opset") == seen.end()) {
    throw Fault{Errc::syntax, word.offset, "module(\"name\", opset=1) names the set of ops"};
  }
}

void Parser::line(std::string_view text) {
  if (text.size() > program_limits::line_bytes) {
    throw Fault{Errc::limit_exceeded, 0,
                fmt::format("a line of {} bytes; at most {} are allowed", text.size(),
                            program_limits::line_bytes)};
  }
  const std::size_t indent = std::min(text.find_first_not_of(' '), text.size());
  if (indent == text.size()) return;
  if (text[indent] == '#') {
    return check_encoding(text);
  }
  const auto fault = tokenize(text, tokens_);
  cursor_.restart();
  // Even an invalid line opens a function; otherwise all its statements would be reported, too.
  if (indent == 0 && !tokens_.empty() && tokens_[0].is_word("def")) {
    finish_function();
    result_.program.functions.emplace_back();
    places_.emplace_back();
    in_function_ = true;
    head_is_read_ = false;
  }
  check_encoding(text);
  if (fault) {
    if (in_function_ && !tokens_.empty() && tokens_[0].kind == Token::Kind::name) {
      names_.insert_or_assign(tokens_[0].text, Name{broken, line_});
      returned_ = returned_ || tokens_[0].is_word("return");
    }
    may_have_returned_ = may_have_returned_ || tokens_.empty();
    throw Fault{fault->code, fault->offset, fault->message};
  }
  if (indent == 0) {
    if (!tokens_[0].is_word("def")) {
      throw Fault{Errc::syntax, 0, fmt::format("expected def, found {}", quoted(tokens_[0]))};
    }
    return function();
  }
  if (indent != 4) {
    may_have_returned_ = may_have_returned_ || tokens_[0].is_word("return");
    throw Fault{Errc::syntax, indent, "statements are indented by 4 spaces"};
  }
  if (!in_function_) throw Fault{Errc::syntax, indent, "a statement outside a function"};
  if (returned_) throw Fault{Errc::syntax, indent, "a statement after return"};
  if (tokens_[0].is_word("return")) return return_statement();
  statement();
}

void Parser::function() {
  Function& f = current();
  Places& places = places_.back();
  places.head = {line_, 0};
  cursor_.next();
  const Token& name = cursor_.expect(Token::Kind::name, "the function's name");
  places.head.offset = static_cast<std::uint32_t>(name.offset);
  f.name = name.text;
  const auto [other, added] = functions_.emplace(name.text, line_);
  if (!added) {
    throw Fault{Errc::duplicate_name, name.offset,
                fmt::format("'{}' is already defined at line {}", name.text, other->second)};
  }
  cursor_.expect('(');
  if (!cursor_.accept(')')) {
    do {
      const Token& parameter = cursor_.expect(Token::Kind::name, "a parameter");
      cursor_.expect(':');
      Cursor::Type type = cursor_.type(words_);
      if (f.parameter_count == program_limits::operands) {
        throw Fault{Errc::limit_exceeded, parameter.offset,
                    fmt::format("more than {} parameters", program_limits::operands)};
      }
      places.parameters.push_back(static_cast<std::uint32_t>(parameter.offset));
      define(parameter,
             f.add_value({std::string(parameter.text), type.kind, std::move(type.shape)}));
      ++f.parameter_count;
    } while (cursor_.accept(','));
    cursor_.expect(')');
  }
  cursor_.expect(':');
  cursor_.expect_end();
  head_is_read_ = true;
}

void Parser::define(const Token& name, ValueId id) {
  if (!is_identifier(name.text) || is_keyword(name.text)) {
    throw Fault{Errc::syntax, name.offset, fmt::format("{} is no name for a value", quoted(name))};
  }
  const auto [other, added] = names_.emplace(name.text, Name{id, line_});
  if (added) return;
  throw Fault{Errc::duplicate_name, name.offset,
              fmt::format("'{}' is already defined at line {}", name.text, other->second.line)};
}

ValueId Parser::resolve(const Token& name) {
  if (const auto found = names_.find(name.text); found != names_.end()) return found->second.id;
  missing_.push_back({name.text, line_, name.offset});
  return broken;
}

void Parser::statement() {
  Function& f = current();
  Places& places = places_.back();
  const Token& name = cursor_.expect(Token::Kind::name, "a name or return");
  if (++statements_ > program_limits::instructions) {
    throw Fault{Errc::limit_exceeded, name.offset,
                fmt::format("more than {} statements", program_limits::instructions)};
  }
  const auto id = static_cast<ValueId>(f.values.size());
  define(name, broken);
  std::optional<Cursor::Type> type;
  if (cursor_.accept(':')) {
    const Token& word = cursor_.peek();
    type = cursor_.type(words_);
    if (type->kind != ValueKind::tensor || !type->shape) {
      throw Fault{Errc::bad_type, word.offset, "only tensor types are written at statements"};
    }
  }
  cursor_.expect('=');
  const Token& callee = cursor_.expect(Token::Kind::name, "an op or a function");
  cursor_.expect('(');
  const std::vector<Argument> arguments = cursor_.arguments();
  cursor_.expect_end();
  Statement made =
      make_statement(callee, arguments, [&](const Token& token) { return resolve(token); }, words_);
  Instruction& instruction = made.instruction;
  if (std::ranges::find(instruction.operands, broken) != instruction.operands.end())
    return;  // reported there
  places.statements.push_back({line_, static_cast<std::uint32_t>(callee.offset)});
  places.first_operand.push_back(places.operands.size());
  for (const std::size_t offset : made.operand_offsets)
    places.operands.push_back(static_cast<std::uint32_t>(offset));
  instruction.result = id;
  instruction.line = {std::string(source_.file()), line_, source_.column(line_, callee.offset)};
  f.add_value({std::string(name.text), made.kind, type ? std::move(type->shape) : std::nullopt});
  f.body.push_back(std::move(instruction));
  names_[name.text].id = id;
}

void Parser::return_statement() {
  Function& f = current();
  Places& places = places_.back();
  returned_ = true;
  cursor_.next();
  places.end = {line_, static_cast<std::uint32_t>(tokens_[0].offset)};
  do {
    const Token& name = cursor_.expect(Token::Kind::name, "the name of a value");
    places.returned.push_back(static_cast<std::uint32_t>(name.offset));
    f.results.push_back(resolve(name));
  } while (cursor_.accept(','));
  cursor_.expect_end();
}

void Parser::finish_function() {
  for (const Missing& missing : missing_) {
    if (!head_is_read_) break;
    const auto later = names_.find(missing.name);
    error(Errc::bad_reference, missing.line, missing.offset,
          later != names_.end() ? fmt::format("'{}' is used before it is defined at line {}",
                                              missing.name, later->second.line)
                                : fmt::format("'{}' is not defined", missing.name));
  }
  if (in_function_ && !current().name.empty() && !returned_ && !may_have_returned_) {
    const Places::Spot head = places_.back().head;
    error(Errc::syntax, std::max(head.line, 1), head.offset,
          fmt::format("'{}' does not return", current().name));
  }
  missing_.clear();
  names_.clear();
  in_function_ = returned_ = may_have_returned_ = false;
}

/// Checks that need all functions.
void Parser::finish_program() {
  if (!result_.errors.empty()) return;
  Program& program = result_.program;
  std::unordered_map<std::string_view, std::size_t> results;
  for (const Function& f : program.functions) results.emplace(f.name, f.results.size());
  for (Function& f : program.functions) {
    for (const Instruction& instruction : f.body) {
      if (instruction.kind != Instruction::Kind::call) continue;
      const auto callee = results.find(instruction.function);
      Value& value = f.values[instruction.result];
      if (callee == results.end()) {
        const auto index = static_cast<std::size_t>(&f - program.functions.data());
        const Places::Spot spot =
            places_[index].statements[static_cast<std::size_t>(&instruction - f.body.data())];
        error(Errc::unknown_op, spot.line, spot.offset,
              fmt::format("there is no op or function '{}'{}", instruction.function,
                          op_suggestion(instruction.function, program.functions)));
      } else if (callee->second != 1) {
        value.kind = ValueKind::tuple;
      }
    }
  }
  if (!result_.errors.empty()) return;
  for (const checking::Finding& finding : checking::check(program, false)) {
    Places::Spot spot{1, 0};
    if (finding.spot.function >= 0)
      spot = places_[static_cast<std::size_t>(finding.spot.function)].find(finding.spot);
    error(finding.code, spot.line, spot.offset, finding.message);
  }
}

}  // namespace

ParseResult parse_all(std::string_view text, std::string_view file) {
  if (text.size() > program_limits::text_bytes) return Parser({}, file).run(text.size());
  return Parser(text, file).run(text.size());
}

Program parse(std::string_view text, std::string_view file) {
  ParseResult result = parse_all(text, file);
  if (result.errors.empty()) return std::move(result.program);
  const Diagnostic& first = result.errors.front();
  throw Error(first.code, fmt::format("{}:{}:{}", file, first.line.line, first.line.column),
              first.message);
}

}  // namespace tenon
