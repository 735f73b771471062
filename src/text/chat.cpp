#include "jinja.hpp"

#include <tenon/error.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/text/chat.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <utility>

#include <fmt/format.h>

namespace tenon::text {
namespace {

using jinja::Value;

struct Family {
  ChatFamily family;
  std::string_view name, bos, eos;
  std::array<std::string_view, 2> marks;  // that a template of the family has
  std::string_view jinja;
};

constexpr Family families[] = {
    {ChatFamily::chatml,
     "chatml",
     "",
     "",
     {"<|im_start|>", "<|im_end|>"},
     R"({%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%})"},
    {ChatFamily::gemma,
     "gemma",
     "<bos>",
     "<eos>",
     {"<start_of_turn>", "<end_of_turn>"},
     R"({{- bos_token -}}
{%- set ns = namespace(before='', turns=messages) -%}
{%- if messages[0].role == 'system' -%}
{%- set ns.before = messages[0].content | trim + '\n\n' -%}{%- set ns.turns = messages[1:] -%}
{%- endif -%}
{%- for message in ns.turns -%}
{%- if message.role != ['user', 'assistant'][loop.index0 % 2] -%}
{{- raise_exception('user and assistant have to take turns') -}}
{%- endif -%}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' -}}
{{- (ns.before if loop.first else '') + message.content | trim + '<end_of_turn>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%})"},
    {ChatFamily::gemma4,
     "gemma4",
     "<bos>",
     "<eos>",
     {"<|turn>", "<turn|>"},
     R"({{- bos_token -}}
{%- for message in messages -%}
{%- set ns = namespace(said='') -%}
{%- if message.role == 'assistant' -%}
{%- for part in message.content.split('<channel|>') -%}
{%- set ns.said = ns.said + part.split('<|channel>')[0] -%}
{%- endfor -%}
{%- else -%}{%- set ns.said = message.content -%}{%- endif -%}
{{- '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' -}}
{{- ns.said | trim + '<turn|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|turn>model\n' -}}{%- endif -%})"},
    {ChatFamily::llama2,
     "llama2",
     "<s>",
     "</s>",
     {"[INST]", "<<SYS>>"},
     R"({%- set ns = namespace(before='', turns=messages) -%}
{%- if messages[0].role == 'system' -%}
{%- set ns.before = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' -%}{%- set ns.turns = messages[1:] -%}
{%- endif -%}
{%- for message in ns.turns -%}
{%- if message.role != ['user', 'assistant'][loop.index0 % 2] -%}
{{- raise_exception('user and assistant have to take turns') -}}
{%- endif -%}
{%- if message.role == 'user' -%}
{{- bos_token + '[INST] ' + ((ns.before if loop.first else '') + message.content) | trim + ' [/INST]' -}}
{%- else -%}{{- ' ' + message.content | trim + ' ' + eos_token -}}{%- endif -%}
{%- endfor -%})"},
    {ChatFamily::llama3,
     "llama3",
     "<|begin_of_text|>",
     "<|eot_id|>",
     {"<|start_header_id|>", "<|eot_id|>"},
     R"({{- bos_token -}}
{%- for message in messages -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%})"},
};

const Family& built_in(ChatFamily family) {
  const auto* const found = std::ranges::find(families, family, &Family::family);
  if (found != std::end(families)) return *found;
  throw Error(Errc::bad_argument, "ChatFormat",
              fmt::format("no family {}", static_cast<int>(family)));
}

constexpr std::string_view months[] = {"January",   "February", "March",    "April",
                                       "May",       "June",     "July",     "August",
                                       "September", "October",  "November", "December"};
constexpr std::string_view weekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                         "Thursday", "Friday", "Saturday"};

/// "26 Jul 2024".
std::tm to_date(std::string_view text) {
  std::tm date{};
  const std::size_t first = text.find(' '), last = text.rfind(' ');
  const auto number = [&](std::string_view part, int& to) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), to);
    return error == std::errc() && end == part.data() + part.size();
  };
  const std::string_view name =
      first == last ? std::string_view() : text.substr(first + 1, last - first - 1);
  const auto* const month = std::ranges::find_if(
      months, [&](std::string_view one) { return name.size() >= 3 && one.starts_with(name); });
  int year = 0;
  if (month == std::end(months) || !number(text.substr(0, first), date.tm_mday) ||
      !number(text.substr(last + 1), year) || date.tm_mday < 1 || date.tm_mday > 31 || year < 1 ||
      year > 9999) {
    throw Error(Errc::bad_argument, "ChatFormat",
                fmt::format("'{}' is no date like '26 Jul 2024'", text));
  }
  date.tm_mon = static_cast<int>(month - std::begin(months));
  date.tm_year = year - 1900;
  // Sakamoto's rule for the day of the week.
  constexpr int shifts[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
  const int y = year - (date.tm_mon < 2 ? 1 : 0);
  date.tm_wday = (y + y / 4 - y / 100 + y / 400 + shifts[date.tm_mon] + date.tm_mday) % 7;
  return date;
}

std::tm now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm date{};
  localtime_r(&seconds, &date);
  return date;
}

/// As Python's strftime() in the C locale, whatever that of the process is.
std::string formatted(const std::tm& date, std::string_view format) {
  const int hour = date.tm_hour % 12 == 0 ? 12 : date.tm_hour % 12;
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const bool is_short = format[++i] == '-' && i + 1 < format.size();
    if (is_short) ++i;
    const auto number = [&](int value) {
      out += is_short ? fmt::format("{}", value) : fmt::format("{:02}", value);
    };
    switch (format[i]) {
      case 'Y':
        out += fmt::format("{}", date.tm_year + 1900);
        break;
      case 'y':
        number(date.tm_year % 100);
        break;
      case 'm':
        number(date.tm_mon + 1);
        break;
      case 'd':
        number(date.tm_mday);
        break;
      case 'B':
        out += months[date.tm_mon];
        break;
      case 'b':
        out += months[date.tm_mon].substr(0, 3);
        break;
      case 'A':
        out += weekdays[date.tm_wday];
        break;
      case 'a':
        out += weekdays[date.tm_wday].substr(0, 3);
        break;
      case 'H':
        number(date.tm_hour);
        break;
      case 'I':
        number(hour);
        break;
      case 'M':
        number(date.tm_min);
        break;
      case 'S':
        number(date.tm_sec);
        break;
      case 'p':
        out += date.tm_hour < 12 ? "AM" : "PM";
        break;
      case '%':
        out += '%';
        break;
      default:
        jinja::refuse(fmt::format("strftime_now('%{}')", format[i]));
    }
  }
  return out;
}

/// The members of a JSON object; none of an empty text.
std::vector<jinja::Entry> members_of(std::string_view json, bool is_content) {
  if (json.empty()) return {};
  const Value value = jinja::from_json(json, is_content);
  if (value.dict() == nullptr) {
    throw Error(Errc::bad_argument, "ChatFormat", "a JSON value that is no object");
  }
  return value.dict()->entries;
}

Value to_value(const ChatMessage& message) {
  std::vector<jinja::Entry> members{{Value::of("role"), jinja::marked(message.role, true)},
                                    {Value::of("content"), jinja::marked(message.content, true)}};
  for (jinja::Entry& member : members_of(message.more, true)) members.push_back(std::move(member));
  return Value::dict(std::move(members));
}

/// A text as a list of one part, for templates that take contents so: SmolVLM's, LLaVA's.
void give_parts(Value& message) {
  const Value* const content = message.dict()->find(std::string_view("content"));
  if (content == nullptr || content->text() == nullptr) return;
  Value part = Value::dict({{Value::of("type"), Value::of("text")}, {Value::of("text"), *content}});
  message.dict()->set(Value::of("content"), Value::list({std::move(part)}));
}

/// How a template takes messages with calls of tools.
struct CallStyle {
  bool arguments_are_text = false;
  bool content_is_none =
      false;  ///< where there is no content; DeepSeek R1 writes calls of such messages only
};

/// The functions that an assistant's message calls, as dictionaries of name and arguments.
std::vector<jinja::Dict*> functions_of(const Value& message) {
  std::vector<jinja::Dict*> functions;
  const Value* const calls = message.dict()->find(std::string_view("tool_calls"));
  if (calls == nullptr || calls->list() == nullptr) return functions;
  for (const Value& call : calls->list()->items) {
    const Value* const function =
        call.dict() == nullptr ? nullptr : call.dict()->find(std::string_view("function"));
    if (function != nullptr && function->dict() != nullptr) functions.push_back(function->dict());
  }
  return functions;
}

/// Arguments as a template takes them: JSON in a text, or the object.
Value arguments_as(const Value& given, bool as_text) {
  if (as_text) {
    return given.dict() == nullptr ? given : Value(jinja::marked(jinja::to_json(given), true));
  }
  if (given.text() == nullptr || !given.text()->bytes.starts_with('{')) return given;
  try {
    return jinja::from_json(given.text()->bytes, true);
  } catch (const Error& error) {
    if (error.code() == Errc::out_of_memory) throw;
    return given;  // what a model wrote need not be JSON
  }
}

/// The mark at the beginning of a text: "<...>" or "[...]"; empty without one.
std::string_view mark_of(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \n\r\t");
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin);
  if (text.front() != '<' && text.front() != '[') return {};
  const std::size_t end = text.find(text.front() == '<' ? '>' : ']');
  const std::string_view mark = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const bool is_mark = mark.size() > 2 && mark.size() <= 64 &&
                       mark.find_first_of(" \n\r\t") == std::string_view::npos;
  return is_mark ? mark : std::string_view();
}

