#include "jinja.hpp"

#include "jinja_numbers.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <deque>
#include <optional>

#include <fmt/format.h>

namespace tenon::text::jinja {
namespace {

constexpr std::int64_t max_steps = 20'000'000;                // evaluations
constexpr std::int64_t max_bytes = std::int64_t{1} << 28;     // of all texts that are made
constexpr std::int64_t max_repeated = std::int64_t{1} << 24;  // of one that is made by "*"
constexpr int max_depth = 400;                                // of what is evaluated at once
constexpr std::int64_t max_range = 100'000;                   // as Jinja's sandbox has it

/// Variables, and those around them.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string, Value>> values{};
  bool is_held = false;  // by a macro

  void set(std::string_view name, Value value) {
    const auto found = std::ranges::find(values, name, &std::pair<std::string, Value>::first);
    if (found != values.end()) {
      found->second = std::move(value);
    } else {
      values.emplace_back(name, std::move(value));
    }
  }
  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      const auto found =
          std::ranges::find(scope->values, name, &std::pair<std::string, Value>::first);
      if (found != scope->values.end()) return &found->second;
    }
    return nullptr;
  }
};

enum class Flow : std::uint8_t { next, stop, again };

[[noreturn]] void refuse_operands(std::string_view sign, const Value& left, const Value& right) {
  for (const Value* const one : {&left, &right}) {
    if (const auto* const missing = one->as<Undefined>()) {
      refuse(fmt::format("{} is undefined", missing->name));
    }
  }
  refuse(fmt::format("{} {} {}", left.type_name(), sign, right.type_name()));
}

Value repeated(const Value& value, std::int64_t count) {
  count = std::max<std::int64_t>(count, 0);
  if (const Text* const text = value.text()) {
    const auto size = static_cast<std::int64_t>(text->bytes.size());
    if (size > 0 && count > max_repeated / size) refuse("a text that is repeated too often");
    Text all;
    for (std::int64_t i = 0; i < count && size > 0; ++i) append(all, *text);
    return all;
  }
  const List& list = *value.list();
  const auto size = static_cast<std::int64_t>(list.items.size());
  if (size > 0 && count > max_range / size) refuse("a list that is repeated too often");
  std::vector<Value> all;
  for (std::int64_t i = 0; i < count && size > 0; ++i) {
    all.insert(all.end(), list.items.begin(), list.items.end());
  }
  return Value::list(std::move(all), list.is_tuple);
}

Value arithmetic(std::string_view sign, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return number_result(sign, left, right);
  if (sign == "+" && left.text() != nullptr && right.text() != nullptr) {
    Text joined = *left.text();
    append(joined, *right.text());
    return joined;
  }
  if (sign == "%" && left.text() != nullptr) {
    return percent_format(*left.text(), right);
  }
  const List *const one = left.list(), *const other = right.list();
  if (sign == "+" && one != nullptr && other != nullptr && one->is_tuple == other->is_tuple) {
    std::vector<Value> items = one->items;
    items.insert(items.end(), other->items.begin(), other->items.end());
    return Value::list(std::move(items), one->is_tuple);
  }
  const auto repeats = [](const Value& value) {
    return value.text() != nullptr || value.list() != nullptr;
  };
  if (sign == "*" && repeats(left) && right.is_integer()) return repeated(left, right.integer());
  if (sign == "*" && repeats(right) && left.is_integer()) return repeated(right, left.integer());
  refuse_operands(sign, left, right);
}

