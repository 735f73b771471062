// Answers that a grammar restricts, on a tiny model with a vocabulary of bytes and a few words.
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/shown_code.hpp"

#include <tenon/io/save.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/text/chat_answer.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;
using models::Generated;
using models::GenerateOptions;
using End = models::Generated::End;

namespace {

const models::LanguageModel& model() {
  static const auto loaded = [] {
    models::LanguageModelOptions options;
    options.context = 256;
    options.backend = {.threads = 2, .exact = true};
    return models::LanguageModel::load("tests/models/data/tiny_llama.gguf", options);
  }();
  return loaded;
}

Generated answer(const GenerateOptions& options) {
  auto conversation = model().conversation();
  return models::generate(model(), conversation, model().tokenizer().encode("abc"), options);
}

/// The same, step by step: the sampler sees minus infinity for what is not allowed.
std::vector<std::int32_t> by_hand(const GenerateOptions& options) {
  const text::Tokenizer& tokenizer = model().tokenizer();
  text::TokenConstraint constraint(*options.grammar, tokenizer);
  nn::Sampler sampler(options.sampler);
  auto conversation = model().conversation();
  auto history = tokenizer.encode("abc");
  std::vector<std::int32_t> tokens, read = history;
  while (static_cast<std::int64_t>(tokens.size()) < options.max_tokens &&
         constraint.may_continue()) {
    const auto logits = conversation.read(read);
    std::vector<float> masked(logits.begin(),
                              logits.begin() + static_cast<std::ptrdiff_t>(tokenizer.vocab_size()));
    for (std::size_t i = 0; i < masked.size(); ++i) {
      if (!constraint.allows(static_cast<std::int32_t>(i)))
        masked[i] = -std::numeric_limits<float>::infinity();
    }
    const std::int32_t token = sampler.sample(masked, history);
    if (tokenizer.is_eog(token)) break;
    constraint.push(token);
    tokens.push_back(token);
    history.push_back(token);
    read = {token};
  }
  return tokens;
}

}  // namespace

TEST_CASE("constrained: the answer is one of the grammar's, and the best of them step by step") {
  const char* const grammars[] = {
      "root ::= \"yes\" | \"no\"",
      "root ::= [a-c]{5,9} (\" \" [x-z]+)? \".\"",
      "root ::= \"{\" [^}]{0,20} \"}\"",
      "root ::= word (\", \" word){2}\nword ::= \"ein\" | \"é\" [a-z]{1,3}",
  };
  for (const char* const text : grammars) {
    for (const double temperature : {0.0, 0.7, 3.0}) {
      for (const std::int64_t top_k : {0, 5}) {
        INFO(text << ", temperature " << temperature << ", top-k " << top_k);
        GenerateOptions options;
        options.max_tokens = 60;
        options.grammar = text::Grammar::parse(text);
        options.sampler.temperature = temperature;
        options.sampler.top_k = top_k;
        options.sampler.repetition_penalty = temperature > 1 ? 1.2 : 1;
        options.sampler.seed = 5;
        const Generated result = answer(options);
        INFO(result.text);
        CHECK(result.tokens == by_hand(options));
        text::GrammarMatcher matcher(*options.grammar);
        CHECK(matcher.push(result.text));
        if (result.end == End::grammar) {
          CHECK(matcher.may_end());
          CHECK_FALSE(matcher.may_continue());
        } else if (result.end == End::token) {
          CHECK(matcher.may_end());
        } else {
          CHECK(result.end == End::length);
        }
      }
    }
  }
}

TEST_CASE("constrained: the answer ends when nothing may follow") {
  GenerateOptions options;
  options.grammar = text::Grammar::parse("root ::= \"abc\" \"\"");
  std::string streamed;
  auto conversation = model().conversation();
  const auto result = models::generate(model(), conversation, model().tokenizer().encode("x"),
                                       options, [&](std::string_view text) { streamed += text; });
  CHECK(result.text == "abc");
  CHECK(streamed == "abc");
  CHECK(result.end == End::grammar);
  options.max_tokens = 1;
  options.grammar = text::Grammar::parse("root ::= \"<\" \"/\" \"!\"");
  CHECK(answer(options).end == End::length);
}

