#include "answer_syntax.hpp"
#include "base/utf8.hpp"
#include "call_grammar.hpp"
#include "loose_value.hpp"

#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/text/chat_answer.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

/// Whether a piece of a pattern is this slot.
bool is_slot(std::string_view piece, char which) { return piece.size() == 1 && piece[0] == which; }

bool begins_as_mark(std::string_view piece) {
  return piece.size() > 2 && std::string_view("<[]").find(piece.front()) != std::string_view::npos;
}

/// The functions that a model may call, and the types of their arguments.
class Tools {
 public:
  explicit Tools(const SchemaValue& values) : tools_(tools_of(values)) {}

  const std::vector<ToolSchema>& list() const noexcept { return tools_; }
  bool has(std::string_view name) const {
    return std::ranges::find(tools_, name, &ToolSchema::name) != tools_.end();
  }

  /// The longest of the names that the text begins with; empty without one.
  std::string_view name_at(std::string_view text) const {
    std::string_view longest;
    for (const auto& [name, schema] : tools_) {
      if (text.starts_with(name) && name.size() > longest.size()) longest = name;
    }
    return longest;
  }

  /// Whether an argument is a text; unset where its tool says nothing of it.
  std::optional<bool> is_text(std::string_view tool, std::string_view argument) const {
    const auto found = std::ranges::find(tools_, tool, &ToolSchema::name);
    if (found == tools_.end()) return std::nullopt;
    const SchemaValue* const properties = found->parameters.find("properties");
    const SchemaValue* const property =
        properties == nullptr ? nullptr : properties->find(argument);
    const SchemaValue* const type = property == nullptr ? nullptr : property->find("type");
    if (type == nullptr) return std::nullopt;
    const auto names_text = [](const SchemaValue& one) {
      return one.is_string() && one.text == "string";
    };
    if (!type->is_array()) return names_text(*type);
    // One of several types: a text unless it can be read as a value of another.
    if (std::ranges::none_of(type->items, names_text)) return false;
    return type->items.size() == 1 ? std::optional(true) : std::nullopt;
  }

 private:
  std::vector<ToolSchema> tools_;
};

/// The pieces of a syntax's patterns, by what they are looked for.
struct Marks {
  explicit Marks(const AnswerSyntax& syntax) {
    const CallSyntax& call = syntax.call;
    opening = pieces_of(call.opening);
    between = pieces_of(call.between);
    closing = pieces_of(call.closing);
    if (call.next) {
      for (const std::string& piece : pieces_of(*call.next)) {
        // What stands before a call belongs to the next one.
        if (std::ranges::find(opening, piece) == opening.end()) closing.push_back(piece);
      }
    }
    ends = closing;
    closing.insert(closing.end(), syntax.call_ends.begin(), syntax.call_ends.end());
    continue_bare =
        call.form == CallSyntax::Form::json && call.next && pieces_of(*call.next).empty();
    key_begin = pieces_of(call.key_begin);
    for (const std::string& piece : opening) {
      if (begins_as_mark(piece)) triggers.push_back(piece);
    }
    if (triggers.empty() && !opening.empty())
      triggers.push_back(opening.front());  // Firefunction's functools[
    if (call.form == CallSyntax::Form::channels) {
      triggers = {"<|start|>", "<|channel|>", "<|message|>"};
    }
    if (syntax.has_reasoning && !syntax.reasoning_begin.empty())
      triggers.push_back(syntax.reasoning_begin);
    // Some answers have the end of reasoning that the prompt has ended already.
    if (!syntax.reasoning_end.empty()) triggers.push_back(syntax.reasoning_end);
    triggers.insert(triggers.end(), syntax.content_marks.begin(), syntax.content_marks.end());
  }

  std::vector<std::string> opening, between, key_begin;
  std::vector<std::string> ends;      ///< marks behind a call's arguments
  std::vector<std::string> closing;   ///< these, and tokens that end a turn
  std::vector<std::string> triggers;  ///< what ends a run of content
  bool continue_bare = false;         ///< a JSON value follows another one without marks
};

enum class State : std::uint8_t { whole, cut, none };

