// Calls of tools and reasoning: what templates write for a message is what is read of it.
#include "support/expect_error.hpp"
#include "support/failing_memory.hpp"

#include <tenon/text/chat_answer.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace tenon;
using namespace tenon::text;
using testing::contains;
using testing::expect_error;
using Json = nlohmann::ordered_json;

namespace {

const std::string tools = R"({"tools": [
  {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
      "parts": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "weather_in.detail", "parameters":
    {"type": "object", "properties": {"where": {"type": "object"}, "is_long": {"type": "boolean"}}}}}]})";

/// A template whose assistant writes `answer`, with `content`, `calls` and `reasoning` as its variables.
std::string with_answer(const std::string& answer, const std::string& opening = "<answer>",
                        const std::string& end = "<end>") {
  return "{% for m in messages %}{% if m.role == 'assistant' %}<answer>{% set content = m.content "
         "or '' %}"
         "{% set calls = m.tool_calls or [] %}{% set reasoning = m.reasoning_content or '' %}" +
         answer + end + "{% else %}<{{ m.role }}>{{ m.content }}" + end +
         "{% endif %}{% endfor %}{% if add_generation_prompt %}" + opening + "{% endif %}";
}

struct Style {
  std::string name, answer;
  bool has_grammar = true;
};

// Each writes the content, and then calls.
const std::vector<Style> styles{
    {"JSON between marks",
     "{{ content }}{% for c in calls %}\n<call>\n{\"name\": \"{{ c.function.name }}\", "
     "\"arguments\": "
     "{{ c.function.arguments | tojson }}}\n</call>{% endfor %}"},
    {"JSON with one mark before all",
     "{{ content }}{% if calls %}\n<calls>{% for c in calls %}\n{\"arguments\": {{ "
     "c.function.arguments | tojson }}, "
     "\"name\": \"{{ c.function.name }}\"}{% endfor %}\n</calls>{% endif %}"},
    {"a list of JSON with ids",
     "{{ content }}{% if calls %}[CALLS] [{% for c in calls %}{\"tool\": {\"name\": \"{{ "
     "c.function.name }}\", "
     "\"parameters\": {{ c.function.arguments | tojson }}}, \"id\": \"{{ c.id }}\"}{% if not "
     "loop.last %}, {% endif %}"
     "{% endfor %}]{% endif %}"},
    {"JSON alone",
     "{% if calls %}{\"name\": \"{{ calls[0].function.name }}\", \"parameters\": "
     "{{ calls[0].function.arguments | tojson }}}{% else %}{{ content }}{% endif %}"},
    {"names as keys",
     "{{ content }}{% if calls %}<tools>[{% for c in calls %}{\"{{ c.function.name }}\": "
     "{{ c.function.arguments | tojson }}}{% if not loop.last %}, {% endif %}{% endfor "
     "%}]</tools>{% endif %}"},
    {"a name and JSON",
     "{{ content }}{% if calls %}<|calls|>{% for c in calls %}<|call|>function<|sep|>{{ "
     "c.function.name }}\n```json\n"
     "{{ c.function.arguments | tojson }}\n```<|/call|>{% endfor %}<|/calls|>{% endif %}"},
    {"a name with its number and JSON",
     "{{ content }}{% for c in calls %}<|call|>functions.{{ c.function.name }}:{{ loop.index0 "
     "}}<|arguments|>"
     "{{ c.function.arguments | tojson }}<|/call|>{% endfor %}"},
    {"an id, a name and JSON",
     "{{ content }}{% for c in calls %}<|call|>{{ c.id }}<|name|>{{ c.function.name }}<|arguments|>"
     "{{ c.function.arguments | tojson }}<|/call|>{% endfor %}"},
    {"marks with keys",
     "{{ content }}{% for c in calls %}\n<call>\n<function={{ c.function.name }}>\n{% for k, v in "
     "c.function.arguments.items() %}<parameter={{ k }}>\n{{ v if v is string else v | tojson "
     "}}\n</parameter>\n"
     "{% endfor %}</function>\n</call>{% endfor %}"},
    {"marks around keys",
     "{{ content }}{% for c in calls %}<call>{{ c.function.name }}\n{% for k, v in "
     "c.function.arguments.items() %}"
     "<key>{{ k }}</key>\n<value>{{ v if v is string else v | tojson }}</value>\n{% endfor "
     "%}</call>{% endfor %}"},
    {"marks with types",
     "{{ content }}{% for c in calls %}<invoke name=\"{{ c.function.name }}\">\n{% for k, v in "
     "c.function.arguments.items() %}<argument name=\"{{ k }}\" text=\"{{ 'true' if v is string "
     "else 'false' }}\">"
     "{{ v if v is string else v | tojson }}</argument>\n{% endfor %}</invoke>{% endfor %}",
     false},
    {"marks of keys",
     "{{ content }}{% for c in calls %}<invoke name=\"{{ c.function.name }}\">{% for k, v in "
     "c.function.arguments.items() %}<{{ k }}>{{ v if v is string else v | tojson }}</{{ k }}>{% "
     "endfor %}</invoke>"
     "{% endfor %}"},
    {"Python",
     "{{ content }}{% if calls %}<|py|>[{% for c in calls %}{{ c.function.name }}({% for k, v in "
     "c.function.arguments.items() %}{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}{% "
     "endfor %})"
     "{% if not loop.last %}, {% endif %}{% endfor %}]<|/py|>{% endif %}"},
    {"names without quotes",
     "{{ content }}{% for c in calls %}<|call>call:{{ c.function.name }}{{ '{' }}{% for k, v in "
     "c.function.arguments.items() %}{{ k }}:{% if v is string %}<|'|>{{ v }}<|'|>{% else %}{{ v | "
     "tojson }}{% endif %}"
     "{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}<call|>{% endfor %}",
     false},
};