TEST_CASE("constrained: stop texts end it as ever, also as tokens where the text may end") {
  GenerateOptions options;
  options.grammar = text::Grammar::parse("root ::= \"aaa-bbb\"");
  options.stop = {"-"};
  const auto cut = answer(options);
  CHECK(cut.text == "aaa");
  CHECK((cut.end == End::stop || cut.end == End::token));
}

TEST_CASE("constrained: log-probabilities are those of the model") {
  GenerateOptions options;
  options.grammar = text::Grammar::parse("root ::= \"q\" \"z\"");
  options.logprobs = 2;
  auto conversation = model().conversation();
  const auto prompt = model().tokenizer().encode("abc");
  const auto result = models::generate(model(), conversation, prompt, options);
  REQUIRE(result.choices.size() == result.tokens.size());
  auto plain = model().conversation();
  const auto logits = plain.read(prompt).first(model().tokenizer().vocab_size());
  const auto token = static_cast<std::size_t>(result.tokens[0]);
  CHECK(result.choices[0].drawn.value ==
        Approx(static_cast<double>(logits[token]) - nn::log_sum_exp(logits)));
  CHECK(result.choices[0].top[0].token == nn::top_k(logits, 1)[0]);
}

TEST_CASE("grammars.md: the code that it shows") {
  check_shown_code("docs/grammars.md", "tests/models/constrained_test.cpp", 1);
  const models::LanguageModel& model = ::model();
  auto conversation = model.conversation();
  const auto prompt = model.tokenizer().encode("abc");

  GenerateOptions options;
  options.grammar = text::Grammar::from_json_schema(R"({
  "type": "object",
  "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0}},
  "required": ["name", "age"]
})");
  const Generated result = models::generate(model, conversation, prompt, options);

  CHECK(result.end == End::grammar);
  CHECK(result.text.starts_with("{"));
}

TEST_CASE("constrained: what cannot be is refused") {
  GenerateOptions options;
  options.grammar = text::Grammar::parse("root ::= \"a\"");
  options.sample_on_device = true;
  expect_error(Errc::unsupported, [&] { answer(options); });
  options.sample_on_device = false;
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(model().tokenizer().vocab_size());
       ++id) {
    const float infinity = std::numeric_limits<float>::infinity();
    if (model().tokenizer().piece(id) == "a" || model().tokenizer().piece(id) == " a") {
      options.sampler.logit_bias.emplace_back(id, -infinity);
    }
  }
  const auto message = expect_error(Errc::bad_argument, [&] { answer(options); });
  CHECK(contains(message, "logit_bias"));
}

TEST_CASE("constrained: control tokens that are preserved are part of the text, and of grammars") {
  GenerateOptions options;
  options.grammar = text::Grammar::parse(R"(root ::= "<|im_start|>" [0-9] "<|im_start|>")");
  options.sampler.logit_bias = {{*model().tokenizer().bos(), 1e9F}};
  CHECK(answer(options).tokens.size() == 25);  // by tokens of letters
  options.preserved_tokens = {"<|im_start|>", "abc", "none"};
  const Generated result = answer(options);
  CHECK(result.end == End::grammar);
  REQUIRE(result.text.size() == 25);
  CHECK(result.text.starts_with("<|im_start|>"));
  CHECK(result.text.ends_with("<|im_start|>"));
  REQUIRE(result.tokens.size() == 3);
  CHECK(result.tokens[0] == model().tokenizer().bos());
  // Without a grammar, too.
  GenerateOptions only;
  only.max_tokens = 2;
  only.sampler.logit_bias = {{*model().tokenizer().bos(), 1e9F}};
  CHECK(answer(only).text.empty());
  only.preserved_tokens = {"<|im_start|>"};
  CHECK(answer(only).text == "<|im_start|><|im_start|>");
}