/// Reads one answer.
class AnswerReader {
 public:
  AnswerReader(const AnswerSyntax& syntax, const Marks& marks, const Tools& tools,
               std::string_view text, bool is_whole)
      : syntax_(syntax), marks_(marks), tools_(tools), text_(text), is_whole_(is_whole) {}

  ChatAnswer read() {
    if (syntax_.call.form == CallSyntax::Form::channels) {
      read_channels();
    } else {
      if (syntax_.starts_reasoning) {
        at_ = skip_space(text_, at_);
        if (rest().starts_with(syntax_.reasoning_begin)) {
          at_ += syntax_.reasoning_begin.size();
        } else if (!is_whole_ && syntax_.reasoning_begin.starts_with(rest())) {
          take_rest();
          return std::move(answer_);
        }
        read_reasoning();
      }
      read_parts();
    }
    answer_.content = without_space_at_marks();
    answer_.reasoning = trimmed(answer_.reasoning);
    return std::move(answer_);
  }

 private:
  std::string_view rest() const { return text_.substr(std::min(at_, text_.size())); }
  bool is_end() const { return at_ >= text_.size(); }

  /// Something other than content stands here: a mark, a call or reasoning.
  void note_mark() {
    last_mark_ = answer_.content.size();
    if (!first_mark_) first_mark_ = last_mark_;
  }

  /// The content without the white space at its ends that templates write around marks. Other white space is the model's,
  /// or a grammar's, and goes on with an answer that has begun. An answer that grows ends with none: a mark may follow.
  std::string without_space_at_marks() const {
    const std::string_view content = answer_.content;
    const std::size_t begin = skip_space(content, 0);
    const std::size_t end = begin == content.size() ? 0 : begin + trimmed(content).size();
    const bool ends_at_mark = !is_whole_ || (last_mark_ && *last_mark_ >= end);
    const bool begins_at_mark = first_mark_ && *first_mark_ <= begin;
    const std::string_view kept = content.substr(0, ends_at_mark ? end : content.size());
    return std::string(kept.substr(begins_at_mark ? std::min(begin, kept.size()) : 0));
  }

  /// The end of `text` that may be the beginning of a mark, as long as more may come.
  std::size_t held_back(std::string_view text, const std::vector<std::string>& marks) const {
    std::size_t held = 0;
    if (is_whole_) return held;
    for (const std::string& mark : marks) {
      for (std::size_t size = std::min(mark.size() - 1, text.size()); size > held; --size) {
        if (text.ends_with(std::string_view(mark).substr(0, size))) held = size;
      }
    }
    return held;
  }

  void take_rest() {
    if (!is_end()) note_mark();
    answer_.rest = rest();
    at_ = text_.size();
  }

  /// From behind its beginning to behind its end, or to the end of the text.
  void read_reasoning() {
    note_mark();
    const std::size_t end = text_.find(syntax_.reasoning_end, at_);
    std::string& to = answer_.reasoning;
    if (!to.empty()) to += '\n';
    if (end != std::string_view::npos) {
      to += text_.substr(at_, end - at_);
      at_ = end + syntax_.reasoning_end.size();
      return;
    }
    const std::size_t held = held_back(rest(), {syntax_.reasoning_end});
    to += rest().substr(0, rest().size() - held);
    at_ = text_.size() - held;
    take_rest();
  }

