#include "jinja_syntax.hpp"

#include "base/utf8.hpp"
#include "jinja_numbers.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>

namespace tenon::text::jinja {
namespace {

constexpr int max_nesting = 60;  // of parentheses and blocks
constexpr int max_tree = 200;    // of an expression's tree

struct Token {
  enum class Kind : std::uint8_t {
    data,
    open,
    close,
    open_block,
    close_block,
    name,
    string,
    integer,
    real,
    sign,
    end
  };
  Kind kind = Kind::end;
  std::string text{};
  int line = 0;
};

[[noreturn]] void refuse_at(int line, std::string_view message) {
  refuse(fmt::format("line {}: {}", line, message));
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

/// Splits a template at its tags, and what is in them into words and signs.
class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        source_ += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      } else {
        source_ += source[i];
      }
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) read_data();
    add(Token::Kind::end, {});
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }
  void skip(std::size_t count) {
    line_ += static_cast<int>(std::ranges::count(rest().substr(0, count), '\n'));
    at_ += count;
  }

  /// Data up to the next tag, and the tag.
  void read_data() {
    std::size_t tag = rest().find('{');
    while (tag != std::string_view::npos && tag + 1 < rest().size() &&
           std::string_view("{%#").find(rest()[tag + 1]) == std::string_view::npos) {
      tag = rest().find('{', tag + 1);
    }
    if (tag == std::string_view::npos || tag + 1 >= rest().size()) {
      add_data(rest());
      skip(rest().size());
      return;
    }
    const char kind = rest()[tag + 1];
    const char sign = tag + 2 < rest().size() ? rest()[tag + 2] : '\0';
    std::string_view data = rest().substr(0, tag);
    if (sign == '-') {
      while (!data.empty() && is_blank(data.back())) data.remove_suffix(1);
    } else if (kind != '{' && sign != '+') {
      data = without_indent(data);
    }
    add_data(data);
    skip(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (kind == '#') {
      read_comment();
    } else if (kind == '{') {
      read_tag("}}", Token::Kind::open, Token::Kind::close);
    } else if (!read_raw()) {
      read_tag("%}", Token::Kind::open_block, Token::Kind::close_block);
    }
  }

  void add_data(std::string_view data) {
    if (!data.empty()) add(Token::Kind::data, std::string(data));
  }

  /// lstrip_blocks: blanks before a tag that begins its line.
  std::string_view without_indent(std::string_view data) const {
    std::string_view stripped = data;
    while (!stripped.empty() && (stripped.back() == ' ' || stripped.back() == '\t')) {
      stripped.remove_suffix(1);
    }
    const bool begins_line =
        stripped.empty() ? at_ == 0 || source_[at_ - 1] == '\n' : stripped.back() == '\n';
    return begins_line ? stripped : data;
  }

  /// Behind a tag: all blanks behind "-", else the line's end (trim_blocks).
  void end_tag(char sign) {
    if (sign == '-') {
      while (at_ < source_.size() && is_blank(source_[at_])) skip(1);
    } else if (sign != '+' && rest().starts_with('\n')) {
      skip(1);
    }
  }

  void read_comment() {
    const std::size_t end = rest().find("#}");
    if (end == std::string_view::npos) refuse_at(line_, "a comment without end");
    const char sign = end > 0 ? rest()[end - 1] : '\0';
    skip(end + 2);
    end_tag(sign);
  }

  bool read_raw() {
    std::size_t i = 0;
    const auto skip_blanks = [&] {
      while (i < rest().size() && is_blank(rest()[i])) ++i;
    };
    skip_blanks();
    if (!rest().substr(i).starts_with("raw")) return false;
    i += 3;
    skip_blanks();
    const char sign = i < rest().size() ? rest()[i] : '\0';
    if (sign == '-' || sign == '+') ++i;
    if (!rest().substr(i).starts_with("%}")) return false;
    skip(i + 2);
    end_tag(sign);
    for (std::size_t tag = rest().find("{%"); tag != std::string_view::npos;
         tag = rest().find("{%", tag + 1)) {
      i = tag + 2;
      const char open = i < rest().size() ? rest()[i] : '\0';
      if (open == '-' || open == '+') ++i;
      skip_blanks();
      if (!rest().substr(i).starts_with("endraw")) continue;
      i += 6;
      skip_blanks();
      const char close = i < rest().size() ? rest()[i] : '\0';
      if (close == '-' || close == '+') ++i;
      if (!rest().substr(i).starts_with("%}")) continue;
      std::string_view data = rest().substr(0, tag);
      if (open == '-') {
        while (!data.empty() && is_blank(data.back())) data.remove_suffix(1);
      } else if (open != '+') {
        data = without_indent(data);
      }
      add_data(data);
      skip(i + 2);
      end_tag(close);
      return true;
    }
    refuse_at(line_, "raw without endraw");
  }

  void read_tag(std::string_view closing, Token::Kind open, Token::Kind close) {
    add(open, {});
    std::size_t brackets = 0;
    while (true) {
      while (at_ < source_.size() && is_blank(source_[at_])) skip(1);
      if (at_ == source_.size()) refuse_at(line_, "a tag without end");
      const bool has_sign =
          (source_[at_] == '-' || source_[at_] == '+') && rest().substr(1).starts_with(closing);
      if (brackets == 0 && (has_sign || rest().starts_with(closing))) {
        const char sign = has_sign ? source_[at_] : '\0';
        add(close, {});
        skip(has_sign ? 3 : 2);
        if (closing == "%}" || sign == '-') end_tag(sign);
        return;
      }
      const char c = source_[at_];
      if (c == '(' || c == '[' || c == '{') ++brackets;
      if ((c == ')' || c == ']' || c == '}') && brackets > 0) --brackets;
      read_word();
    }
  }

  void read_word() {
    const char c = source_[at_];
    if (is_name_start(c)) {
      std::size_t end = 1;
      while (end < rest().size() && (is_name_start(rest()[end]) || is_digit(rest()[end]))) ++end;
      add(Token::Kind::name, std::string(rest().substr(0, end)));
      skip(end);
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '\'' || c == '"') {
      read_string(c);
    } else {
      static constexpr std::string_view signs[] = {
          "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "|",
          "<",  ">",  "=",  ".",  ":",  ",",  "(", ")", "[", "]", "{", "}"};
      for (const std::string_view sign : signs) {
        if (!rest().starts_with(sign)) continue;
        add(Token::Kind::sign, std::string(sign));
        skip(sign.size());
        return;
      }
      refuse_at(line_, fmt::format("'{}' has no meaning here", c));
    }
  }

  void read_number() {
    std::size_t end = 0;
    std::string digits;
    const auto take = [&](auto accepts) {
      while (end < rest().size() && (accepts(rest()[end]) || (rest()[end] == '_' && end > 0))) {
        if (rest()[end] != '_') digits += rest()[end];
        ++end;
      }
    };
    const auto is_hex = [](char c) {
      return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    };
    int base = 10;
    if (rest().size() > 2 && rest()[0] == '0' &&
        std::string_view("xXoObB").find(rest()[1]) != std::string_view::npos) {
      base = (rest()[1] | 0x20) == 'x' ? 16 : (rest()[1] | 0x20) == 'o' ? 8 : 2;
      end = 2;
      take(is_hex);
    } else {
      take(is_digit);
    }
    bool is_real = false;
    if (base == 10 && end + 1 < rest().size() && rest()[end] == '.' && is_digit(rest()[end + 1])) {
      is_real = true;
      digits += '.';
      ++end;
      take(is_digit);
    }
    if (base == 10 && end < rest().size() && (rest()[end] | 0x20) == 'e') {
      std::size_t after = end + 1;
      if (after < rest().size() && (rest()[after] == '-' || rest()[after] == '+')) ++after;
      if (after < rest().size() && is_digit(rest()[after])) {
        is_real = true;
        digits += rest().substr(end, after - end);
        end = after;
        take(is_digit);
      }
    }
    std::int64_t value = 0;
    if (!is_real) {
      const auto [last, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
      if (error != std::errc() || last != digits.data() + digits.size()) {
        refuse_at(line_, fmt::format("the number {}", rest().substr(0, end)));
      }
      digits = fmt::format("{}", value);
    }
    add(is_real ? Token::Kind::real : Token::Kind::integer, std::move(digits));
    skip(end);
  }

  void read_string(char quote) {
    std::string text;
    std::size_t i = 1;
    for (; i < rest().size() && rest()[i] != quote; ++i) {
      if (rest()[i] != '\\' || i + 1 >= rest().size()) {
        text += rest()[i];
        continue;
      }
      ++i;
      i += append_escape(text, rest().substr(i)) - 1;
    }
    if (i >= rest().size()) refuse_at(line_, "a string without end");
    add(Token::Kind::string, std::move(text));
    skip(i + 1);
  }

  /// What "\" and `behind` stand for; how much of it belongs to that.
  static std::size_t append_escape(std::string& out, std::string_view behind) {
    static constexpr std::string_view names = "abfnrtv\\'\"", values = "\a\b\f\n\r\t\v\\'\"";
    const char c = behind.front();
    if (c == '\n') return 1;
    if (const std::size_t at = names.find(c); at != std::string_view::npos) {
      out += values[at];
      return 1;
    }
    const auto number = [&](std::size_t begin, std::size_t most, int base) {
      std::uint32_t value = 0;
      const std::string_view digits = behind.substr(begin, most);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
      return std::pair(value,
                       error == std::errc() ? static_cast<std::size_t>(end - digits.data()) : 0);
    };
    if (c >= '0' && c <= '7') {
      const auto [value, length] = number(0, 3, 8);
      append_utf8(out, value);
      return length;
    }
    const std::size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (wanted > 0) {
      const auto [value, length] = number(1, wanted, 16);
      if (length == wanted && value < 0x110000 && (value < 0xD800 || value > 0xDFFF)) {
        append_utf8(out, value);
        return 1 + length;
      }
    }
    out += '\\';
    out += c;
    return 1;
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

using Expr = Expression::Kind;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  std::vector<Statement> run() {
    auto body = parse_body({});
    return body;
  }

 private:
  /// Counts what is open.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > max_nesting) {
        throw Error(
            Errc::depth_limit, "chat template",
            fmt::format("line {}: more than {} nested parts", parser_.now().line, max_nesting));
      }
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  const Token& now() const { return tokens_[at_]; }
  Token take() { return std::move(tokens_[at_++]); }
  bool is_sign(std::string_view text) const {
    return now().kind == Token::Kind::sign && now().text == text;
  }
  bool is_name(std::string_view text) const {
    return now().kind == Token::Kind::name && now().text == text;
  }
  bool take_sign(std::string_view text) {
    if (!is_sign(text)) return false;
    ++at_;
    return true;
  }
  bool take_name(std::string_view text) {
    if (!is_name(text)) return false;
    ++at_;
    return true;
  }
  void expect_sign(std::string_view text) {
    if (!take_sign(text)) fail(fmt::format("'{}' is missing", text));
  }
  std::string expect_name() {
    if (now().kind != Token::Kind::name) fail("a name is missing");
    return take().text;
  }
  void expect(Token::Kind kind) {
    if (now().kind != kind) fail("the tag goes on where it should end");
    ++at_;
  }
  [[noreturn]] void fail(std::string_view message) const {
    const std::string found =
        now().text.empty() ? std::string() : fmt::format(", before '{}'", now().text);
    refuse_at(now().line, fmt::format("{}{}", message, found));
  }
  Expression make(Expr kind, std::string text = {}, std::vector<Expression> operands = {}) const {
    Expression made{
        .kind = kind, .line = now().line, .text = std::move(text), .operands = std::move(operands)};
    settle_depth(made);
    return made;
  }
  /// What walks through expressions recurses.
  void settle_depth(Expression& made) const {
    const auto look = [&](const Expression& part) {
      made.depth = std::max(made.depth, part.depth + 1);
    };
    for (const Expression& part : made.operands) look(part);
    for (const auto& [name, part] : made.named) look(part);
    if (made.depth <= max_tree) return;
    throw Error(Errc::depth_limit, "chat template",
                fmt::format("line {}: an expression of more than {} steps", now().line, max_tree));
  }
  static std::vector<Expression> both(Expression one, Expression other) {
    std::vector<Expression> made;
    made.push_back(std::move(one));
    made.push_back(std::move(other));
    return made;
  }

  /// Statements up to a block that begins with one of `ends`, whose name is not taken.
  std::vector<Statement> parse_body(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    std::vector<Statement> body;
    while (true) {
      switch (now().kind) {
        case Token::Kind::end:
          if (ends.size() > 0) fail(fmt::format("'{}' is missing", *ends.begin()));
          return body;
        case Token::Kind::data:
          body.push_back({.kind = Statement::Kind::data, .line = now().line, .text = now().text});
          ++at_;
          break;
        case Token::Kind::open: {
          Statement output{.kind = Statement::Kind::output, .line = take().line};
          output.expressions.push_back(parse_tuple());
          expect(Token::Kind::close);
          body.push_back(std::move(output));
          break;
        }
        default: {
          ++at_;  // the block's opening
          const auto is_end = [&](std::string_view name) { return is_name(name); };
          if (std::ranges::any_of(ends, is_end)) return body;
          parse_statement(body);
          break;
        }
      }
    }
  }

  void end_block(std::string_view name) {
    if (!take_name(name)) fail(fmt::format("'{}' is missing", name));
    if (name == "endmacro" && now().kind == Token::Kind::name) ++at_;
    expect(Token::Kind::close_block);
  }

  void parse_statement(std::vector<Statement>& body) {
    Statement statement{.line = now().line};
    const std::string tag = expect_name();
    if (tag == "if") {
      parse_if(statement);
    } else if (tag == "for") {
      parse_for(statement);
    } else if (tag == "set") {
      parse_set(statement);
    } else if (tag == "macro") {
      statement.kind = Statement::Kind::macro;
      statement.text = expect_name();
      parse_parameters(statement);
      parse_to_end(statement, "endmacro");
    } else if (tag == "call") {
      statement.kind = Statement::Kind::call_block;
      if (is_sign("(")) {
        parse_parameters(statement);
        if (!statement.expressions.empty()) fail("defaults of caller()");
      }
      statement.expressions.push_back(parse_expression());
      if (statement.expressions.front().kind != Expr::call)
        fail("call of something that is no call");
      parse_to_end(statement, "endcall");
    } else if (tag == "filter") {
      statement.kind = Statement::Kind::filter_block;
      statement.expressions.push_back(parse_filter(make(Expr::empty), true));
      parse_to_end(statement, "endfilter");
    } else if (tag == "with") {
      statement.kind = Statement::Kind::scope;
      while (now().kind != Token::Kind::close_block) {
        if (!statement.names.empty()) expect_sign(",");
        statement.names.push_back(expect_name());
        expect_sign("=");
        statement.expressions.push_back(parse_expression());
      }
      parse_to_end(statement, "endwith");
    } else if (tag == "generation") {  // marks what an assistant says, for training
      statement.kind = Statement::Kind::scope;
      parse_to_end(statement, "endgeneration");
    } else if (tag == "break" || tag == "continue") {
      statement.kind = tag == "break" ? Statement::Kind::break_ : Statement::Kind::continue_;
      expect(Token::Kind::close_block);
    } else {
      refuse_at(statement.line, fmt::format("the tag '{}'", tag));
    }
    body.push_back(std::move(statement));
  }

  void parse_to_end(Statement& statement, std::string_view end) {
    expect(Token::Kind::close_block);
    statement.bodies.push_back(parse_body({end}));
    end_block(end);
  }

  void parse_if(Statement& statement) {
    statement.kind = Statement::Kind::if_;
    statement.expressions.push_back(parse_tuple(false));
    while (true) {
      expect(Token::Kind::close_block);
      statement.bodies.push_back(parse_body({"endif", "elif", "else"}));
      if (take_name("elif")) {
        statement.expressions.push_back(parse_tuple(false));
      } else if (take_name("else")) {
        expect(Token::Kind::close_block);
        statement.bodies.push_back(parse_body({"endif"}));
        break;
      } else {
        break;
      }
    }
    end_block("endif");
  }

  void parse_for(Statement& statement) {
    statement.kind = Statement::Kind::for_;
    statement.targets.push_back(parse_target());
    if (!take_name("in")) fail("'in' is missing");
    statement.expressions.push_back(parse_tuple(false));
    statement.expressions.push_back(take_name("if") ? parse_expression() : make(Expr::empty));
    if (is_name("recursive")) fail("recursive loops");
    expect(Token::Kind::close_block);
    statement.bodies.push_back(parse_body({"endfor", "else"}));
    if (take_name("else")) {
      expect(Token::Kind::close_block);
      statement.bodies.push_back(parse_body({"endfor"}));
    }
    end_block("endfor");
  }

  void parse_set(Statement& statement) {
    statement.targets.push_back(parse_target());
    if (take_sign("=")) {
      statement.kind = Statement::Kind::set;
      statement.expressions.push_back(parse_tuple());
      expect(Token::Kind::close_block);
      return;
    }
    statement.kind = Statement::Kind::set_block;
    Expression filters = make(Expr::empty);
    while (is_sign("|")) filters = parse_filter(std::move(filters));
    statement.expressions.push_back(std::move(filters));
    parse_to_end(statement, "endset");
  }

  /// Names that are assigned to: one, an attribute of one, or several.
  Expression parse_target() {
    std::vector<Expression> targets;
    bool is_tuple = false;
    const bool has_brackets = take_sign("(");
    do {
      if (is_name("in") || is_sign("=") || is_sign(")")) break;
      Expression name = make(Expr::name, expect_name());
      if (take_sign(".")) {
        std::vector<Expression> of;
        of.push_back(std::move(name));
        name = make(Expr::attribute, expect_name(), std::move(of));
      }
      targets.push_back(std::move(name));
      is_tuple = is_tuple || is_sign(",");
    } while (take_sign(","));
    if (has_brackets) expect_sign(")");
    if (targets.empty()) fail("a name is missing");
    if (!is_tuple) return std::move(targets.front());
    return make(Expr::tuple, {}, std::move(targets));
  }

  void parse_parameters(Statement& statement) {
    expect_sign("(");
    while (!take_sign(")")) {
      if (!statement.names.empty()) expect_sign(",");
      if (take_sign(")")) return;
      statement.names.push_back(expect_name());
      if (take_sign("=")) {
        statement.expressions.push_back(parse_expression());
      } else if (!statement.expressions.empty()) {
        fail("a parameter without default behind one that has one");
      }
    }
  }

  /// Expressions with commas between them are a tuple.
  Expression parse_tuple(bool allows_condition = true) {
    const auto part = [&] { return allows_condition ? parse_expression() : parse_or(); };
    Expression first = part();
    if (!is_sign(",")) return first;
    std::vector<Expression> items;
    items.push_back(std::move(first));
    while (take_sign(",")) {
      if (now().kind == Token::Kind::close || now().kind == Token::Kind::close_block ||
          is_sign(")")) {
        break;
      }
      items.push_back(part());
    }
    return make(Expr::tuple, {}, std::move(items));
  }

  Expression parse_expression() {
    const Nesting nesting(*this);
    Expression value = parse_or();
    while (take_name("if")) {
      Expression condition = parse_or();
      std::vector<Expression> operands = both(std::move(value), std::move(condition));
      if (take_name("else")) operands.push_back(parse_expression());
      value = make(Expr::conditional, {}, std::move(operands));
    }
    return value;
  }

  Expression parse_or() {
    Expression left = parse_and();
    while (take_name("or")) left = make(Expr::binary, "or", both(std::move(left), parse_and()));
    return left;
  }
  Expression parse_and() {
    Expression left = parse_not();
    while (take_name("and")) left = make(Expr::binary, "and", both(std::move(left), parse_not()));
    return left;
  }
  Expression parse_not() {
    if (!take_name("not")) return parse_compare();
    const Nesting nesting(*this);
    std::vector<Expression> operand;
    operand.push_back(parse_not());
    return make(Expr::unary, "not", std::move(operand));
  }

  Expression parse_compare() {
    Expression left = parse_sum();
    std::optional<Expression> chain;  // "a < b < c" is "a < b and b < c"
    while (true) {
      std::string sign;
      for (const std::string_view one : {"==", "!=", "<", "<=", ">", ">="}) {
        if (is_sign(one)) sign = one;
      }
      if (is_name("in")) sign = "in";
      const bool is_not_in = is_name("not") && tokens_[at_ + 1].kind == Token::Kind::name &&
                             tokens_[at_ + 1].text == "in";
      if (is_not_in) sign = "not in";
      if (sign.empty()) break;
      at_ += is_not_in ? 2 : 1;
      Expression right = parse_sum();
      Expression next = make(Expr::compare, sign, both(std::move(left), right));
      left = std::move(right);
      chain = chain ? make(Expr::binary, "and", both(std::move(*chain), std::move(next)))
                    : std::move(next);
    }
    return chain ? std::move(*chain) : left;
  }

  template <class Next>
  Expression parse_chain(std::initializer_list<std::string_view> signs, const Next& next) {
    Expression left = next();
    while (true) {
      const auto found =
          std::ranges::find_if(signs, [&](std::string_view sign) { return is_sign(sign); });
      if (found == signs.end()) return left;
      ++at_;
      left = make(Expr::binary, std::string(*found), both(std::move(left), next()));
    }
  }
  Expression parse_sum() {
    return parse_chain({"+", "-"}, [&] {
      return parse_chain({"~"}, [&] {
        return parse_chain({"*", "/", "//", "%"},
                           [&] { return parse_chain({"**"}, [&] { return parse_unary(true); }); });
      });
    });
  }

  Expression parse_unary(bool with_filters) {
    Expression value;
    if (is_sign("-") || is_sign("+")) {
      const Nesting nesting(*this);
      const std::string sign = take().text;
      std::vector<Expression> operand;
      operand.push_back(parse_unary(false));
      value = make(Expr::unary, sign, std::move(operand));
    } else {
      value = parse_primary();
    }
    value = parse_postfix(std::move(value));
    while (with_filters) {
      if (is_sign("|")) {
        value = parse_filter(std::move(value));
      } else if (is_name("is")) {
        value = parse_test(std::move(value));
      } else if (is_sign("(")) {
        value = parse_call(std::move(value));
      } else {
        break;
      }
    }
    return value;
  }

  Expression parse_primary() {
    const Nesting nesting(*this);
    Expression made = make(Expr::literal);
    switch (now().kind) {
      case Token::Kind::name: {
        const std::string name = take().text;
        if (name == "true" || name == "True") {
          made.value = true;
        } else if (name == "false" || name == "False") {
          made.value = false;
        } else if (name == "none" || name == "None") {
          made.value = nullptr;
        } else {
          made.kind = Expr::name;
          made.text = name;
        }
        return made;
      }
      case Token::Kind::string: {
        std::string text;
        while (now().kind == Token::Kind::string) text += take().text;
        made.value = Text{std::move(text)};
        return made;
      }
      case Token::Kind::integer:
        made.value = *read_integer(take().text);
        return made;
      case Token::Kind::real:
        made.value = *read_real(take().text);
        return made;
      default:
        break;
    }
    if (take_sign("(")) {
      if (take_sign(")")) return make(Expr::tuple);
      Expression value = parse_tuple();
      expect_sign(")");
      return value;
    }
    if (take_sign("[")) {
      made.kind = Expr::list;
      while (!take_sign("]")) {
        if (!made.operands.empty()) expect_sign(",");
        if (take_sign("]")) break;
        made.operands.push_back(parse_expression());
      }
      settle_depth(made);
      return made;
    }
    if (take_sign("{")) {
      made.kind = Expr::dict;
      while (!take_sign("}")) {
        if (!made.operands.empty()) expect_sign(",");
        if (take_sign("}")) break;
        made.operands.push_back(parse_expression());
        expect_sign(":");
        made.operands.push_back(parse_expression());
      }
      settle_depth(made);
      return made;
    }
    fail("an expression is missing");
  }

  Expression parse_postfix(Expression value) {
    while (true) {
      std::vector<Expression> of;
      if (take_sign(".")) {
        of.push_back(std::move(value));
        if (now().kind == Token::Kind::integer) {
          Expression index = make(Expr::literal);
          index.value = *read_integer(take().text);
          of.push_back(std::move(index));
          value = make(Expr::item, {}, std::move(of));
        } else {
          value = make(Expr::attribute, expect_name(), std::move(of));
        }
      } else if (take_sign("[")) {
        of.push_back(std::move(value));
        value = parse_subscript(std::move(of));
      } else if (is_sign("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  Expression parse_subscript(std::vector<Expression> of) {
    const auto part = [&] {
      return is_sign(":") || is_sign("]") ? make(Expr::empty) : parse_expression();
    };
    Expression first = part();
    if (!is_sign(":")) {
      if (first.kind == Expr::empty) fail("an index is missing");
      expect_sign("]");
      of.push_back(std::move(first));
      return make(Expr::item, {}, std::move(of));
    }
    of.push_back(std::move(first));
    for (int i = 0; i < 2; ++i) of.push_back(take_sign(":") ? part() : make(Expr::empty));
    expect_sign("]");
    return make(Expr::slice, {}, std::move(of));
  }

  void parse_arguments(Expression& call) {
    expect_sign("(");
    bool is_first = true;
    while (!take_sign(")")) {
      if (!is_first) expect_sign(",");
      if (take_sign(")")) return;
      is_first = false;
      if (is_sign("*") || is_sign("**")) fail("arguments of a list or a dictionary");
      const bool is_named = now().kind == Token::Kind::name &&
                            tokens_[at_ + 1].kind == Token::Kind::sign &&
                            tokens_[at_ + 1].text == "=";
      if (is_named) {
        std::string name = take().text;
        ++at_;
        call.named.emplace_back(std::move(name), parse_expression());
      } else {
        if (!call.named.empty()) fail("an argument without name behind one that has one");
        call.operands.push_back(parse_expression());
      }
    }
  }
  Expression parse_call(Expression callee) {
    std::vector<Expression> of;
    of.push_back(std::move(callee));
    Expression call = make(Expr::call, {}, std::move(of));
    parse_arguments(call);
    settle_depth(call);
    return call;
  }
  /// One filter behind "|", or with `is_first` the first ones of a block, without it.
  Expression parse_filter(Expression value, bool is_first = false) {
    do {
      if (!is_first) expect_sign("|");
      is_first = false;
      std::vector<Expression> of;
      of.push_back(std::move(value));
      value = make(Expr::filter, expect_name(), std::move(of));
      while (take_sign(".")) value.text += "." + expect_name();
      if (is_sign("(")) parse_arguments(value);
      settle_depth(value);
    } while (is_sign("|"));
    return value;
  }
  Expression parse_test(Expression value) {
    ++at_;  // "is"
    const bool is_negated = take_name("not");
    std::vector<Expression> of;
    of.push_back(std::move(value));
    Expression test = make(Expr::test, expect_name(), std::move(of));
    const bool is_word = now().kind == Token::Kind::name;
    const bool begins_value = is_word || now().kind == Token::Kind::string ||
                              now().kind == Token::Kind::integer ||
                              now().kind == Token::Kind::real || is_sign("[") || is_sign("{");
    const bool is_operator =
        is_word && (is_name("else") || is_name("or") || is_name("and") || is_name("if") ||
                    is_name("is") || is_name("in") || is_name("not"));
    if (is_sign("(")) {
      parse_arguments(test);
    } else if (begins_value && !is_operator) {
      test.operands.push_back(parse_postfix(parse_primary()));
    }
    settle_depth(test);
    if (!is_negated) return test;
    std::vector<Expression> operand;
    operand.push_back(std::move(test));
    return make(Expr::unary, "not", std::move(operand));
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

std::vector<Statement> parse(std::string_view source) { return Parser(Lexer(source).run()).run(); }

}  // namespace tenon::text::jinja