TEST_CASE("constrained: a file's further chat templates, by their names") {
  const TempFolder folder;
  const auto file = io::open("tests/models/data/tiny_llama.gguf");
  io::Metadata metadata = file.metadata();
  metadata.set("tokenizer.chat_template", std::string("own {{ eos_token }}"));
  metadata.set("tokenizer.chat_template.tool_use", std::string("tools {{ mood }}"));
  std::vector<io::NamedTensor> tensors;
  for (const io::TensorEntry& entry : file.tensors()) tensors.push_back({entry.name, entry.data()});
  io::save_gguf(folder / "model.gguf", metadata, tensors);
  const auto changed = io::open(folder / "model.gguf");
  const std::vector<text::ChatMessage> messages{{"user", "a"}};
  const auto tokenizer = models::load_tokenizer(changed);
  CHECK(models::load_chat_format(changed, tokenizer)->format(messages).text ==
        "own " + std::string(tokenizer.token(*tokenizer.eos())));
  CHECK(models::load_chat_format(changed, tokenizer, {.more = R"({"mood": 1})"}, "tool_use")
            ->format(messages)
            .text == "tools 1");
  CHECK_FALSE(models::load_chat_format(changed, tokenizer, {}, "rag"));
}

TEST_CASE("tool-calls.md: the code that it shows") {
  check_shown_code("docs/tool-calls.md", "tests/models/constrained_test.cpp", 1);
  const auto chat = text::ChatFormat::from_template(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}<call>"
      "{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}[end]{% endfor "
      "%}");
  std::vector<text::ChatMessage> messages{{"user", "Is it raining in Oslo?"}};
  const auto run = [](const std::string& name, const std::string& arguments) {
    CHECK(name == "weather");
    return arguments;
  };
  const models::LanguageModel& model = ::model();

  const std::string values =
      R"({"tools": [{"type": "function", "function": {"name": "weather", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]})";
  const text::AnswerFormat answers(chat, values);
  GenerateOptions options;
  options.stop = answers.stop_tokens();
  options.preserved_tokens = answers.preserved_tokens();  // where "<tool_call>" is a control token
  options.grammar = answers.call_grammar();  // the answer must call a tool; without it, it may

  auto conversation = model.conversation();
  const auto prompt = chat.format(messages, true, values).encode(model.tokenizer());
  const text::ChatAnswer answer = answers.read(generate(model, conversation, prompt, options).text);
  messages.push_back(answer.message());
  for (const text::ToolCall& call : answer.calls)
    messages.push_back({"tool", run(call.name, call.arguments)});

  // A model of random weights may well not come to the end of its text.
  CHECK((answer.calls.empty() ? answer.rest.starts_with("<call>weather {") : messages.size() > 2));
}

TEST_CASE("constrained: a grammar begins behind a text") {
  // Until "ab" in any letters; behind it digits, three of them.
  GenerateOptions options;
  options.max_tokens = 200;
  options.sampler = {.temperature = 2, .seed = 7};
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(model().tokenizer().vocab_size());
       ++id) {
    if (model().tokenizer().is_eog(id)) options.sampler.logit_bias.emplace_back(id, -1e9F);
  }
  const Generated free_result = answer(options);
  const std::string& free = free_result.text;
  std::string trigger;  // the first token of letters
  for (const std::int32_t id : free_result.tokens) {
    const std::string piece = model().tokenizer().decode(std::span(&id, 1));
    const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
    if (trigger.empty() && !piece.empty() && std::ranges::all_of(piece, is_letter)) trigger = piece;
  }
  REQUIRE_FALSE(trigger.empty());
  const std::size_t end = free.find(trigger) + trigger.size();
  options.grammar = text::Grammar::parse("root ::= [0-9]{3}");
  options.grammar_after = {"never, never", trigger};
  const Generated result = answer(options);
  CHECK(result.end == Generated::End::grammar);
  REQUIRE(result.text.size() == end + 3);
  CHECK(result.text.substr(0, end) == free.substr(0, end));
  CHECK(result.text.find_first_not_of("0123456789", end) == std::string::npos);

  options.grammar_after = {"never, never"};
  CHECK(answer(options).text == free);
  options.grammar_after = {""};
  expect_error(Errc::bad_argument, [&] { answer(options); });
  options.grammar.reset();
  options.grammar_after = {"x"};
  expect_error(Errc::bad_argument, [&] { answer(options); });
}