ChatFormat format_of(const std::string& jinja) { return ChatFormat::from_template(jinja); }

/// The calls of a message, for ChatMessage::more.
std::string more_of(const std::vector<ToolCall>& calls) {
  return ChatAnswer{.content = {}, .calls = calls}.message().more;
}

/// What a template writes for an answer, up to its end token.
std::string written(const ChatFormat& format, const ChatMessage& answer,
                    const std::string& end = "<end>") {
  const std::vector<ChatMessage> question{{"user", "Q"}};
  std::vector<ChatMessage> messages = question;
  messages.push_back(answer);
  const std::string prompt = format.format(question, true, tools).text;
  const std::string text = format.format(messages, false, tools).text;
  REQUIRE(text.starts_with(prompt));
  REQUIRE(text.ends_with(end));
  return text.substr(prompt.size(), text.size() - prompt.size() - end.size());
}

void check_calls(const std::vector<ToolCall>& given, const std::vector<ToolCall>& wanted) {
  REQUIRE(given.size() == wanted.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    CHECK(given[i].name == wanted[i].name);
    CHECK(Json::parse(given[i].arguments) == Json::parse(wanted[i].arguments));
  }
}

std::uint64_t fresh_seed() {
  const char* given = std::getenv("TENON_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

using Engine = std::mt19937_64;

std::int64_t below(Engine& random, std::int64_t end) {
  return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random);
}

std::string random_text(Engine& random) {
  const std::array<std::string, 16> pieces{"a",  "Oslo", " ",  "\"", "'",  "\\", "{",    "}",
                                           "[x", ", ",   "12", "<b", "\n", "é",  "日本", "true"};
  std::string text;
  for (std::int64_t left = below(random, 6); left > 0; --left) {
    text +=
        pieces[static_cast<std::size_t>(below(random, static_cast<std::int64_t>(pieces.size())))];
  }
  return text;
}

ToolCall random_call(Engine& random) {
  Json arguments = Json::object();
  if (below(random, 3) > 0) {
    // Marks around texts cannot say whether a line break at the ends is the text's.
    arguments["city"] = "x" + random_text(random) + "x";
    if (below(random, 2) == 0) arguments["days"] = below(random, 1000) - 500;
    if (below(random, 2) == 0) arguments["parts"] = {random_text(random), random_text(random)};
    return {"weather", arguments.dump()};
  }
  if (below(random, 2) == 0) {
    arguments["where"] = {
        {"street", random_text(random)}, {"at", {1.5, -2, nullptr}}, {"none", Json::object()}};
  }
  if (below(random, 2) == 0) arguments["is_long"] = below(random, 2) == 0;
  return {"weather_in.detail", arguments.dump()};
}

/// Bytes that a grammar allows, by random choices; empty where it goes on for too long.
std::string random_of(const Grammar& grammar, Engine& random) {
  GrammarMatcher matcher(grammar);
  std::string text;
  while (text.size() < 3000) {
    if (matcher.may_end() && (!matcher.may_continue() || below(random, 3) == 0)) return text;
    std::vector<std::string> pieces;
    for (char c = ' '; c < '\x7F'; ++c) pieces.emplace_back(1, c);
    // Also what ends values, so that they come to one.
    for (const char* const end : {"\n", "\"", "}", "]", "</city>", "\n</parameter>", "</value>"}) {
      for (int i = 0; i < 5; ++i) pieces.emplace_back(end);
    }
    std::ranges::shuffle(pieces, random);
    const auto next =
        std::ranges::find_if(pieces, [&](const std::string& piece) { return matcher.push(piece); });
    const bool is_found = next != pieces.end();
    if (is_found) text += *next;
    if (!is_found) return {};
  }
  return {};
}

}  // namespace