/// The first of the marks that a text begins with, of which there is no other: Kimi K3's <|close|> stands in several places.
std::string_view end_mark(std::string_view text) {
  text = text.substr(0, 4096);  // the end of a turn is no longer
  for (std::string_view left = text;;) {
    const std::string_view mark = mark_of(left);
    if (mark.empty() || text.find(mark) == text.rfind(mark)) return mark;
    left.remove_prefix(left.find(mark) + mark.size());
    left.remove_prefix(std::min(left.find_first_of("<["), left.size()));
  }
}

}  // namespace

struct ChatFormat::Impl {
  Impl(std::string_view jinja, ChatVariables of)
      : source(jinja),
        parsed(source),
        variables(std::move(of)),
        more(members_of(variables.more, false)) {
    if (variables.date) date = to_date(*variables.date);
    const auto has_marks = [&](const Family& one) {
      return source.find(one.marks[0]) != std::string_view::npos &&
             source.find(one.marks[1]) != std::string_view::npos;
    };
    // Phi-4 has <|im_start|>user<|im_sep|>: similar, but not ChatML.
    const auto* const found = std::ranges::find_if(families, has_marks);
    if (found != std::end(families) && source.find("<|im_sep|>") == std::string_view::npos) {
      family = found->family;
    }
    // What reads parts reads their member "text".
    if (source.find("text") != std::string::npos && !shows_content()) {
      takes_parts = true;
      takes_parts = shows_content();
    }
  }