  /// The first mark from here on, of those that begin at one place the longest; null without one. Where each stands next is
  /// kept, so that an answer full of marks is searched once.
  const std::string* next_trigger() {
    places_.resize(marks_.triggers.size(), 0);
    const std::string* found = nullptr;
    std::size_t next = text_.size();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const std::string& mark = marks_.triggers[i];
      if (places_[i] <= at_) places_[i] = std::min(text_.find(mark, at_), text_.size());
      const bool is_longer = found != nullptr && mark.size() > found->size();
      if (places_[i] > next || (places_[i] == next && !is_longer)) continue;
      next = places_[i];
      found = &mark;
    }
    return found;
  }

  void read_parts() {
    while (!is_end()) {
      if (begins_bare_call()) {
        if (const State state = read_calls(); state == State::cut) return take_rest();
      }
      const std::string* const found = next_trigger();
      if (found == nullptr) {
        const std::size_t held = held_back(rest(), marks_.triggers);
        answer_.content += rest().substr(0, rest().size() - held);
        at_ = text_.size() - held;
        return take_rest();
      }
      const std::size_t next = text_.find(*found, at_);
      answer_.content += text_.substr(at_, next - at_);
      at_ = next;
      if (*found == syntax_.reasoning_begin) {
        at_ += found->size();
        read_reasoning();
      } else if (*found == syntax_.reasoning_end ||
                 std::ranges::find(syntax_.content_marks, *found) != syntax_.content_marks.end()) {
        note_mark();
        at_ += found->size();
      } else {
        const State state = read_calls();
        if (state == State::cut) return take_rest();
        if (state == State::none) {
          answer_.content += *found;
          at_ += found->size();
        }
      }
    }
  }

  /// Whether a call without marks may stand here: where nothing but reasoning came before. Other JSON is an answer, so that
  /// only tools can be called.
  bool begins_bare_call() const {
    const CallSyntax& call = syntax_.call;
    const bool can_be = call.form == CallSyntax::Form::json ||
                        (call.form == CallSyntax::Form::python && call.is_list);
    if (!can_be || !marks_.opening.empty() || tools_.list().empty()) return false;
    const std::size_t at = skip_space(text_, at_);
    if (at == text_.size() || text_[at] != (call.is_list ? '[' : '{')) return false;
    return skip_space(answer_.content, 0) == answer_.content.size();
  }

  /// One call or several, with the marks around them. Moves behind them unless there is none.
  State read_calls() {
    const std::size_t begin = at_;
    // Texts that look like calls again and again are not read to their ends each time.
    constexpr int most_failures = 256;
    if (failures_ >= most_failures) return State::none;
    State state = read_marked_call();
    // Marks alone at the end of an answer are words about them.
    if (state == State::cut && is_whole_ && skip_space(text_, at_) == text_.size())
      state = State::none;
    if (state != State::whole) {
      ++failures_;
      at_ = begin;
      return state;
    }
    note_mark();
    while (!is_end()) {
      const std::size_t behind = skip_all(marks_.closing, at_);
      at_ = skip_space(text_, behind);
      if (is_end()) break;
      const std::size_t next = at_;
      if (!is_whole_ &&
          (is_beginning(rest(), marks_.closing) || is_beginning(rest(), marks_.opening))) {
        return State::cut;
      }
      state = marks_.continue_bare ? read_json() : read_marked_call();
      if (state == State::whole) continue;
      at_ = state == State::cut ? next : behind;
      return state == State::cut ? State::cut : State::whole;
    }
    return State::whole;
  }

  static bool is_beginning(std::string_view text, const std::vector<std::string>& pieces) {
    return std::ranges::any_of(pieces,
                               [&](std::string_view piece) { return piece.starts_with(text); });
  }

  /// Behind as many of the pieces as stand there, in any order.
  std::size_t skip_all(const std::vector<std::string>& pieces, std::size_t at) const {
    for (bool is_found = true; is_found;) {
      is_found = false;
      for (const std::string& piece : pieces) {
        const std::size_t begin = skip_space(text_, at);
        if (piece.size() > 1 && text_.substr(begin).starts_with(piece)) {
          at = begin + piece.size();
          is_found = true;
        }
      }
    }
    return at;
  }

  /// A call from the marks before it to the end of its arguments.
  State read_marked_call() {
    using Form = CallSyntax::Form;
    const CallSyntax& call = syntax_.call;
    if (call.form == Form::none) return State::none;
    ToolCall made;
    std::size_t found = 0;
    bool has_last = marks_.opening.empty();
    for (std::size_t i = 0; i < marks_.opening.size(); ++i) {
      const std::string& piece = marks_.opening[i];
      const std::size_t begin = skip_space(text_, at_);
      if (is_slot(piece, slot::id) || is_slot(piece, slot::number)) {
        if (found == 0) continue;
        const std::string_view own = text_.substr(
            begin, end_of_word(begin, i + 1 < marks_.opening.size() ? marks_.opening[i + 1]
                                                                    : std::string()) -
                       begin);
        if (is_slot(piece, slot::id)) made.id = own;
        at_ = begin + own.size();
        has_last = has_last || i + 1 == marks_.opening.size();
      } else if (text_.substr(begin).starts_with(piece)) {
        at_ = begin + piece.size();
        ++found;
        has_last = i + 1 == marks_.opening.size() || has_last;
      } else if (std::string_view(piece).starts_with(text_.substr(begin))) {
        return State::cut;
      }
    }
    const bool needs_last = call.form == Form::object || call.form == Form::parameters;
    if (!marks_.opening.empty() && (found == 0 || (needs_last && !has_last))) return State::none;
    if (call.form == Form::json) return read_json();
    if (call.form == Form::python) return read_python();
    return read_named(std::move(made));
  }

  /// The end of a name or an id: before white space, brackets, quotes, and what follows in the pattern.
  std::size_t end_of_word(std::size_t at, std::string_view next) const {
    std::size_t end = text_.find_first_of(" \n\r\t<>{}()[]\"'", at);
    if (end == std::string_view::npos) end = text_.size();
    if (next.size() == 1 && next[0] <= slot::key) next = {};
    if (!next.empty())
      end = std::min(end, at + std::min(text_.substr(at, end - at).find(next), end - at));
    return end;
  }

  State read_json() {
    const std::size_t begin = skip_space(text_, at_);
    if (begin < text_.size() && text_[begin] != '{' && text_[begin] != '[') return State::none;
    SchemaValue value;
    std::size_t end = at_;
    const LooseState state = read_loose(text_, end, value);
    if (state == LooseState::cut) return State::cut;
    if (state == LooseState::malformed) return State::none;
    std::vector<ToolCall> calls;
    const auto add = [&](const SchemaValue& one) {
      std::optional<ToolCall> made = from_json(one);
      if (made) calls.push_back(std::move(*made));
      return made.has_value();
    };
    const bool is_right = value.is_array() ? std::ranges::all_of(value.items, add) : add(value);
    if (!is_right || calls.empty() || !may_be_called(calls)) return State::none;
    at_ = end;
    std::ranges::move(calls, std::back_inserter(answer_.calls));
    return State::whole;
  }

  /// Calls without marks are told from other text by their names.
  bool may_be_called(const std::vector<ToolCall>& calls) const {
    return !marks_.opening.empty() ||
           std::ranges::all_of(calls, [&](const ToolCall& call) { return tools_.has(call.name); });
  }

  static const SchemaValue* at_path(const SchemaValue& value,
                                    const std::vector<std::string>& path) {
    const SchemaValue* at = &value;
    for (const std::string& name : path) {
      at = at->find(name);
      if (at == nullptr) return nullptr;
    }
    return path.empty() ? nullptr : at;
  }

  std::optional<ToolCall> from_json(const SchemaValue& value) const {
    const CallSyntax& call = syntax_.call;
    if (!value.is_object()) return std::nullopt;
    if (call.name_is_key) {
      if (value.members.size() != 1 || !value.members[0].second.is_object()) return std::nullopt;
      return ToolCall{value.members[0].first, value.members[0].second.dump()};
    }
    const SchemaValue* const name = at_path(value, call.name_path);
    if (name == nullptr || !name->is_string() || name->text.empty()) return std::nullopt;
    const SchemaValue* arguments = at_path(value, call.arguments_path);
    // Models write one word for the other.
    for (const char* const other : {"arguments", "parameters"}) {
      if (arguments == nullptr) arguments = value.find(other);
    }
    ToolCall made{name->text, "{}"};
    if (arguments != nullptr && arguments->is_string()) {
      SchemaValue inner;
      std::size_t at = 0;
      if (read_loose(arguments->text, at, inner) != LooseState::whole || !inner.is_object()) {
        return std::nullopt;
      }
      made.arguments = inner.dump();
    } else if (arguments != nullptr && arguments->is_object()) {
      made.arguments = arguments->dump();
    } else if (arguments != nullptr && arguments->kind != SchemaValue::Kind::null) {
      return std::nullopt;
    }
    if (const SchemaValue* const id = at_path(value, call.id_path)) {
      made.id = id->is_string() ? id->text : id->dump();
    }
    return made;
  }

  /// name(key=value, ...), or a list of them.
  State read_python() {
    std::vector<ToolCall> calls;
    at_ = skip_space(text_, at_);
    if (is_end()) return State::cut;
    const bool is_list = text_[at_] == '[';
    if (syntax_.call.is_list && !is_list) return State::none;
    if (is_list) ++at_;
    do {
      at_ = skip_space(text_, at_);
      if (is_end()) return State::cut;
      const std::size_t open = end_of_word(at_, "(");
      if (open == text_.size()) return State::cut;
      if (open == at_ || text_[open] != '(') return State::none;
      ToolCall made{std::string(text_.substr(at_, open - at_)), {}};
      at_ = open + 1;
      SchemaValue arguments{.kind = SchemaValue::Kind::object};
      if (const State state = read_named_arguments(arguments); state != State::whole) return state;
      drop_repeated(arguments.members);
      made.arguments = arguments.dump();
      calls.push_back(std::move(made));
      at_ = skip_space(text_, at_);
      if (is_list && is_end()) return State::cut;
    } while (is_list && text_[at_] == ',' && ++at_ > 0);
    if (is_list) {
      if (text_[at_] != ']') return State::none;
      ++at_;
    }
    if (!may_be_called(calls)) return State::none;
    std::ranges::move(calls, std::back_inserter(answer_.calls));
    return State::whole;
  }

  /// From behind ( to behind ).
  State read_named_arguments(SchemaValue& arguments) {
    for (;;) {
      at_ = skip_space(text_, at_);
      if (is_end()) return State::cut;
      if (text_[at_] == ')') {
        ++at_;
        return State::whole;
      }
      const std::size_t equals = end_of_word(at_, "=");
      if (equals == text_.size()) return State::cut;
      if (equals == at_ || text_[equals] != '=') return State::none;
      const std::string name(text_.substr(at_, equals - at_));
      at_ = equals + 1;
      SchemaValue value;
      const LooseState state = read_loose(text_, at_, value);
      if (state != LooseState::whole) return state == LooseState::cut ? State::cut : State::none;
      arguments.members.emplace_back(name, std::move(value));
      at_ = skip_space(text_, at_);
      if (is_end()) return State::cut;
      if (text_[at_] == ',') {
        ++at_;
      } else if (text_[at_] != ')') {
        return State::none;
      }
    }
  }

  State read_named(ToolCall made) {
    const CallSyntax& call = syntax_.call;
    at_ = skip_space(text_, at_);
    if (is_end()) return State::cut;
    const std::string_view known = tools_.name_at(rest());
    const std::size_t end =
        end_of_word(at_, marks_.between.empty() ? std::string_view() : marks_.between.front());
    // A known name may have what ends others; one that goes on is another name.
    const std::size_t name_end = known.size() > end - at_ ? at_ + known.size() : end;
    if (name_end == text_.size()) return State::cut;
    if (name_end == at_) return State::none;
    made.name = text_.substr(at_, name_end - at_);
    at_ = name_end;
    for (std::size_t i = 0; i < marks_.between.size(); ++i) {
      const std::string& piece = marks_.between[i];
      const std::size_t begin = skip_space(text_, at_);
      if (is_slot(piece, slot::name)) {
        if (text_.substr(begin).starts_with(made.name)) at_ = begin + made.name.size();
      } else if (is_slot(piece, slot::number) || is_slot(piece, slot::id)) {
        const std::size_t word = end_of_word(begin, i + 1 < marks_.between.size()
                                                        ? std::string_view(marks_.between[i + 1])
                                                        : std::string_view());
        if (is_slot(piece, slot::id)) made.id = text_.substr(begin, word - begin);
        at_ = word;
      } else if (text_.substr(begin).starts_with(piece)) {
        at_ = begin + piece.size();
      } else if (std::string_view(piece).starts_with(text_.substr(begin))) {
        return State::cut;
      }
    }
    SchemaValue arguments{.kind = SchemaValue::Kind::object};
    const State state = call.form == CallSyntax::Form::object
                            ? read_object(arguments)
                            : read_parameters(made.name, arguments);
    if (state != State::whole) return state;
    drop_repeated(arguments.members);
    made.arguments = arguments.dump();
    answer_.calls.push_back(std::move(made));
    return State::whole;
  }

  State read_object(SchemaValue& arguments) {
    const LooseState state = read_loose(text_, at_, arguments, syntax_.call.quote);
    if (state == LooseState::cut) return State::cut;
    return state == LooseState::whole && arguments.is_object() ? State::whole : State::none;
  }

  State read_parameters(std::string_view tool, SchemaValue& arguments) {
    for (;;) {
      const std::size_t begin = skip_space(text_, at_);
      std::size_t at = begin;
      bool has_key = true;
      for (const std::string& piece : marks_.key_begin) {
        const std::size_t place = skip_space(text_, at);
        has_key = has_key && text_.substr(place).starts_with(piece);
        if (has_key) at = place + piece.size();
      }
      // A key's mark may begin as the end of a call does: <...><KEY>, <...></call>.
      if (has_key && at == text_.size()) return State::cut;
      has_key = has_key && text_[at] != '/';
      if (!has_key) return end_of_parameters(text_.substr(begin));
      at_ = at;
      if (const State state = read_parameter(tool, arguments); state != State::whole) return state;
    }
  }

  /// Whether a call ends before `left`: where its closing marks follow.
  State end_of_parameters(std::string_view left) const {
    const auto begins = [&](const std::vector<std::string>& pieces) {
      return std::ranges::any_of(pieces,
                                 [&](const std::string& piece) { return left.starts_with(piece); });
    };
    if (begins(marks_.ends)) return State::whole;
    const bool may_go_on =
        is_beginning(left, marks_.ends) || trimmed(syntax_.call.key_begin).starts_with(left);
    if (marks_.ends.empty()) return may_go_on && !is_whole_ ? State::cut : State::whole;
    return may_go_on ? State::cut : State::none;
  }

  /// The text up to a mark, and moves behind it; nothing where there is none.
  std::optional<std::string_view> text_until(std::string_view mark) {
    const std::size_t end = text_.find(mark, at_);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + mark.size();
    return found;
  }

  /// From the key to behind the value's end.
  State read_parameter(std::string_view tool, SchemaValue& arguments) {
    const CallSyntax& call = syntax_.call;
    const std::optional<std::string_view> name = text_until(trimmed(call.key_end));
    if (!name) return State::cut;
    const std::string key(trimmed(*name));
    if (key.empty() || key.find_first_of("<>\n") != std::string::npos) return State::none;
    std::optional<bool> is_text = tools_.is_text(tool, key);
    std::string_view before = call.key_end;
    if (!call.text_type.empty()) {
      before = call.type_end;
      const std::optional<std::string_view> type = text_until(trimmed(before));
      if (!type) return State::cut;
      is_text = *type == call.text_type;
    }
    // A line break that the template writes before or behind a value is none of the value's.
    if (before.ends_with('\n') && rest().starts_with('\n')) ++at_;
    std::string ending;
    for (const char c : call.value_end) {
      if (c == slot::key) {
        ending += key;
      } else {
        ending += c;
      }
    }
    // A text within JSON may have the mark, too.
    SchemaValue read;
    std::size_t end = at_;
    if (!is_text.value_or(false)) {
      const LooseState state = read_loose(text_, end, read);
      if (state == LooseState::cut && !is_whole_) return State::cut;
      end = skip_space(text_, end);
      if (state == LooseState::whole && text_.substr(end).starts_with(trimmed(ending))) {
        at_ = end + trimmed(ending).size();
        arguments.members.emplace_back(key, std::move(read));
        return State::whole;
      }
    }
    // XML's way to write a text with marks in it.
    constexpr std::string_view open = "<![CDATA[", close = "]]>";
    std::optional<std::string_view> value;
    if (rest().starts_with(open)) {
      value = text_until(std::string(close) + std::string(trimmed(ending)));
      if (value) value->remove_prefix(open.size());
    }
    if (!value) value = text_until(trimmed(ending));
    if (!value) return State::cut;
    if (ending.starts_with('\n') && value->ends_with('\n')) value->remove_suffix(1);
    arguments.members.emplace_back(
        key, SchemaValue{.kind = SchemaValue::Kind::string, .text = std::string(*value)});
    return State::whole;
  }

  /// Messages of gpt-oss: [<|start|>assistant][ to=functions.NAME]<|channel|>NAME[ to=...][ ...]<|message|>TEXT and an end.
  void read_channels() {
    constexpr std::string_view message = "<|message|>";
    const std::vector<std::string> ends{"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
    if (is_whole_ && text_.find("<|") == std::string_view::npos) {  // without any marks
      answer_.content = text_;
      return;
    }
    while (!is_end()) {
      const std::size_t header_end = text_.find(message, at_);
      if (header_end == std::string_view::npos) return take_rest();
      const std::string_view header = text_.substr(at_, header_end - at_);
      const std::size_t begin = header_end + message.size();
      std::size_t end = text_.size(), behind = end;
      for (std::size_t at = text_.find("<|", begin); at < text_.size() && end == text_.size();
           at = text_.find("<|", at + 1)) {
        for (const std::string& mark : ends) {
          if (!text_.substr(at).starts_with(mark)) continue;
          end = at;
          behind = mark == "<|start|>" ? at : at + mark.size();
        }
      }
      const bool has_end = end < text_.size();
      std::string_view body = text_.substr(begin, end - begin);
      if (!has_end) body.remove_suffix(held_back(body, ends));
      note_mark();
      if (!take_message(header, body, has_end)) return take_rest();
      if (has_end) note_mark();
      at_ = has_end ? behind : begin + body.size();
      if (!has_end) return take_rest();
    }
  }

  /// False where it is the call of a function and not complete.
  bool take_message(std::string_view header, std::string_view body, bool has_end) {
    if (const std::size_t to = header.find("to="); to != std::string_view::npos) {
      std::string_view name = header.substr(to + 3);
      name = name.substr(0, name.find_first_of(" <"));
      if (name.starts_with("functions.")) name.remove_prefix(10);
      SchemaValue arguments;
      std::size_t at = 0;
      const LooseState state = read_loose(body, at, arguments);
      if (state != LooseState::whole || !arguments.is_object() || name.empty()) {
        if (state == LooseState::cut && !has_end) return false;
        answer_.content += body;
        return true;
      }
      answer_.calls.push_back({std::string(name), arguments.dump()});
      return true;
    }
    std::string& part =
        header.find("analysis") == std::string_view::npos ? answer_.content : answer_.reasoning;
    if (!part.empty()) part += '\n';
    part += body;
    return true;
  }

  const AnswerSyntax& syntax_;
  const Marks& marks_;
  const Tools& tools_;
  std::string_view text_;
  bool is_whole_;
  std::size_t at_ = 0;
  std::vector<std::size_t> places_;  // of triggers, at or behind at_
  int failures_ = 0;
  std::optional<std::size_t> first_mark_, last_mark_;  // where they stand in the content
  ChatAnswer answer_;
};

}  // namespace

