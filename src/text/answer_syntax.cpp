#include "answer_syntax.hpp"

#include "loose_value.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

// Texts of the samples, which no template has by itself.
constexpr std::string_view sample_question = "tenonquestion", sample_content = "tenoncontent",
                           sample_reasoning = "tenonreasoning";
constexpr std::string_view first_name = "tenonfirst", second_name = "tenonsecond";
constexpr std::string_view first_id = "tenoncal1", second_id = "tenoncal2";  // 9 letters: Mistral's
constexpr std::string_view text_key = "tenontext", number_key = "tenonnumber";
constexpr std::string_view text_value = "tenonvalue", number_value = "735190264";

// Templates are texts of strangers: beyond these it is no sample of a call.
constexpr std::size_t max_sample = 64 * 1024, max_pieces = 64;

std::size_t common_prefix(std::string_view one, std::string_view other) {
  const auto [end, unused] = std::ranges::mismatch(one, other);
  return static_cast<std::size_t>(end - one.begin());
}

std::size_t common_suffix(std::string_view one, std::string_view other) {
  const auto [end, unused] = std::mismatch(one.rbegin(), one.rend(), other.rbegin(), other.rend());
  return static_cast<std::size_t>(end - one.rbegin());
}

bool is_mark(std::string_view piece) {
  return piece.size() > 2 && ((piece.front() == '<' && piece.back() == '>') ||
                              (piece.front() == '[' && piece.back() == ']'));
}

std::string replaced(std::string_view text, std::string_view what, char by) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t found = what.empty() ? std::string_view::npos : text.find(what, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += by;
    at = found + what.size();
  }
}

/// A text around a call as a pattern: with slots for its own name and id.
Pattern with_slots(std::string_view text, std::string_view name, std::string_view id) {
  return replaced(replaced(text, name, slot::name), id, slot::id);
}

/// One pattern of two, which differ by a number at most.
Pattern with_number(const Pattern& one, const Pattern& other) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t begin = common_prefix(one, other);
  if (begin == one.size() && begin == other.size()) return one;
  while (begin > 0 && is_digit(one[begin - 1])) --begin;
  std::size_t end = begin, other_end = begin;
  while (end < one.size() && is_digit(one[end])) ++end;
  while (other_end < other.size() && is_digit(other[other_end])) ++other_end;
  if (end == begin || other_end == begin || one.substr(end) != other.substr(other_end)) return one;
  return one.substr(0, begin) + slot::number + one.substr(end);
}

/// Where a value of JSON with `what` in it begins, and its end.
struct Extent {
  std::size_t begin = std::string_view::npos, end = 0;
  SchemaValue value{};
  bool is_found() const noexcept { return begin != std::string_view::npos; }
};

Extent value_around(std::string_view text, std::size_t from, std::size_t what,
                    std::string_view quote = {}) {
  for (std::size_t at = text.find_first_of("{[", from); at < what;
       at = text.find_first_of("{[", at + 1)) {
    std::size_t end = at;
    SchemaValue value;
    if (read_loose(text, end, value, quote) == LooseState::whole && end > what) {
      return {at, end, std::move(value)};
    }
  }
  return {};
}

/// The path to a member that `is_it` accepts, from the outside in.
template <class IsIt>
bool find_path(const SchemaValue& value, const IsIt& is_it, std::vector<std::string>& path) {
  for (const auto& [name, member] : value.members) {
    path.push_back(name);
    if (is_it(member) || find_path(member, is_it, path)) return true;
    path.pop_back();
  }
  return false;
}

std::string json_of_call(std::string_view name, std::string_view id, std::string_view arguments) {
  return fmt::format(R"({{"type":"function","id":"{}","function":{{"name":"{}","arguments":{}}}}})",
                     id, name, arguments);
}

class SyntaxFinder {
 public:
  SyntaxFinder(const ChatFormat& format, const SchemaValue& values)
      : format_(format), values_(values), sample_values_(values) {
    const auto tool = [](std::string_view name) {
      return fmt::format(
          R"({{"type":"function","function":{{"name":"{}","description":"A tool.","parameters":{{"type":"object",)"
          R"("properties":{{"{}":{{"type":"string","description":"A text."}},"{}":{{"type":"integer",)"
          R"("description":"A number."}}}},"required":["{}"]}}}}}})",
          name, text_key, number_key, text_key);
    };
    sample_values_.kind = SchemaValue::Kind::object;
    sample_values_.member("tools") =
        parse_schema("[" + tool(first_name) + "," + tool(second_name) + "]");
  }