TEST_CASE("chat answers: random calls are read as they were written") {
  const std::uint64_t seed = fresh_seed();
  INFO("TENON_TEST_SEED=" << seed);
  Engine random(seed);
  for (const Style& style : styles) {
    INFO(style.name);
    const ChatFormat format = format_of(with_answer(style.answer));
    const AnswerFormat answers(format, tools);
    REQUIRE(answers.has_calls());
    CHECK_FALSE(answers.has_reasoning());
    const bool is_single = style.name == "JSON alone";
    for (int round = 0; round < 40; ++round) {
      std::vector<ToolCall> calls;
      for (std::int64_t left = is_single ? 1 : 1 + below(random, 3); left > 0; --left)
        calls.push_back(random_call(random));
      const std::string content = is_single || below(random, 2) == 0 ? "" : "Let me see.";
      const std::string text = written(format, {"assistant", content, more_of(calls)});
      INFO(text);
      const ChatAnswer answer = answers.read(text);
      CHECK(answer.content == content);
      CHECK(answer.reasoning.empty());
      CHECK(answer.rest.empty());
      check_calls(answer.calls, calls);

      // As it grows, nothing is taken back.
      ChatAnswer last;
      for (std::size_t size = 0; size <= text.size(); ++size) {
        if (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U)
          continue;
        ChatAnswer part = answers.read(std::string_view(text).substr(0, size), false);
        CHECK(part.content.starts_with(last.content));
        REQUIRE(part.calls.size() >= last.calls.size());
        for (std::size_t i = 0; i < last.calls.size(); ++i)
          CHECK(part.calls[i].arguments == last.calls[i].arguments);
        last = std::move(part);
      }
      CHECK(content.starts_with(last.content));
    }
  }
}

TEST_CASE("chat answers: any text is read, and as it grows nothing is taken back") {
  const std::uint64_t seed = fresh_seed();
  INFO("TENON_TEST_SEED=" << seed);
  Engine random(seed);
  for (const Style& style : styles) {
    INFO(style.name);
    const AnswerFormat answers(
        format_of(with_answer(
            "{% if reasoning %}<think>{{ reasoning }}</think>{% endif %}" + style.answer,
            below(random, 2) == 0 ? "<answer>" : "<answer><think>")),
        tools);
    std::vector<std::string> pieces = answers.preserved_tokens();
    for (const char* const piece :
         {"{",    "}",       "[",
          "]",    "\"",      "'",
          "name", "weather", "arguments",
          ":",    ",",       "(",
          ")",    "=",       "city",
          "\n",   " ",       "text",
          "12",   "</",      "{\"name\": \"weather\", \"arguments\": {"}) {
      pieces.emplace_back(piece);
    }
    for (int round = 0; round < 60; ++round) {
      std::string text;
      const std::int64_t count = below(random, 30);
      for (std::int64_t i = 0; i < count; ++i) {
        text += pieces[static_cast<std::size_t>(
            below(random, static_cast<std::int64_t>(pieces.size())))];
      }
      INFO(text);
      ChatAnswer last;
      for (std::size_t size = 0; size <= text.size(); ++size) {
        ChatAnswer part = answers.read(std::string_view(text).substr(0, size), false);
        CHECK(part.content.starts_with(last.content));
        CHECK(part.reasoning.starts_with(last.reasoning));
        CHECK(part.calls.size() >= last.calls.size());
        last = std::move(part);
      }
      const ChatAnswer whole = answers.read(text);
      CHECK(whole.content.starts_with(last.content));
      for (const ToolCall& call : whole.calls) CHECK(Json::parse(call.arguments).is_object());
    }
  }
}

TEST_CASE("chat answers: templates of strangers take no longer than others") {
  for (const char* const unit : {"<a> ", "{ ", "[\"", "</think>", "<x>\n", "{\"a\": ["}) {
    const std::string many = std::string("{% for i in range(30000) %}") + unit + "{% endfor %}";
    const AnswerFormat answers(format_of(with_answer(many + styles[0].answer + many)), tools);
    CHECK_FALSE(answers.has_calls());
    const std::string few = std::string("{% for i in range(100) %}") + unit + "{% endfor %}";
    const AnswerFormat other(format_of(with_answer(few + styles[0].answer + few)), tools);
    CHECK(other.read("Yes.").content == "Yes.");
  }
}