struct AnswerFormat::Impl {
  Impl(const ChatFormat& format, const SchemaValue& values)
      : syntax(answer_syntax(format, values)),
        marks(syntax),
        tools(values),
        stops(format.stop_tokens()) {
    for (const std::string& end : syntax.call_ends) {
      if (std::ranges::find(stops, end) == stops.end()) stops.push_back(end);
    }
    // GigaChat 3 begins calls by what ends other turns.
    std::erase_if(stops, [&](const std::string& stop) {
      return syntax.call.opening.find(stop) != std::string::npos;
    });
    const auto keep = [&](const std::string& piece) {
      if (piece.size() > 1 && std::ranges::find(preserved, piece) == preserved.end())
        preserved.push_back(piece);
    };
    for (const auto* const list :
         {&marks.opening, &marks.between, &marks.closing, &marks.triggers}) {
      std::ranges::for_each(*list, keep);
    }
    for (const Pattern& pattern :
         {syntax.call.key_begin, syntax.call.key_end, syntax.call.type_end, syntax.call.value_end,
          syntax.call.quote, syntax.reasoning_end}) {
      std::ranges::for_each(pieces_of(pattern), keep);
    }
    if (syntax.call.form == CallSyntax::Form::channels) {
      for (const char* const mark : {"<|end|>", "<|call|>", "<|return|>", "<|constrain|>"})
        keep(mark);
    }
  }