  AnswerSyntax find() {
    prompt_ = render({}, true, sample_values_).value_or(std::string());
    plain_ = render({"assistant", std::string(sample_content)}).value_or(std::string());
    if (format_.source().find("<|channel|>") != std::string_view::npos &&
        format_.source().find("<|message|>") != std::string_view::npos) {
      found_.call.form = CallSyntax::Form::channels;
      found_.call.body = std::string("<|channel|>commentary to=functions.") + slot::name +
                         " <|constrain|>json<|message|>" + slot::arguments;
      found_.has_reasoning = true;
      found_.reasoning_end = "<|channel|>final<|message|>";
      found_.call_ends = {"<|call|>"};
      return std::move(found_);
    }
    find_reasoning();
    find_content_marks();
    find_call();
    const CallSyntax& call = found_.call;
    for (const Pattern& part :
         {call.opening, call.between, call.closing, call.next.value_or(Pattern())}) {
      if (pieces_of(part).size() > max_pieces) found_.call = {};
    }
    if (found_.call.form == CallSyntax::Form::none) assume_call();
    return std::move(found_);
  }

 private:
  /// The sample conversation with an answer, or up to the assistant's turn. Nothing where the template refuses it.
  std::optional<std::string> render(const ChatMessage& answer, bool prompt,
                                    const SchemaValue& values) {
    std::vector<ChatMessage> messages{{"user", std::string(sample_question)}};
    if (!prompt) messages.push_back(answer);
    try {
      std::string text =
          format_.format(messages, prompt, values.is_object() ? values.dump() : std::string()).text;
      if (text.size() > max_sample) return std::nullopt;
      return text;
    } catch (const Error& error) {
      if (error.code() == Errc::out_of_memory) throw;
      return std::nullopt;
    }
  }
  std::optional<std::string> render(const ChatMessage& answer) {
    return render(answer, false, sample_values_);
  }

  void find_reasoning() {
    const std::string more = fmt::format(
        R"({{"reasoning_content":"{0}","reasoning":"{0}","thinking":"{0}"}})", sample_reasoning);
    const ChatMessage answer{"assistant", std::string(sample_content), more};
    SchemaValue thinking = sample_values_;
    for (const char* const name : {"enable_thinking", "thinking"}) {
      thinking.member(name) = {.kind = SchemaValue::Kind::boolean, .flag = true};
    }
    for (const SchemaValue* const values : {&sample_values_, &thinking}) {
      const std::optional<std::string> text = render(answer, false, *values);
      const std::size_t at = text ? text->find(sample_reasoning) : std::string::npos;
      const std::size_t end = text ? text->find(sample_content, at) : std::string::npos;
      if (at == std::string::npos || end == std::string::npos) continue;
      set_reasoning(std::string_view(*text).substr(0, at),
                    std::string_view(*text).substr(at + sample_reasoning.size(),
                                                   end - at - sample_reasoning.size()));
      break;
    }
    if (!found_.has_reasoning && format_.source().find("</think>") != std::string_view::npos) {
      set_reasoning("<think>", "</think>");
    }
    const std::string prompt = render({}, true, values_).value_or(prompt_);
    found_.starts_reasoning = found_.has_reasoning && !found_.reasoning_begin.empty() &&
                              trimmed(prompt).ends_with(found_.reasoning_begin);
  }

  /// Of the texts before and behind it.
  void set_reasoning(std::string_view before, std::string_view behind) {
    const auto line = [](std::string_view text, bool last) {
      const std::size_t at = last ? text.rfind('\n') : text.find('\n');
      if (at == std::string_view::npos) return text;
      return last ? text.substr(at + 1) : text.substr(0, at);
    };
    const std::vector<std::string> first = pieces_of(before), second = pieces_of(behind);
    if (first.empty() || second.empty()) return;
    found_.reasoning_begin =
        is_mark(first.back()) ? first.back() : std::string(line(trimmed(before), true));
    found_.reasoning_end =
        is_mark(second.front()) ? second.front() : std::string(line(trimmed(behind), false));
    // Earlier answers may show no more than its end: what the prompt has beyond them begins it.
    const std::string_view prompt = prompt_;
    if (prompt.starts_with(before)) {
      std::vector<std::string> more = pieces_of(prompt.substr(before.size()));
      std::erase(more, found_.reasoning_end);
      if (!more.empty() && is_mark(more.back())) found_.reasoning_begin = more.back();
    }
    found_.has_reasoning = true;
  }