TEST_CASE("chat answers: many messages of gpt-oss, many members of a call") {
  const AnswerFormat channels(format_of("{# <|channel|><|message|><|return|> #}"));
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "<|message|>a<|end|>";
  CHECK(channels.read(text).content.size() == 99'999);
  std::string call = R"(<call>{"name": "weather", "arguments": {)";
  for (int i = 0; i < 100'000; ++i)
    call += (i == 0 ? "\"k" : ", \"k") + std::to_string(i) + "\": 1";
  CHECK(AnswerFormat(format_of(with_answer(styles[0].answer)), tools)
            .read(call + "}}</call>")
            .calls.size() == 1);
  // Distinct marks behind an answer.
  const ChatFormat many = format_of(
      "{% for m in messages %}{{ m.content }}{% for i in range(100000) %}<{{ i }}>{% endfor %}"
      "{% for i in range(100000) %}<{{ i }}>{% endfor %}{% endfor %}");
  CHECK(many.stop_tokens().size() < 2);
}

// Each mark is searched once: when all were searched behind each one found, a tenth of this took up to two seconds.
TEST_CASE("chat answers: a text full of marks") {
  for (const Style& style : styles) {
    const AnswerFormat answers(format_of(with_answer(style.answer)), tools);
    std::vector<std::string> units = answers.preserved_tokens();
    units.push_back("<call>weather\n<key>city</key>\n<value>");
    for (const std::string& unit : units) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      text += "</value>x";
      CHECK(answers.read(text).calls.empty());
    }
  }
}

TEST_CASE(
    "chat answers: grammars of calls allow what templates write, and nothing that is not read") {
  const std::uint64_t seed = fresh_seed();
  INFO("TENON_TEST_SEED=" << seed);
  Engine random(seed);
  for (const Style& style : styles) {
    INFO(style.name);
    const ChatFormat format = format_of(with_answer(style.answer));
    const AnswerFormat answers(format, tools);
    if (!style.has_grammar) {
      expect_error(Errc::unsupported, [&] { answers.call_grammar(); });
      continue;
    }
    const Grammar grammar = answers.call_grammar();
    const std::vector<ToolCall> calls{
        {"weather", R"({"city":"Oslo, \"N\"","days":3,"parts":["now","then"]})"},
        {"weather_in.detail", R"({"where":{"x":[1,{"y":null}]},"is_long":true})"}};
    const bool is_single = style.name == "JSON alone";
    std::string text =
        written(format, {"assistant", "", more_of(is_single ? std::vector{calls[0]} : calls)});
    text.erase(0, text.find_first_not_of('\n'));
    GrammarMatcher matcher(grammar);
    std::size_t taken = 0;
    while (taken < text.size() && matcher.push(text.substr(taken, 1))) ++taken;
    INFO(text.substr(taken));
    CHECK(taken == text.size());
    CHECK(matcher.may_end());

    int read = 0;
    for (int round = 0; round < 20; ++round) {
      const std::string any = random_of(grammar, random);
      if (any.empty()) continue;
      INFO(any);
      const ChatAnswer answer = answers.read(any);
      CHECK(answer.content.empty());
      CHECK(answer.rest.empty());
      REQUIRE_FALSE(answer.calls.empty());
      for (const ToolCall& call : answer.calls) {
        CHECK((call.name == "weather" || call.name == "weather_in.detail"));
        CHECK(Json::parse(call.arguments).is_object());
        if (call.name == "weather") CHECK(Json::parse(call.arguments)["city"].is_string());
      }
      ++read;
    }
    CHECK(read > 0);
  }
}

TEST_CASE("chat answers: one tool, one call, and what stands behind a mark") {
  const AnswerFormat answers(format_of(with_answer(styles[0].answer)), tools);
  CHECK(answers.call_mark() == "<call>");
  const Grammar one = answers.call_grammar({.tool = "weather", .several = false});
  const std::string call =
      "<call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"\"}}\n</call>";
  GrammarMatcher matcher(one);
  CHECK(matcher.push(call));
  CHECK_FALSE(matcher.may_continue());
  CHECK_FALSE(GrammarMatcher(one).push("<call>\n{\"name\": \"weather_"));
  CHECK(GrammarMatcher(answers.call_grammar()).push(call + "<call>"));
  CHECK(
      GrammarMatcher(answers.call_grammar({.after = "<call>"})).push("\n{\"name\": \"weather_in"));
  CHECK(contains(expect_error(Errc::bad_argument, [&] { answers.call_grammar({.tool = "time"}); }),
                 "time"));
  CHECK(contains(
      expect_error(Errc::bad_argument, [&] { answers.call_grammar({.after = "<other>"}); }),
      "<other>"));
  const AnswerFormat without(format_of(with_answer(styles[0].answer)));
  expect_error(Errc::bad_argument, [&] { without.call_grammar(); });
  const AnswerFormat none(ChatFormat(ChatFamily::llama2), tools);
  CHECK_FALSE(none.has_calls());
  expect_error(Errc::unsupported, [&] { none.call_grammar(); });
}

TEST_CASE("chat answers: a tool without parameters takes no arguments") {
  for (const auto& [parameters, is_open] :
       {std::pair("", false), std::pair(R"(, "parameters": null)", false),
        std::pair(R"(, "parameters": {})", true)}) {
    INFO(parameters);
    const std::string values =
        fmt::format(R"({{"tools": [{{"function": {{"name": "now"{}}}}}]}})", parameters);
    const AnswerFormat answers(format_of(with_answer(styles[0].answer)), values);
    const Grammar grammar = answers.call_grammar();
    const auto allows = [&](const std::string& arguments) {
      GrammarMatcher matcher(grammar);
      return matcher.push("<call>\n{\"name\": \"now\", \"arguments\": " + arguments + "}\n</call>");
    };
    CHECK(allows("{}"));
    CHECK(allows(R"({"a": 1})") == is_open);
  }
}