  /// Whether a user's text is in what is rendered.
  bool shows_content() const {
    constexpr std::string_view probe = "tenonprobe";
    try {
      const std::string shown = render({to_value({"user", std::string(probe)})}, false, {}).text;
      return shown.find(probe) != std::string::npos;
    } catch (const Error& error) {
      if (error.code() == Errc::out_of_memory) throw;
      return false;
    }
  }

  Prompt format(std::span<const ChatMessage> messages, bool add_generation_prompt,
                std::string_view values) const {
    if (messages.empty()) throw Error(Errc::bad_argument, "ChatFormat", "no messages");
    std::vector<Value> list;
    for (const ChatMessage& message : messages) list.push_back(to_value(message));
    const std::vector<jinja::Entry> given = members_of(values, true);
    const auto calls = [](const Value& message) { return !functions_of(message).empty(); };
    if (std::ranges::any_of(list, calls)) {
      if (const std::optional<CallStyle> style = call_style(given)) {
        for (Value& message : list) fit(message, *style);
      }
    }
    return render(std::move(list), add_generation_prompt, given);
  }

  /// Found by rendering a call; nothing where the template shows none. Objects come first, unless they are written as Python
  /// does.
  std::optional<CallStyle> call_style(const std::vector<jinja::Entry>& values) const {
    constexpr std::string_view object = R"({"tenonkey":"b"})", text = R"("{\"tenonkey\":\"b\"}")";
    for (const bool is_none : {false, true}) {
      for (const bool is_text : {false, true}) {
        const std::string members = fmt::format(
            R"({{"content":{},"tool_calls":[{{"id":"tenoncal1","type":"function","function":{{"name":"f","arguments":{}}}}}]}})",
            is_none ? "null" : R"("")", is_text ? text : object);
        try {
          const std::string shown =
              render({to_value({"user", "a"}), to_value({"assistant", "", members})}, false, values)
                  .text;
          const auto shows = [&](std::string_view what) {
            return shown.find(what) != std::string::npos;
          };
          if (is_text ? shows(object) : shows("tenonkey") && !shows("'tenonkey'"))
            return CallStyle{is_text, is_none};
        } catch (const Error& error) {
          if (error.code() == Errc::out_of_memory) throw;
        }
      }
    }
    return std::nullopt;
  }

  static void fit(Value& message, const CallStyle& style) {
    const std::vector<jinja::Dict*> functions = functions_of(message);
    for (jinja::Dict* const function : functions) {
      if (const Value* const arguments = function->find(std::string_view("arguments"))) {
        function->set(Value::of("arguments"), arguments_as(*arguments, style.arguments_are_text));
      }
    }
    const Value* const content = message.dict()->find(std::string_view("content"));
    const bool is_empty = content == nullptr || content->is_none() ||
                          (content->text() != nullptr && content->text()->bytes.empty());
    if (functions.empty() || !is_empty) return;
    message.dict()->set(Value::of("content"),
                        style.content_is_none ? Value(nullptr) : Value::of(""));
  }