  void find_content_marks() {
    const std::size_t at = plain_.find(sample_content);
    if (at == std::string::npos) return;
    const std::size_t begin = std::min(common_prefix(plain_, prompt_), at);
    const auto add = [&](const std::string& piece) {
      if (is_mark(piece) && piece != found_.reasoning_begin && piece != found_.reasoning_end) {
        found_.content_marks.push_back(piece);
      }
    };
    std::ranges::for_each(pieces_of(std::string_view(plain_).substr(begin, at - begin)), add);
    std::vector<std::string> behind =
        pieces_of(std::string_view(plain_).substr(at + sample_content.size()));
    if (!behind.empty()) behind.pop_back();  // the end of the turn
    std::ranges::for_each(behind, add);
  }

  /// Some templates drop the content beside calls, or take none.
  enum class Content : std::uint8_t { text, empty, null };

  /// What the assistant writes for these calls, behind its content; nothing without the name of each of them.
  std::optional<std::string> sample(std::initializer_list<std::string> calls, Content beside) {
    std::string list;
    for (const std::string& call : calls) list += (list.empty() ? "" : ",") + call;
    const std::string null = beside == Content::null ? R"("content":null,)" : "";
    const std::optional<std::string> text =
        render({"assistant", std::string(beside == Content::text ? sample_content : ""),
                "{" + null + R"("tool_calls":[)" + list + "]}"});
    if (!text) return std::nullopt;
    const std::size_t shared = common_prefix(*text, plain_);
    const std::size_t place = text->find(sample_content);
    std::size_t begin = 0;
    if (place != std::string::npos) {
      begin = place + sample_content.size();
    } else {
      // Where it begins to differ from an answer without calls, at the beginning of a mark.
      begin = std::min(shared, text->size());
      const std::size_t open =
          begin == 0 ? std::string::npos : text->find_last_of("<[>]\n", begin - 1);
      if (open != std::string::npos && ((*text)[open] == '<' || (*text)[open] == '[')) begin = open;
    }
    std::string behind = text->substr(begin);
    if (behind.find(first_name) == std::string::npos) return std::nullopt;
    return behind;
  }

  void find_call() {
    const std::string values[] = {
        fmt::format(R"({{"{}":"{}","{}":{}}})", text_key, text_value, number_key, number_value),
        fmt::format(R"({{"{}":"{}"}})", text_key, text_value)};
    for (const Content beside : {Content::text, Content::empty, Content::null}) {
      const auto one = sample({json_of_call(first_name, first_id, values[0])}, beside);
      if (!one) continue;
      const auto two = sample({json_of_call(first_name, first_id, values[0]),
                               json_of_call(second_name, second_id, values[1])},
                              beside);
      const bool has_two = two && two->find(second_name) != std::string::npos;
      AnswerSyntax before = found_;
      found_.call = {};
      read_call(*one, has_two ? *two : std::string());
      // Nemotron Nano 2 ends the turn between content and calls, which a model cannot do.
      const bool is_first = before.call.form == CallSyntax::Form::none;
      if (!is_first && (found_.call.form == CallSyntax::Form::none || opens_behind_turn())) {
        found_ = std::move(before);
      }
      if (found_.call.form != CallSyntax::Form::none && !opens_behind_turn()) return;
    }
  }

  /// What the template writes behind an answer without calls.
  std::string_view turn_end() const {
    const std::size_t at = plain_.find(sample_content);
    return at == std::string::npos
               ? std::string_view()
               : trimmed(std::string_view(plain_).substr(at + sample_content.size()));
  }

  bool opens_behind_turn() const {
    const std::vector<std::string> pieces = pieces_of(turn_end());
    return !pieces.empty() && found_.call.opening.find(pieces.front()) != std::string::npos;
  }