TEST_CASE("chat answers: arguments of Python's calls, in the order of the schema") {
  const std::string values =
      R"({"tools": [{"name": "f", "parameters": {"type": "object", "required": ["b"],
      "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", null]}, "c": {"type": "integer"}}}}]})";
  const auto style = std::ranges::find(styles, std::string_view("Python"), &Style::name);
  const AnswerFormat answers(format_of(with_answer(style->answer)), values);
  const Grammar grammar = answers.call_grammar();
  const auto is_whole = [&](const std::string& arguments) {
    GrammarMatcher matcher(grammar);
    return matcher.push("<|py|>[f(" + arguments + ")]<|/py|>") && matcher.may_end();
  };
  for (const char* good :
       {R"(b="x")", R"(a=True, b=None)", R"(a=false, b=null, c=7)", R"(b="x", c=0)"}) {
    INFO(good);
    CHECK(is_whole(good));
    CHECK(answers.read(std::string("<|py|>[f(") + good + ")]<|/py|>").calls.size() == 1);
  }
  for (const char* bad : {"", "a=True", R"(b="y")", R"(c=1, b="x")", R"(b="x",)", R"(, b="x")",
                          R"(b="x", b="x")", R"("x")"}) {
    INFO(bad);
    CHECK_FALSE(is_whole(bad));
  }
  for (const char* name : {"filter[name]", "a b", "a=b", ""}) {
    const std::string tool = fmt::format(
        R"({{"tools": [{{"name": "f", "parameters": {{"properties": {{"{}": {{}}}}}}}}]}})", name);
    const AnswerFormat odd(format_of(with_answer(style->answer)), tool);
    expect_error(Errc::unsupported, [&] { odd.call_grammar(); });
  }
}