  AnswerSyntax syntax;
  Marks marks;
  Tools tools;
  std::vector<std::string> stops, preserved;
};

ChatMessage ChatAnswer::message() const {
  return with_memory_errors("chat answer", [&] {
    SchemaValue more{.kind = SchemaValue::Kind::object};
    const auto text = [](std::string_view bytes) {
      return SchemaValue{.kind = SchemaValue::Kind::string, .text = std::string(bytes)};
    };
    if (!reasoning.empty()) more.member("reasoning_content") = text(reasoning);
    if (!calls.empty()) {
      SchemaValue list{.kind = SchemaValue::Kind::array};
      for (const ToolCall& call : calls) {
        SchemaValue function{.kind = SchemaValue::Kind::object},
            one{.kind = SchemaValue::Kind::object};
        function.member("name") = text(call.name);
        function.member("arguments") = parse_schema(call.arguments, "ChatAnswer");
        one.member("id") =
            text(call.id.empty() ? fmt::format("call{:05}", list.items.size()) : call.id);
        one.member("type") = text("function");
        one.member("function") = std::move(function);
        list.items.push_back(std::move(one));
      }
      more.member("tool_calls") = std::move(list);
    }
    return ChatMessage{"assistant", content, more.members.empty() ? std::string() : more.dump()};
  });
}