  Prompt render(std::vector<Value> list, bool add_generation_prompt,
                const std::vector<jinja::Entry>& values) const {
    if (takes_parts) std::ranges::for_each(list, give_parts);
    const std::tm today = date ? *date : now();
    std::vector<std::pair<std::string, Value>> all{
        {"messages", Value::list(std::move(list))},
        {"add_generation_prompt", add_generation_prompt},
        {"bos_token", Value::of(variables.bos_token.value_or(std::string()))},
        {"eos_token", Value::of(variables.eos_token.value_or(std::string()))},
        {"tools", nullptr},
        {"documents", nullptr},
        {"raise_exception", jinja::Function{"raise_exception",
                                            [](const jinja::Arguments& given) -> Value {
                                              jinja::refuse(
                                                  given.values.empty()
                                                      ? std::string("an exception")
                                                      : jinja::to_text(given.values[0]).bytes);
                                            }}},
        {"strftime_now",
         jinja::Function{"strftime_now", [today](const jinja::Arguments& given) -> Value {
                           if (given.values.empty()) jinja::refuse("strftime_now() takes a format");
                           return Value::of(
                               formatted(today, jinja::to_text(given.values[0]).bytes));
                         }}}};
    const auto add = [&](const std::vector<jinja::Entry>& members) {
      for (const auto& [name, value] : members) all.emplace_back(jinja::to_text(name).bytes, value);
    };
    add(more);
    add(values);
    jinja::Text text = parsed.render(std::move(all));
    return {std::move(text.bytes), std::move(text.content)};
  }

  std::vector<std::string> stop_tokens() const {
    std::vector<std::string> tokens;
    // gpt-oss: a turn has several messages, each of which ends with what stands behind the last one.
    if (source.find("<|channel|>") != std::string::npos &&
        source.find("<|return|>") != std::string::npos) {
      return {"<|return|>", "<|call|>"};
    }
    constexpr std::string_view probe = "tenonprobe", next_user = "tenonnext";
    try {
      const std::vector<ChatMessage> messages{
          {"user", "a"}, {"assistant", std::string(probe)}, {"user", std::string(next_user)}};
      const Prompt prompt = format_somehow(messages);
      const std::size_t at = prompt.text.rfind(probe);
      if (at != std::string::npos) {
        const std::string_view behind = std::string_view(prompt.text).substr(at + probe.size());
        const std::string_view mark = end_mark(behind.substr(0, behind.find(next_user)));
        if (!mark.empty()) tokens.emplace_back(mark);
      }
    } catch (const Error& error) {
      if (error.code() == Errc::out_of_memory)
        throw;  // else a template that refuses such a conversation
    }
    const std::optional<std::string>& eos = variables.eos_token;
    if (eos && !eos->empty() && std::ranges::find(tokens, *eos) == tokens.end())
      tokens.push_back(*eos);
    return tokens;
  }

  std::string source;
  /// Some templates want tools.
  Prompt format_somehow(const std::vector<ChatMessage>& messages) const {
    try {
      return format(messages, false, {});
    } catch (const Error& error) {
      if (error.code() != Errc::template_error) throw;
      return format(messages, false, R"({"tools":[]})");
    }
  }

  jinja::Template parsed;
  ChatVariables variables;
  std::vector<jinja::Entry> more;
  std::optional<std::tm> date;
  std::optional<ChatFamily> family;
  bool takes_parts = false;  ///< contents as lists of parts; found by rendering
};

std::string_view spelling(ChatFamily family) noexcept {
  const auto* const found = std::ranges::find(families, family, &Family::family);
  return found == std::end(families) ? "unknown" : found->name;
}

std::vector<std::int32_t> Prompt::encode(const Tokenizer& tokenizer) const {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true, .plain = content});
}

ChatFormat ChatFormat::from_template(std::string_view jinja, ChatVariables variables) {
  return with_memory_errors("chat template", [&] {
    if (jinja.find_first_not_of(" \n\r\t") == std::string_view::npos) {
      jinja::refuse("an empty template");
    }
    return ChatFormat(std::make_shared<const Impl>(jinja, std::move(variables)));
  });
}

ChatFormat::ChatFormat(ChatFamily family, ChatVariables variables) {
  impl_ = with_memory_errors("chat template", [&] {
    const Family& own = built_in(family);
    if (!variables.bos_token) variables.bos_token = own.bos;
    if (!variables.eos_token) variables.eos_token = own.eos;
    return std::make_shared<const Impl>(own.jinja, std::move(variables));
  });
}

std::string_view ChatFormat::source() const { return impl_->source; }

std::optional<ChatFamily> ChatFormat::family() const { return impl_->family; }

Prompt ChatFormat::format(std::span<const ChatMessage> messages, bool add_generation_prompt,
                          std::string_view values) const {
  return with_memory_errors("chat template",
                            [&] { return impl_->format(messages, add_generation_prompt, values); });
}

std::vector<std::string> ChatFormat::stop_tokens() const {
  return with_memory_errors("chat template", [&] { return impl_->stop_tokens(); });
}

}  // namespace tenon::text