  void read_call(std::string_view one, std::string_view two) {
    CallSyntax& call = found_.call;
    const std::size_t name = one.find(first_name);
    const std::size_t name_end = name + first_name.size();
    const std::size_t key = one.find(text_key, name);
    if (const Extent json = value_around(one, 0, name); json.is_found() && read_json(json.value)) {
      call.form = CallSyntax::Form::json;
      find_body(one, two, json.begin, json.end, name);
      finish(one, two, json.begin, json.begin, json.end);
    } else if (key == std::string_view::npos) {
      return;
    } else if (one.substr(name_end).starts_with("(")) {
      call.is_list = name > 0 && one[name - 1] == '[';
      if (!call.is_list && !has_mark(one.substr(0, name))) return;
      call.form = CallSyntax::Form::python;
      const std::size_t end = one.find(')', one.find(number_value, key));
      if (end == std::string_view::npos) return;
      const std::size_t begin = call.is_list ? name - 1 : name;
      finish(one, two, begin, begin, end + (call.is_list ? 2 : 1));
    } else {
      if (!has_mark(one.substr(0, name))) return;
      const std::size_t value = one.find(text_value, key);
      if (value == std::string_view::npos) return;
      // {key:<quote>value<quote>, ...}
      const std::size_t colon = one.substr(0, value).rfind(':');
      std::string_view quote;
      if (colon != std::string_view::npos && colon > key) {
        quote = trimmed(one.substr(colon + 1, value - colon - 1));
        if (quote == "\"") quote = {};
      }
      if (const Extent object = value_around(one, name_end, key, quote);
          object.is_found() && object.value.contains(text_key)) {
        call.form = CallSyntax::Form::object;
        call.quote = quote;
        call.between =
            with_slots(one.substr(name_end, object.begin - name_end), first_name, first_id);
        finish(one, two, name, object.begin, object.end);
        call.body = slot::name + call.between + slot::arguments;
      } else {
        read_parameters(one, two, name, name_end);
      }
    }
  }

  /// Whether a call with its name before the arguments can be told from content.
  static bool has_mark(std::string_view opening) {
    const std::vector<std::string> pieces = pieces_of(opening);
    return !pieces.empty() &&
           std::string_view("<[]").find(pieces.front().front()) != std::string_view::npos;
  }

  bool read_json(const SchemaValue& value) {
    CallSyntax& call = found_.call;
    call.is_list = value.is_array();
    if (call.is_list && value.items.empty()) return false;
    const SchemaValue& one = call.is_list ? value.items.front() : value;
    call.name_is_key = one.contains(first_name);
    if (call.name_is_key) return true;
    const auto is_text = [](std::string_view text) {
      return
          [text](const SchemaValue& member) { return member.is_string() && member.text == text; };
    };
    find_path(one, is_text(first_id), call.id_path);
    return find_path(one, is_text(first_name), call.name_path) &&
           find_path(
               one,
               [](const SchemaValue& member) {
                 return member.is_object() && member.contains(text_key);
               },
               call.arguments_path);
  }

  /// The pattern of a call in JSON whose value is [begin, end) of the text; empty without arguments in it.
  static Pattern body_of(std::string_view text, std::size_t begin, std::size_t end,
                         std::string_view name, std::string_view id) {
    const std::size_t key = text.find(text_key, begin);
    Extent arguments;  // the innermost object around the key
    for (Extent outer = value_around(text, begin, key); outer.is_found();
         outer = value_around(text, outer.begin + 1, key)) {
      arguments = std::move(outer);
    }
    if (!arguments.is_found() || arguments.end > end) return {};
    return with_slots(text.substr(begin, arguments.begin - begin), name, id) + slot::arguments +
           with_slots(text.substr(arguments.end, end - arguments.end), name, id);
  }

  /// Sets the body of a call in the JSON value [begin, end) of `one`, and of a list what stands around it.
  void find_body(std::string_view one, std::string_view two, std::size_t begin, std::size_t end,
                 std::size_t name) {
    CallSyntax& call = found_.call;
    if (call.is_list) {
      const Extent item = value_around(one, begin + 1, name);
      if (!item.is_found()) return;
      call.list_begin = one.substr(begin, item.begin - begin);
      call.list_separator = call.list_begin.size() > 1 ? "," + call.list_begin.substr(1) : ", ";
      call.list_end = one.substr(item.end, end - item.end);
      begin = item.begin;
      end = item.end;
    }
    call.body = body_of(one, begin, end, first_name, first_id);
    const std::size_t second = two.find(second_name);
    if (second == std::string_view::npos || second < end) return;
    const Extent other = value_around(two, end, second);
    if (other.is_found()) {
      if (call.is_list) call.list_separator = two.substr(end, other.begin - end);
      call.body =
          with_number(call.body, body_of(two, other.begin, other.end, second_name, second_id));
    }
  }