// Each argument that refers to something is compiled with all definitions.
TEST_CASE("chat answers: many arguments beside many definitions") {
  const auto style = std::ranges::find(styles, std::string_view("Python"), &Style::name);
  const auto grammar_of = [&](std::string_view argument) {
    std::string json = R"({"tools": [{"name": "f", "parameters": {"$defs": {"t": {"enum": [)";
    for (int i = 0; i < 10'000; ++i) json += std::to_string(i) + ",";
    json += R"(0]}}, "properties": {)";
    for (int i = 0; i < 1000; ++i) json += fmt::format("\"k{}\": {},", i, argument);
    json += R"("last": {}}}}]})";
    return AnswerFormat(format_of(with_answer(style->answer)), json).call_grammar();
  };
  expect_error(Errc::limit_exceeded, [&] { grammar_of(R"({"$ref": "#/$defs/t"})"); });
  CHECK(GrammarMatcher(grammar_of(R"({"type": "integer"})")).push("<|py|>[f(k7=1)]<|/py|>"));
}

TEST_CASE("chat answers: reasoning, as the prompt begins it or the model does") {
  const std::string answer =
      "{% if reasoning %}<think>\n{{ reasoning }}\n</think>\n\n{% endif %}" + styles[0].answer;
  const std::vector<ToolCall> calls{{"weather", R"({"city":"Oslo"})"}};
  const std::string call =
      "<call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</call>";

  const AnswerFormat own(format_of(with_answer(answer)), tools);
  CHECK(own.has_reasoning());
  CHECK_FALSE(own.starts_in_reasoning());
  CHECK(own.reasoning_end() == "</think>");
  ChatAnswer read = own.read("<think>Hm.\nSo.\n</think>\n\nLet me see.\n" + call);
  CHECK(read.reasoning == "Hm.\nSo.");
  CHECK(read.content == "Let me see.");
  check_calls(read.calls, calls);
  CHECK(own.read("No thoughts.").content == "No thoughts.");

  const AnswerFormat begun(format_of(with_answer(answer, "<answer><think>\n")), tools);
  CHECK(begun.starts_in_reasoning());
  read = begun.read("Hm. <call> is a mark.\n</think>\nYes." + call);
  CHECK(read.reasoning == "Hm. <call> is a mark.");
  CHECK(read.content == "Yes.");
  check_calls(read.calls, calls);
  CHECK(begun.read("Hm.").reasoning == "Hm.");
  CHECK(begun.read("Hm.</thi").reasoning == "Hm.</thi");
  CHECK(begun.read("Hm.</thi", false).reasoning == "Hm.");
  CHECK(begun.read("Hm.</thi", false).rest == "</thi");

  // Earlier answers show only where it ends.
  const AnswerFormat ended(
      format_of(with_answer("{{ reasoning }}</think>{{ content }}", "<answer><think>")));
  CHECK(ended.starts_in_reasoning());
  CHECK(ended.read("Hm.</think>Yes.").reasoning == "Hm.");
  CHECK(ended.read("Hm.</think>Yes.").content == "Yes.");

  // The prompt's variables switch it off.
  const std::string switched = with_answer(answer,
                                           "<answer>{% if enable_thinking is false "
                                           "%}<think>\n\n</think>\n{% else %}<think>\n{% endif %}");
  CHECK(AnswerFormat(format_of(switched)).starts_in_reasoning());
  CHECK_FALSE(
      AnswerFormat(format_of(switched), R"({"enable_thinking": false})").starts_in_reasoning());

  // A template that drops it, and says so.
  const AnswerFormat dropped(format_of(with_answer("{{ content.split('</think>')[-1] }}")));
  CHECK(dropped.read("<think>Hm.</think>Yes.").reasoning == "Hm.");
}

TEST_CASE("chat answers: white space is the model's, but for what stands beside a mark") {
  const AnswerFormat answers(
      format_of(with_answer("{% if reasoning %}<think>{{ reasoning }}</think>{% endif %}" +
                            styles[0].answer)),
      tools);
  const std::string call = R"(<call>{"name": "weather", "arguments": {"city": "Oslo"}}</call>)";
  const auto content = [&](const std::string& text) { return answers.read(text).content; };
  for (const std::string text : {" is red.", "    return x\n", "  ", "\n a <call> b \n"}) {
    CHECK(content(text) == text);
  }
  CHECK(answers.read(" is red. \n", false).content == " is red.");
  CHECK(answers.read(" \n", false).content.empty());
  CHECK(content(" So: \n" + call) == " So:");
  CHECK(content(call + "\n Done. ") == "Done. ");
  CHECK(content("\n" + call + "\n").empty());
  CHECK(content(" a \n" + call + " b ") == " a \n b ");
  CHECK(content("<think>\nHm.\n</think>\n\n Yes.\n") == "Yes.\n");
  CHECK(content(" So: <call>{\"name\"") == " So:");
}

TEST_CASE("chat answers: marks around content are no part of it") {
  const AnswerFormat answers(format_of(with_answer("<|text|>{{ content }}<|/text|>")));
  CHECK(answers.read("<|text|>Yes.<|/text|>").content == "Yes.");
  CHECK(answers.read("<|text|>Ye", false).content == "Ye");
  CHECK(answers.stop_tokens().front() == "<|/text|>");
}

TEST_CASE("chat answers: messages of gpt-oss") {
  const AnswerFormat answers(format_of("{% for m in messages %}<|start|>{{ m.role "
                                       "}}<|channel|>final<|message|>{{ m.content }}<|end|>"
                                       "{% endfor %}{# <|return|> #}<|start|>assistant"),
                             tools);
  ChatAnswer read = answers.read(
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.weather "
      "<|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>");
  CHECK(read.reasoning == "Hm.");
  CHECK(read.content.empty());
  check_calls(read.calls, {{"weather", R"({"city":"Oslo"})"}});
  read = answers.read(
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.");
  CHECK(read.reasoning == "Hm.");
  CHECK(read.content == "Yes.");
  CHECK(answers.read("Yes.").content == "Yes.");
  CHECK(answers.read("<|channel|>commentary to=functions.weather<|message|>{\"city\"", false)
            .calls.empty());
  CHECK(answers.stop_tokens() == std::vector<std::string>{"<|return|>", "<|call|>"});
  const Grammar grammar = answers.call_grammar();
  CHECK(
      GrammarMatcher(grammar).push("<|channel|>commentary to=functions.weather "
                                   "<|constrain|>json<|message|>{\"city\":\"Oslo\"}"));
}

TEST_CASE("chat answers: JSON without marks is a call of a tool, or an answer") {
  const ChatFormat format = format_of(with_answer(styles[3].answer));
  REQUIRE(styles[3].name == "JSON alone");
  const AnswerFormat answers(format, tools), without(format);
  const std::string bob = R"({"name": "Bob", "age": 3})",
                    call = R"({"name": "weather", "parameters": {}})";
  CHECK(answers.read(bob).content == bob);
  CHECK(answers.read(bob).calls.empty());
  CHECK(answers.read(call).calls.size() == 1);
  CHECK(answers.read(call + "\nDone.").content == "Done.");
  CHECK(without.read(call).content == call);
  CHECK(answers.read("[]").content == "[]");
  CHECK(answers.read("{}").content == "{}");
}

TEST_CASE("chat answers: calls behind words, slots before names, arguments without an end") {
  const std::vector<ToolCall> calls{{"weather", R"({"city":"Oslo","days":3})"},
                                    {"weather", R"({"city":"Bergen"})"}};
  for (const std::string& answer :
       {std::string("{% if calls %}functools[{% for c in calls %}{\"name\": \"{{ c.function.name "
                    "}}\", \"arguments\": "
                    "{{ c.function.arguments | tojson }}}{% if not loop.last %}, {% endif %}{% "
                    "endfor %}]{% endif %}{{ content }}"),
        std::string(
            "{{ content }}{% for c in calls %}<|call|>{{ c.id }} {{ c.function.name }}<|args|>"
            "{{ c.function.arguments | tojson }}<|/call|>{% endfor %}"),
        std::string(
            "{{ content }}{% for c in calls %}<fn={{ c.function.name }}>{% for k, v in "
            "c.function.arguments.items() %}"
            "<arg={{ k }}>{{ v if v is string else v | tojson }}</arg>{% endfor %}{% endfor %}"),
        std::string("{{ content }}{% for c in calls %}<call index={{ loop.index0 }}>{\"name\": "
                    "\"{{ c.function.name }}\", "
                    "\"arguments\": {{ c.function.arguments | tojson }}}</call>{% endfor %}")}) {
    INFO(answer);
    const ChatFormat format = format_of(with_answer(answer));
    const AnswerFormat answers(format, tools);
    REQUIRE(answers.has_calls());
    const std::string text = written(format, {"assistant", "", more_of(calls)});
    INFO(text);
    const ChatAnswer read = answers.read(text);
    CHECK(read.content.empty());
    CHECK(read.rest.empty());
    check_calls(read.calls, calls);
    std::size_t taken = 0;
    GrammarMatcher matcher(answers.call_grammar());
    while (taken < text.size() && matcher.push(text.substr(taken, 1))) ++taken;
    CHECK(taken == text.size());
  }
  CHECK_FALSE(
      AnswerFormat(format_of(with_answer(
                       "{{ content }}{% for c in calls %}{{ c.function.name }}({% for k, v in "
                       "c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}){% endfor %}")),
                   tools)
          .has_calls());
}

TEST_CASE("chat answers: messages without content reach a template as it takes them") {
  const std::string only_none =
      "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls "
      "%}<call>{\"name\": "
      "\"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}</call>{% "
      "endfor %}{% else %}<{{ m.role }}>"
      "{{ m.content }}{% endif %}<end>{% endfor %}";
  const ChatFormat format = format_of(only_none);
  const AnswerFormat answers(format, tools);
  REQUIRE(answers.has_calls());
  const ChatAnswer answer =
      answers.read(R"(<call>{"name": "weather", "arguments": {"city": "Oslo"}}</call>)");
  const std::vector<ChatMessage> messages{{"user", "Q"}, answer.message(), {"tool", "3"}};
  CHECK(contains(format.format(messages).text, "<call>{\"name\": \"weather\""));
  // Where nothing is known, arguments stay what they are.
  const ChatFormat hidden = format_of(
      "{% for m in messages %}{% if m.tool_calls and not loop.last %}{{ 'x' + "
      "m.tool_calls[0].function.arguments }}"
      "{% endif %}{% endfor %}");
  const std::string more =
      R"({"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]})";
  CHECK(
      hidden.format(std::vector<ChatMessage>{{"user", "Q"}, {"assistant", "", more}, {"tool", "3"}})
          .text == R"(x{"a": 1})");
}

TEST_CASE("chat answers: what models write beside JSON") {
  const AnswerFormat answers(format_of(with_answer(styles[0].answer)), tools);
  const auto arguments = [&](const std::string& text) {
    const ChatAnswer answer = answers.read("<call>" + text + "</call>");
    INFO(text);
    REQUIRE(answer.calls.size() == 1);
    CHECK(answer.content.empty());
    return Json::parse(answer.calls[0].arguments);
  };
  CHECK(
      arguments(
          R"({'name': 'weather', 'arguments': {'city': 'O\'slo', 'x': None, 'y': [True, False,],}})") ==
      Json::parse(R"({"city": "O'slo", "x": null, "y": [true, false]})"));
  CHECK(arguments(R"({"name": "weather", "arguments": "{\"city\": \"Oslo\"}"})") ==
        Json{{"city", "Oslo"}});
  CHECK(arguments(R"({"name": "weather", "parameters": {"city": "Oslo"}})") ==
        Json{{"city", "Oslo"}});
  CHECK(arguments("{\"name\": \"weather\", \"arguments\": {\"city\": \"a\nb\"}}") ==
        Json{{"city", "a\nb"}});
  CHECK(
      arguments(
          R"({"name": "weather", "arguments": {"a": "\u00e9\ud83d\ude00\ud83d.\q\x41", "n": -1.5e+3}})") ==
      Json::parse(R"({"a": "é😀�.\\qA", "n": -1.5e+3})"));
  CHECK(arguments(R"({"name": "weather"})") == Json::object());
  CHECK(
      arguments(R"({"name": "weather", "arguments": {"a": 1, "b": 2, "a": 3, "tiny": 1e-999}})") ==
      Json::parse(R"({"a": 3, "b": 2, "tiny": 0})"));
}

TEST_CASE("chat answers: what is no call stays content, and what is cut does not count") {
  const AnswerFormat answers(format_of(with_answer(styles[0].answer)), tools);
  for (const std::string text :
       {"<call>", "<call>{\"name\": 3}</call>", "<call>[1, 2]</call>",
        "<call>{\"name\": \"\"}</call>", "a <call> b.", "The mark is <call>.",
        "<call>{\"name\": \"weather\", \"arguments\": {\"x\": 1e999}}</call>",
        "<call>{\"name\": \"weather\", \"arguments\": [1]}</call>", "<call>{]</call>",
        "<call>{\"a\": 01}</call>"}) {
    INFO(text);
    const ChatAnswer answer = answers.read(text);
    CHECK(answer.calls.empty());
    CHECK(answer.content + answer.rest == text);
  }
  const ChatAnswer cut = answers.read("So: <call>\n{\"name\": \"weather\", \"arguments\": {\"ci");
  CHECK(cut.calls.empty());
  CHECK(cut.content == "So:");
  CHECK(cut.rest == "<call>\n{\"name\": \"weather\", \"arguments\": {\"ci");
  // Too deep for any call.
  std::string deep = "<call>{\"name\": \"weather\", \"arguments\": ";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  CHECK(answers.read(deep).calls.empty());
  expect_error(Errc::bad_encoding, [&] { answers.read("\xFF"); });
  AnswerFormat left(format_of("x"));
  const AnswerFormat taken = std::move(left);
  expect_error(Errc::call_order, [&] { left.has_calls(); });  // NOLINT(bugprone-use-after-move)
  expect_error(Errc::call_order, [&] { left.stop_tokens(); });
  expect_error(Errc::bad_argument, [&] { AnswerFormat(format_of("x"), "[]"); });
  expect_error(Errc::syntax, [&] { AnswerFormat(format_of("x"), "{"); });
}

TEST_CASE("chat answers: as a message they continue the conversation") {
  ChatAnswer answer{.content = "So.",
                    .reasoning = "Hm.",
                    .calls = {{"weather", R"({"city": "Oslo"})"}, {"weather", "{}", "x1"}}};
  const ChatMessage message = answer.message();
  CHECK(message.role == "assistant");
  CHECK(message.content == "So.");
  const Json more = Json::parse(message.more);
  CHECK(more["reasoning_content"] == "Hm.");
  CHECK(more["tool_calls"][0]["function"]["arguments"] == Json{{"city", "Oslo"}});
  CHECK(more["tool_calls"][0]["id"].get<std::string>().size() ==
        9);  // as Mistral's templates want them
  CHECK(more["tool_calls"][1]["id"] == "x1");
  CHECK(ChatAnswer{.content = "So."}.message().more.empty());
}

// OpenAI's clients send arguments as a text, and templates want an object, or the other way round.
TEST_CASE("chat answers: arguments reach a template as it takes them") {
  const std::string calls =
      R"({"tool_calls": [{"type": "function", "id": "1", "function": {"name": "f", "arguments": )";
  const std::string object = calls + R"({"a": 1}}}]})", text = calls + R"("{\"a\": 1}"}}]})";
  const auto shown = [](const std::string& jinja, const std::string& more) {
    const std::vector<ChatMessage> messages{{"user", "Q"}, {"assistant", "", more}};
    return format_of("{% for m in messages %}{% for c in m.tool_calls or [] %}" + jinja +
                     "{% endfor %}{% endfor %}")
        .format(messages, false)
        .text;
  };
  for (const std::string& given : {object, text}) {
    CHECK(shown("{{ c.function.arguments | tojson }}", given) == R"({"a": 1})");
    CHECK(shown("{{ 'x' + c.function.arguments }}", given) == R"(x{"a": 1})");
    CHECK(shown("{{ c.function.arguments }}", given) == R"({"a": 1})");
    CHECK(shown("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}",
                given) == "a=1");
  }
  CHECK(shown("{{ c.function.arguments }}", calls + R"("no JSON"}}]})") == "no JSON");
}

TEST_CASE("chat answers: failing allocations leave nothing behind") {
  const ChatFormat format = format_of(with_answer(styles[8].answer));
  const std::string text =
      written(format, {"assistant", "So.", more_of({{"weather", R"({"city":"Oslo","days":3})"}})});
  const auto use = [&] {
    const AnswerFormat answers(format, tools);
    return answers.read(text).calls.size();
  };
  testing::fail_allocations(200, [&] { static_cast<void>(use()); }, [&] { CHECK(use() == 1); });
}