Value range_of(const Arguments& arguments) {
  std::int64_t begin = 0, end = 0, step = 1;
  const auto& given = arguments.values;
  const auto is_integer = [](const Value& value) { return value.is_integer(); };
  if (given.empty() || given.size() > 3 || !std::ranges::all_of(given, is_integer)) {
    refuse("range() takes one to three integers");
  }
  end = given[given.size() > 1 ? 1 : 0].integer();
  if (given.size() > 1) begin = given[0].integer();
  if (given.size() > 2) step = given[2].integer();
  if (step == 0) refuse("range() by steps of 0");
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(items.size()) == max_range) {
      refuse(fmt::format("range() of more than {} numbers", max_range));
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

std::vector<Entry> entries_of(const Arguments& arguments) {
  std::vector<Entry> entries;
  for (const Value& value : arguments.values) {
    if (value.dict() == nullptr) refuse(fmt::format("a dictionary of {}", value.type_name()));
    entries = value.dict()->entries;
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(Value::of(name), value);
  return entries;
}

Value joiner_of(const Arguments& arguments) {
  const Value separator = arguments.values.empty() ? Value::of(", ") : arguments.values.front();
  return Function{"joiner", [separator, is_used = std::make_shared<bool>(false)](const Arguments&) {
                    return std::exchange(*is_used, true) ? separator : Value::of("");
                  }};
}

class Renderer {
 public:
  explicit Renderer(std::vector<std::pair<std::string, Value>> variables) {
    top_.values = {
        {"range", Function{"range", range_of}},
        {"dict", Function{"dict", [](const Arguments& of) { return Value::dict(entries_of(of)); }}},
        {"namespace",
         Function{"namespace",
                  [](const Arguments& of) { return Value::name_space(entries_of(of)); }}},
        {"joiner", Function{"joiner", joiner_of}}};
    for (auto& [name, value] : variables) top_.set(name, std::move(value));
  }

  Text run(const std::vector<Statement>& body) {
    Text out;
    Scope& scope = inner(top_);
    run(body, scope, out);
    return out;
  }
  int line() const noexcept { return line_; }

 private:
  class Deeper {
   public:
    explicit Deeper(Renderer& renderer) : renderer_(renderer) {
      if (++renderer_.depth_ > max_depth) {
        throw Error(Errc::depth_limit, "chat template",
                    fmt::format("more than {} parts within each other", max_depth));
      }
      renderer_.spend(1, 0);
    }
    ~Deeper() { --renderer_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Renderer& renderer_;
  };

  void spend(std::int64_t steps, std::int64_t bytes) {
    steps_ += steps;
    bytes_ += bytes;
    if (steps_ <= max_steps && bytes_ <= max_bytes) return;
    throw Error(Errc::limit_exceeded, "chat template", "more work than a conversation can need");
  }
  /// For what is walked through: a step for some bytes of a text or items of a list.
  const Value& read(const Value& value) {
    constexpr std::int64_t bytes_of_step = 16, items_of_step = 2;
    if (value.text() != nullptr) spend(std::ssize(value.text()->bytes) / bytes_of_step, 0);
    if (value.list() != nullptr) spend(std::ssize(value.list()->items) / items_of_step, 0);
    return value;
  }
  /// For every item a step, and for what is new its bytes.
  Value paid(Value value) {
    if (const Text* const text = value.text()) spend(0, static_cast<std::int64_t>(size_of(*text)));
    if (const List* const list = value.list()) pay_items(list->items);
    if (value.dict() != nullptr) spend(std::ssize(value.dict()->entries), value.own_weight());
    return value;
  }
  void pay_items(const std::vector<Value>& items) {
    std::int64_t bytes = 0;
    for (const Value& item : items) bytes += item.own_weight();
    spend(std::ssize(items), bytes);
  }

  Scope& inner(Scope& scope) { return scopes_.emplace_back(Scope{.parent = &scope}); }
  /// Called when a scope of inner() has ended. The last one is given back, unless a macro may need it.
  void leave(Scope& scope) {
    if (&scopes_.back() == &scope && !scope.is_held) scopes_.pop_back();
  }

  Flow run(const std::vector<Statement>& body, Scope& scope, Text& out) {
    const Deeper deeper(*this);
    for (const Statement& statement : body) {
      const Flow flow = run(statement, scope, out);
      if (flow != Flow::next) return flow;
    }
    return Flow::next;
  }

  Flow run(const Statement& statement, Scope& scope, Text& out) {
    using Kind = Statement::Kind;
    line_ = statement.line;
    spend(1, 0);
    switch (statement.kind) {
      case Kind::data:
        put(out, Text{statement.text});
        return Flow::next;
      case Kind::output:
        put(out, to_text(evaluate(statement.expressions[0], scope)));
        return Flow::next;
      case Kind::if_:
        return run_if(statement, scope, out);
      case Kind::for_:
        run_for(statement, scope, out);
        return Flow::next;
      case Kind::set:
        assign(statement.targets[0], evaluate(statement.expressions[0], scope), scope);
        return Flow::next;
      case Kind::set_block: {
        Value value = captured(statement.bodies[0], scope);
        assign(statement.targets[0], filtered(statement.expressions[0], std::move(value), scope),
               scope);
        return Flow::next;
      }
      case Kind::macro:
        scope.set(statement.text, macro_of(statement, statement.text, scope));
        return Flow::next;
      case Kind::call_block:
        put(out,
            to_text(called(statement.expressions[0], scope, macro_of(statement, "caller", scope))));
        return Flow::next;
      case Kind::filter_block:
        put(out, to_text(filtered(statement.expressions[0], captured(statement.bodies[0], scope),
                                  scope)));
        return Flow::next;
      case Kind::scope: {
        Scope& own = inner(scope);
        for (std::size_t i = 0; i < statement.names.size(); ++i) {
          own.set(statement.names[i], evaluate(statement.expressions[i], scope));
        }
        const Flow flow = run(statement.bodies[0], own, out);
        leave(own);
        return flow;
      }
      case Kind::break_:
        return Flow::stop;
      case Kind::continue_:
        return Flow::again;
    }
    return Flow::next;
  }

  void put(Text& out, const Text& more) {
    spend(0, static_cast<std::int64_t>(size_of(more)));
    append(out, more);
  }

  Value captured(const std::vector<Statement>& body, Scope& scope) {
    Text text;
    Scope& own = inner(scope);
    run(body, own, text);
    leave(own);
    return text;
  }

  Flow run_if(const Statement& statement, Scope& scope, Text& out) {
    for (std::size_t i = 0; i < statement.bodies.size(); ++i) {
      const bool is_else = i == statement.expressions.size();
      if (is_else || evaluate(statement.expressions[i], scope).is_true()) {
        return run(statement.bodies[i], scope, out);
      }
    }
    return Flow::next;
  }

  void run_for(const Statement& statement, Scope& scope, Text& out) {
    const Value of = evaluate(statement.expressions[0], scope);
    std::vector<Value> items = items_of(of);
    pay_items(items);
    if (const Expression& condition = statement.expressions[1];
        condition.kind != Expression::Kind::empty) {
      std::vector<Value> kept;
      for (const Value& item : items) {
        Scope& own = inner(scope);
        assign(statement.targets[0], item, own);
        if (evaluate(condition, own).is_true()) kept.push_back(item);
        leave(own);
      }
      items = std::move(kept);
    }
    if (items.empty()) {
      if (statement.bodies.size() > 1) {
        Scope& own = inner(scope);
        run(statement.bodies[1], own, out);
        leave(own);
      }
      return;
    }
    auto loop = std::make_shared<Loop>();
    loop->items = std::make_shared<const List>(
        List{.items = std::move(items), .is_tuple = false, .extent = {}});
    const auto count = static_cast<std::int64_t>(loop->items->items.size());
    for (; loop->index < count; ++loop->index) {
      Scope& own = inner(scope);
      own.set("loop", loop);
      assign(statement.targets[0], loop->items->items[static_cast<std::size_t>(loop->index)], own);
      const Flow flow = run(statement.bodies[0], own, out);
      leave(own);
      if (flow == Flow::stop) break;
    }
  }

  void assign(const Expression& target, const Value& value, Scope& scope) {
    switch (target.kind) {
      case Expression::Kind::name:
        scope.set(target.text, value);
        return;
      case Expression::Kind::attribute: {
        const Value of = evaluate(target.operands[0], scope);
        if (of.dict() == nullptr || !of.dict()->is_namespace) {
          refuse(fmt::format("{}.{}: attributes of namespaces only can be set",
                             target.operands[0].text, target.text));
        }
        of.dict()->set(Value::of(target.text), value);
        return;
      }
      default: {
        const std::vector<Value> parts = items_of(value);
        if (parts.size() != target.operands.size()) {
          refuse(fmt::format("{} values for {} names", parts.size(), target.operands.size()));
        }
        for (std::size_t i = 0; i < parts.size(); ++i) assign(target.operands[i], parts[i], scope);
      }
    }
  }

  /// A function of a macro's statement, which lives as long as the template; `scope` is where it is defined.
  Value macro_of(const Statement& statement, std::string name, Scope& scope) {
    for (Scope* held = &scope; held != nullptr && !held->is_held; held = held->parent)
      held->is_held = true;
    return Function{std::move(name), [this, &statement, &scope](const Arguments& arguments) {
                      return run_macro(statement, scope, arguments);
                    }};
  }

  Value run_macro(const Statement& statement, Scope& defined, const Arguments& arguments) {
    const Deeper deeper(*this);
    Scope& own = inner(defined);
    const bool is_macro = statement.kind == Statement::Kind::macro;
    const std::size_t count = statement.names.size();
    const std::size_t defaults = is_macro ? statement.expressions.size() : 0;
    std::vector<Entry> others;
    for (const auto& [name, value] : arguments.named) {
      if (std::ranges::find(statement.names, name) != statement.names.end() || name == "caller") {
        own.set(name, value);
      } else {
        others.emplace_back(Value::of(name), value);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& name = statement.names[i];
      if (i < arguments.values.size()) {
        own.set(name, arguments.values[i]);
      } else if (std::ranges::find(own.values, name, &std::pair<std::string, Value>::first) !=
                 own.values.end()) {
        continue;
      } else if (i + defaults >= count) {
        own.set(name, evaluate(statement.expressions[i + defaults - count], own));
      } else {
        own.set(name, Value::undefined(name));
      }
    }
    std::vector<Value> rest;
    for (std::size_t i = count; i < arguments.values.size(); ++i)
      rest.push_back(arguments.values[i]);
    own.set("varargs", Value::list(std::move(rest), true));
    own.set("kwargs", Value::dict(std::move(others)));
    Text text;
    const int line = line_;
    run(statement.bodies[0], own, text);
    line_ = line;
    leave(own);
    return text;
  }

  Arguments arguments_of(const Expression& call, Scope& scope) {
    Arguments arguments;
    for (std::size_t i = 1; i < call.operands.size(); ++i) {
      arguments.values.push_back(evaluate(call.operands[i], scope));
    }
    for (const auto& [name, value] : call.named)
      arguments.named.emplace_back(name, evaluate(value, scope));
    return arguments;
  }

  Value called(const Expression& call, Scope& scope, const Value& caller = {}) {
    const Value callee = evaluate(call.operands[0], scope);
    if (const auto* const missing = callee.as<Undefined>()) {
      refuse(fmt::format("{} is undefined", missing->name));
    }
    if (callee.function() == nullptr) refuse(fmt::format("a call of {}", callee.type_name()));
    Arguments arguments = arguments_of(call, scope);
    if (!caller.is_undefined()) arguments.named.emplace_back("caller", caller);
    line_ = call.line;
    return paid(callee.function()->call(arguments));
  }

  /// `value` through the filters of a block, innermost first.
  Value filtered(const Expression& filters, Value value, Scope& scope) {
    if (filters.kind == Expression::Kind::empty) return value;
    Value inside = filtered(filters.operands[0], std::move(value), scope);
    return apply_filter(filters, inside, scope);
  }

  Value apply_filter(const Expression& expression, const Value& value, Scope& scope) {
    const Filter filter = find_filter(expression.text);
    if (filter == nullptr) refuse(fmt::format("no filter '{}'", expression.text));
    const Arguments arguments = arguments_of(expression, scope);
    line_ = expression.line;
    return paid(filter(read(value), arguments));
  }

  Value evaluate(const Expression& expression, Scope& scope) {
    using Kind = Expression::Kind;
    const Deeper deeper(*this);
    const auto operand = [&](std::size_t i) { return evaluate(expression.operands[i], scope); };
    switch (expression.kind) {
      case Kind::literal:
        return expression.value;
      case Kind::name: {
        const Value* const found = scope.find(expression.text);
        return found != nullptr ? *found : Value::undefined("'" + expression.text + "'");
      }
      case Kind::attribute: {
        const Value of = operand(0);
        line_ = expression.line;
        return attribute_of(read(of), expression.text);
      }
      case Kind::item: {
        const Value of = operand(0), key = operand(1);
        line_ = expression.line;
        return item_of(of.text() != nullptr ? read(of) : of, key);
      }
      case Kind::slice:
        return paid(slice_of(read(operand(0)), bound(expression, 1, scope),
                             bound(expression, 2, scope), bound(expression, 3, scope)));
      case Kind::call:
        return called(expression, scope);
      case Kind::filter:
        return apply_filter(expression, operand(0), scope);
      case Kind::test: {
        const Test test = find_test(expression.text);
        if (test == nullptr) refuse(fmt::format("no test '{}'", expression.text));
        const Value value = operand(0);
        const Arguments arguments = arguments_of(expression, scope);
        line_ = expression.line;
        return test(value, arguments);
      }
      case Kind::unary:
        return negated(expression.text, operand(0));
      case Kind::binary: {
        Value left = operand(0);
        if (expression.text == "and") return left.is_true() ? operand(1) : left;
        if (expression.text == "or") return left.is_true() ? left : operand(1);
        const Value right = operand(1);
        line_ = expression.line;
        if (expression.text != "~") return paid(arithmetic(expression.text, left, right));
        Text joined = to_text(left);
        append(joined, to_text(right));
        return paid(std::move(joined));
      }
      case Kind::compare: {
        const Value left = operand(0), right = operand(1);
        line_ = expression.line;
        return compared(expression.text, left, read(right));
      }
      case Kind::conditional:
        if (operand(1).is_true()) return operand(0);
        return expression.operands.size() > 2 ? operand(2)
                                              : Value::undefined("the conditional's value");
      case Kind::list:
      case Kind::tuple: {
        std::vector<Value> items;
        for (std::size_t i = 0; i < expression.operands.size(); ++i) items.push_back(operand(i));
        return Value::list(std::move(items), expression.kind == Kind::tuple);
      }
      case Kind::dict: {
        std::vector<Entry> entries;
        for (std::size_t i = 0; i < expression.operands.size(); i += 2) {
          Value key = operand(i);
          entries.emplace_back(std::move(key), operand(i + 1));
        }
        return Value::dict(std::move(entries));
      }
      case Kind::empty:
        break;
    }
    return {};
  }

  std::optional<std::int64_t> bound(const Expression& slice, std::size_t i, Scope& scope) {
    const Value value = evaluate(slice.operands[i], scope);
    if (slice.operands[i].kind == Expression::Kind::empty || value.is_none()) return std::nullopt;
    if (!value.is_integer()) refuse(fmt::format("a slice at {}", value.type_name()));
    return value.integer();
  }

  static Value slice_of(const Value& value, std::optional<std::int64_t> begin,
                        std::optional<std::int64_t> end, std::optional<std::int64_t> step) {
    const Text* const text = value.text();
    const List* const list = value.list();
    if (text == nullptr && list == nullptr) {
      if (value.is_undefined()) refuse_operands("[]", value, value);
      return Value::undefined(fmt::format("a slice of {}", value.type_name()));
    }
    const std::vector<std::size_t> places =
        text == nullptr ? std::vector<std::size_t>() : character_places(text->bytes);
    const auto size =
        static_cast<std::int64_t>(text == nullptr ? list->items.size() : places.size() - 1);
    const std::int64_t by = step.value_or(1);
    if (by == 0) refuse("a slice by steps of 0");
    const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
    const auto placed = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
      if (!at) return otherwise;
      const std::int64_t from_begin = *at < 0 ? std::max(*at, -size - 1) + size : *at;
      return std::clamp(from_begin, low, high);
    };
    const std::int64_t first = placed(begin, by > 0 ? low : high),
                       last = placed(end, by > 0 ? high : low);
    if (text != nullptr && by == 1) {
      if (first >= last) return Text{};
      return part_of(*text, places[static_cast<std::size_t>(first)],
                     places[static_cast<std::size_t>(last)]);
    }
    Text characters;
    std::vector<Value> items;
    for (std::int64_t i = first; by > 0 ? i < last : i > last; i += by) {
      const auto at = static_cast<std::size_t>(i);
      if (text != nullptr) {
        append(characters, part_of(*text, places[at], places[at + 1]));
      } else {
        items.push_back(list->items[at]);
      }
      if ((by > 0 && by > last - i) || (by < 0 && by < last - i)) break;
    }
    if (text != nullptr) return characters;
    return Value::list(std::move(items), list->is_tuple);
  }

  static Value negated(std::string_view sign, const Value& value) {
    if (sign == "not") return !value.is_true();
    if (value.is_integer()) {
      return sign == "-" ? number_result("-", std::int64_t{0}, value) : Value(value.integer());
    }
    if (value.is_number()) return sign == "-" ? -value.number() : value.number();
    refuse_operands(sign, value, value);
  }

  static Value compared(std::string_view sign, const Value& left, const Value& right) {
    if (sign == "==") return are_equal(left, right);
    if (sign == "!=") return !are_equal(left, right);
    if (sign == "in") return is_in(left, right);
    if (sign == "not in") return !is_in(left, right);
    if (left.is_undefined() || right.is_undefined()) refuse_operands(sign, left, right);
    if (sign == "<") return is_less(left, right);
    if (sign == ">") return is_less(right, left);
    return sign == "<=" ? is_at_most(left, right) : is_at_most(right, left);
  }

  Scope top_;
  std::deque<Scope> scopes_;  // addresses stay: macros refer to them
  int depth_ = 0, line_ = 1;
  std::int64_t steps_ = 0, bytes_ = 0;
};

}  // namespace

Text Template::render(std::vector<std::pair<std::string, Value>> variables) const {
  Renderer renderer(std::move(variables));
  try {
    return renderer.run(*body_);
  } catch (const Error& error) {
    const bool is_of_a_line = error.code() == Errc::template_error ||
                              error.code() == Errc::limit_exceeded ||
                              error.code() == Errc::depth_limit;
    if (!is_of_a_line) throw;
    throw Error(error.code(), "chat template",
                fmt::format("line {}: {}", renderer.line(), error.message()));
  }
}

}  // namespace tenon::text::jinja