  /// Sets what stands around a call: its first part begins at `begin` (the name's, or the value's), its arguments are
  /// [arguments, end) of `one`. `two` has a second call, with its name and id.
  void finish(std::string_view one, std::string_view two, std::size_t begin, std::size_t arguments,
              std::size_t end) {
    CallSyntax& call = found_.call;
    using Form = CallSyntax::Form;
    call.opening = with_slots(one.substr(0, begin), first_name, first_id);
    std::string_view closing = one.substr(std::min(end, one.size()));
    const bool is_behind_name = call.form == Form::object || call.form == Form::parameters;
    if (!two.empty() && two.substr(0, end) == one.substr(0, end) && !call.is_list) {
      // From the arguments of the first call to the name or the value of the second one.
      const std::size_t name = two.find(second_name, end);
      std::size_t second = name;
      if (call.form == Form::json) second = value_around(two, end, name).begin;
      if (second != std::string_view::npos) {
        call.next = with_slots(two.substr(end, second - end), second_name, second_id);
        if (is_behind_name) {
          const std::size_t from = name + second_name.size();
          const std::size_t size = two.find(text_key, from);
          if (size != std::string_view::npos) {
            const std::string other = with_slots(
                two.substr(from, std::min(arguments - begin - first_name.size(), size - from)),
                second_name, second_id);
            call.between = with_number(call.between, other);
          }
        }
      }
    }
    set_number();
    // The end of the turn is the same without calls, or follows the last of their marks.
    const std::vector<std::string> pieces = pieces_of(closing);
    std::size_t cut = std::string_view::npos;
    for (const std::string& mark : pieces_of(turn_end())) {
      const std::size_t place = closing.find(mark);
      if (place >= cut) continue;
      cut = place;
      if (is_mark(mark)) found_.call_ends = {mark};
    }
    if (cut == std::string_view::npos && !pieces.empty() && is_mark(pieces.back()) &&
        !pieces.back().starts_with("</") &&
        (!call.next || call.next->find(pieces.back()) == std::string::npos)) {
      found_.call_ends.push_back(pieces.back());
      cut = closing.rfind(pieces.back());
    }
    closing = closing.substr(0, cut);
    call.closing = with_slots(closing, first_name, first_id);
    // Llama 3 writes it before calls, and its template does not.
    constexpr std::string_view python_tag = "<|python_tag|>";
    if (pieces_of(call.opening).empty() &&
        format_.source().find(python_tag) != std::string_view::npos) {
      found_.content_marks.emplace_back(python_tag);
    }
  }

  /// A number before the name, which the next call counts on.
  void set_number() {
    CallSyntax& call = found_.call;
    const std::string own(trimmed(call.opening));
    if (!call.next || call.next->size() < own.size()) return;
    const Pattern numbered = with_number(own, call.next->substr(call.next->size() - own.size()));
    if (numbered == own) return;
    call.next = call.next->substr(0, call.next->size() - own.size()) + numbered;
    call.opening = numbered;
  }