AnswerFormat::AnswerFormat(const ChatFormat& format, std::string_view values) {
  impl_ = with_memory_errors("AnswerFormat", [&] {
    SchemaValue parsed;
    if (!values.empty()) {
      parsed = parse_schema(values, "AnswerFormat");
      if (!parsed.is_object()) {
        throw Error(Errc::bad_argument, "AnswerFormat", "a JSON value that is no object");
      }
    }
    return std::make_shared<const Impl>(format, parsed);
  });
}

bool AnswerFormat::has_reasoning() const { return impl_->syntax.has_reasoning; }

bool AnswerFormat::has_calls() const { return impl_->syntax.call.form != CallSyntax::Form::none; }

ChatAnswer AnswerFormat::read(std::string_view text, bool is_whole) const {
  return with_memory_errors("AnswerFormat", [&] {
    if (!is_utf8(text)) throw Error(Errc::bad_encoding, "AnswerFormat", "the answer is not UTF-8");
    return AnswerReader(impl_->syntax, impl_->marks, impl_->tools, text, is_whole).read();
  });
}

std::string_view AnswerFormat::reasoning_end() const { return impl_->syntax.reasoning_end; }

bool AnswerFormat::starts_in_reasoning() const { return impl_->syntax.starts_reasoning; }

std::string AnswerFormat::call_mark() const {
  return with_memory_errors("AnswerFormat", [&] {
    const std::vector<std::string>& pieces = impl_->marks.opening;
    return pieces.empty() || !begins_as_mark(pieces.front()) ? std::string() : pieces.front();
  });
}

Grammar AnswerFormat::call_grammar(const CallGrammarOptions& options) const {
  return with_memory_errors("AnswerFormat", [&] {
    return Grammar::parse(text::call_grammar(impl_->syntax.call, impl_->tools.list(), options));
  });
}

const std::vector<std::string>& AnswerFormat::stop_tokens() const { return impl_->stops; }

const std::vector<std::string>& AnswerFormat::preserved_tokens() const { return impl_->preserved; }

}  // namespace tenon::text