  void read_parameters(std::string_view one, std::string_view two, std::size_t name,
                       std::size_t behind) {
    CallSyntax& call = found_.call;
    const std::size_t key = one.find(text_key, behind), value = one.find(text_value, key);
    const std::size_t other_key = one.find(number_key, value),
                      other = one.find(number_value, other_key);
    if (other == std::string_view::npos) return;
    const std::string_view before = one.substr(behind, key - behind);
    const auto between = [&](std::size_t at, std::string_view what, std::size_t end) {
      return one.substr(at + what.size(), end - at - what.size());
    };
    const std::string from_value =
        replaced(between(value, text_value, other_key), text_key, slot::key);
    const std::string_view common =
        before.substr(before.size() - common_suffix(before, from_value));
    // MiniMax M3 writes ]<]minimax[>[<KEY>: a mark before the mark.
    std::size_t mark = common.find_last_of("<[");
    if (mark != std::string_view::npos) mark = std::min(mark, common.find("]<"));
    if (mark == std::string_view::npos) return;
    call.key_begin = common.substr(mark);
    call.between =
        with_slots(before.substr(0, before.size() - call.key_begin.size()), first_name, first_id);
    const std::string_view text_end = between(key, text_key, value);
    const std::string_view number_end = between(other_key, number_key, other);
    const std::size_t head = common_prefix(text_end, number_end);
    if (head == text_end.size()) {
      call.key_end = text_end;
    } else {
      const std::size_t tail = common_suffix(text_end.substr(head), number_end.substr(head));
      call.key_end = text_end.substr(0, head);
      call.text_type = text_end.substr(head, text_end.size() - head - tail);
      call.type_end = text_end.substr(text_end.size() - tail);
      if (call.text_type.empty() || call.type_end.empty()) return;
    }
    const std::string ends =
        replaced(one.substr(other + number_value.size()), number_key, slot::key);
    call.value_end = from_value.substr(
        0, common_prefix(
               std::string_view(from_value).substr(0, from_value.size() - call.key_begin.size()),
               ends));
    // What is shared with the end of the call is no part of the argument's: it ends with its mark.
    const std::size_t last = call.value_end.find_last_of(">]");
    if (last == std::string::npos) return;
    call.value_end.resize(last + 1);
    call.has_marks_between = !trimmed(std::string_view(from_value)
                                          .substr(0, from_value.size() - call.key_begin.size())
                                          .substr(call.value_end.size()))
                                  .empty();
    const std::size_t end =
        other + number_value.size() + call.value_end.size() +
        (call.value_end.find(slot::key) == std::string::npos ? 0 : number_key.size() - 1);
    call.form = CallSyntax::Form::parameters;
    finish(one, two, name, key - call.key_begin.size(), end);
  }

  /// Templates that take tools and leave calls to the model's content: by the marks that they mention.
  void assume_call() {
    found_.call = {};
    struct Known {
      std::string_view mark, end;
      CallSyntax::Form form;
      bool is_list;
    };
    constexpr Known known[] = {
        {"<|tool_call_start|>", "<|tool_call_end|>", CallSyntax::Form::python, true},  // LFM2
        {"<|tool_list_start|>", "<|tool_call_end|>", CallSyntax::Form::python, true},
        {"<|tool_call|>", "", CallSyntax::Form::json, true},             // Granite 3
        {"<tool_call>", "</tool_call>", CallSyntax::Form::json, false},  // SmolLM3
    };
    for (const Known& one : known) {
      if (format_.source().find(one.mark) == std::string_view::npos) continue;
      CallSyntax& call = found_.call;
      call.form = one.form;
      call.opening = one.mark == "<|tool_list_start|>" ? "<|tool_call_start|>" : one.mark;
      call.list_begin = "[";
      call.list_separator = ", ";
      call.list_end = "]";
      call.body =
          std::string(R"({"name": ")") + slot::name + R"(", "arguments": )" + slot::arguments + "}";
      call.closing = one.end;
      call.is_list = one.is_list;
      call.name_path = {"name"};
      call.arguments_path = {"arguments"};
      if (!one.is_list) call.next = call.closing + "\n" + call.opening;
      return;
    }
  }

  const ChatFormat& format_;
  const SchemaValue& values_;
  SchemaValue sample_values_;
  std::string prompt_, plain_;
  AnswerSyntax found_;
};

}  // namespace

std::vector<std::string> pieces_of(std::string_view pattern) {
  std::vector<std::string> pieces;
  bool is_open = false;  // the last piece goes on
  char last = 0;
  for (const char c : pattern) {
    const bool is_slot = c >= slot::name && c <= slot::key;
    const bool is_space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (is_space || is_slot || (last == '>' && c == '<') || (last == ']' && c == '['))
      is_open = false;
    last = c;
    if (is_space) continue;
    if (!is_open) pieces.emplace_back();
    pieces.back() += c;
    is_open = !is_slot;
  }
  return pieces;
}

AnswerSyntax answer_syntax(const ChatFormat& format, const SchemaValue& values) {
  return SyntaxFinder(format, values).find();
}

}  // namespace tenon::text
