// Answers that are generated at the same time: each is the one that generate() gives alone.
#include "support/expect_error.hpp"
#include "support/failing_memory.hpp"
#include "support/shown_code.hpp"
#include "tiny_models.hpp"

#include <tenon/error.hpp>
#include <tenon/models/answer_batch.hpp>

#include <atomic>
#include <map>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;
using models::AnswerBatch;
using models::AnswerRequest;
using models::Conversation;
using models::FinishedAnswer;
using models::Generated;
using models::GenerateOptions;
using models::LanguageModel;

namespace {

LanguageModel batch_model(const std::string& architecture, std::int64_t context = 64) {
  models::LanguageModelOptions options;
  options.context = context;
  options.chunk = 5;
  options.backend = {.threads = 1};
  return LanguageModel::load(tiny_path(architecture), options);
}

/// A request that nobody planned.
AnswerRequest random_request(const LanguageModel& model, std::mt19937& random) {
  const auto up_to = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
  AnswerRequest request{.conversation = model.conversation(), .prompt = {}};
  const int held = up_to(2) * 4, prompt = 1 + up_to(16);
  for (int i = 0; i < held + prompt; ++i) request.prompt.push_back(up_to(199));
  if (held > 0) {
    request.conversation.read(std::span(request.prompt).first(static_cast<std::size_t>(held)));
    request.prompt.erase(request.prompt.begin(), request.prompt.begin() + held);
  }
  GenerateOptions& options = request.options;
  options.max_tokens = up_to(5) == 0 ? up_to(1) : 2 + up_to(60);
  options.sampler.temperature = up_to(2) == 0 ? 0 : 1.5;
  options.sampler.seed = random();
  if (up_to(3) == 0) options.sampler.repetition_penalty = 1.3;
  if (up_to(3) == 0) options.logprobs = up_to(3);
  if (up_to(3) == 0) options.stop = {"e"};
  if (up_to(4) == 0) options.grammar = text::Grammar::parse("root ::= [a-e]{1,12}");
  return request;
}

bool are_equal(const Generated& one, const Generated& other) {
  if (one.choices.size() != other.choices.size()) return false;
  for (std::size_t i = 0; i < one.choices.size(); ++i) {
    if (one.choices[i].drawn.value != other.choices[i].drawn.value) return false;
    if (one.choices[i].top.size() != other.choices[i].top.size()) return false;
  }
  return one.tokens == other.tokens && one.text == other.text && one.end == other.end &&
         one.prompt_tokens == other.prompt_tokens;
}

std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

}  // namespace

TEST_CASE("answer batch: answers that come and go are those of generate()") {
  const std::uint64_t seed = test_seed();
  INFO("TENON_TEST_SEED=" << seed);
  std::mt19937 random(static_cast<unsigned>(seed));
  for (const char* architecture : {"llama", "gemma3", "mamba", "falcon-h1"}) {
    INFO(architecture);
    const LanguageModel model = batch_model(architecture);
    const std::int64_t at_once = 1 + static_cast<std::int64_t>(random() % 6);
    AnswerBatch batch(model, at_once);
    std::map<std::int64_t, Generated> expected;
    std::map<std::int64_t, std::string> emitted, expected_text;
    std::map<std::int64_t, Conversation> left;
    int to_come = 12;
    std::int64_t ended = 0;
    while (to_come > 0 || batch.size() > 0) {
      while (to_come > 0 && (random() % 3 == 0 || batch.size() == 0)) {
        --to_come;
        AnswerRequest request = random_request(model, random);
        Conversation alone = request.conversation.fork();
        const auto id = static_cast<std::int64_t>(expected.size());
        expected.emplace(
            id, models::generate(model, alone, request.prompt, request.options,
                                 [&](std::string_view text) { expected_text[id] += text; }));
        left.emplace(id, alone);
        request.emit = [&emitted, id](std::string_view text) { emitted[id] += text; };
        left.emplace(id + 1000, request.conversation);
        REQUIRE(batch.add(std::move(request)) == id);
      }
      for (const FinishedAnswer& done : batch.step()) {
        INFO("answer " << done.id);
        ++ended;
        REQUIRE(done.error == nullptr);
        CHECK(are_equal(done.answer, expected.at(done.id)));
        CHECK(emitted[done.id] == expected_text[done.id]);
        const auto held = left.at(done.id).tokens(), got = left.at(done.id + 1000).tokens();
        CHECK(std::vector(got.begin(), got.end()) == std::vector(held.begin(), held.end()));
      }
    }
    CHECK(ended == 12);
    CHECK(batch.step().empty());
  }
}

TEST_CASE("answer batch: what one answer throws ends that one only") {
  const LanguageModel model = batch_model("llama");
  std::vector<AnswerRequest> requests;
  for (int i = 0; i < 4; ++i) {
    AnswerRequest request{.conversation = model.conversation(), .prompt = {3, 17 + i}};
    request.options.max_tokens = 8;
    if (i == 1) request.emit = [](std::string_view) { throw std::runtime_error("it hung up"); };
    // No token of the vocabulary spells it.
    if (i == 2) request.options.grammar = text::Grammar::parse("root ::= \"\\U0001F9A9\" [a-z]");
    requests.push_back(std::move(request));
  }
  const auto finished = models::generate_each(model, std::move(requests));
  REQUIRE(finished.size() == 4);
  CHECK(what_of(finished[1].error) == "it hung up");
  for (const std::size_t i : {0U, 3U}) {
    CHECK(finished[i].id == static_cast<std::int64_t>(i));
    CHECK(finished[i].error == nullptr);
    Conversation alone = model.conversation();
    const std::vector<std::int32_t> prompt{3, 17 + static_cast<std::int32_t>(i)};
    GenerateOptions options;
    options.max_tokens = 8;
    CHECK(are_equal(finished[i].answer, models::generate(model, alone, prompt, options)));
  }
}

TEST_CASE("answer batch: interrupts end their answers") {
  const LanguageModel model = batch_model("llama");
  AnswerBatch batch(model);
  std::stop_source stop;
  for (int i = 0; i < 3; ++i) {
    AnswerRequest request{.conversation = model.conversation(), .prompt = {3, 17 + i}};
    request.options.max_tokens = 20;
    request.options.sampler.temperature = 1;
    if (i == 0) request.options.interrupt.cancel = stop.get_token();
    if (i == 1) request.options.interrupt.deadline = std::chrono::steady_clock::now();
    batch.add(std::move(request));
  }
  std::map<std::int64_t, Generated> ended;
  for (int steps = 0; batch.size() > 0; ++steps) {
    if (steps == 5) stop.request_stop();
    for (FinishedAnswer& done : batch.step()) ended[done.id] = std::move(done.answer);
  }
  CHECK(ended[0].end == Generated::End::cancelled);
  CHECK(ended[0].tokens.size() >= 3);
  CHECK(ended[1].end == Generated::End::deadline);
  CHECK(ended[1].tokens.empty());
  CHECK(ended[2].tokens.size() > ended[0].tokens.size());
}

TEST_CASE("answer batch: what it refuses") {
  const LanguageModel model = batch_model("llama");
  expect_error(Errc::bad_argument, [&] { AnswerBatch(model, 0); });
  AnswerBatch batch(model);
  const auto refused = [&](Errc code, auto change) {
    AnswerRequest request{.conversation = model.conversation(), .prompt = {1, 2}};
    change(request);
    return expect_error(code, [&] { batch.add(request); });
  };
  refused(Errc::bad_argument, [](AnswerRequest& request) { request.prompt.clear(); });
  refused(Errc::bad_argument, [](AnswerRequest& request) { request.options.max_tokens = -1; });
  CHECK(contains(
      refused(Errc::unsupported, [](AnswerRequest& request) { request.options.draft.lookup = 4; }),
      "drafts"));
  CHECK(contains(refused(Errc::unsupported,
                         [](AnswerRequest& request) {
                           request.options.sample_on_device = true;
                           request.options.sampler.temperature = 1;
                         }),
                 "sample_on_device"));
  const LanguageModel other = batch_model("gemma3");
  refused(Errc::bad_argument,
          [&](AnswerRequest& request) { request.conversation = other.conversation(); });
  const Conversation conversation = model.conversation();
  batch.add({.conversation = conversation, .prompt = {1, 2}});
  CHECK(contains(refused(Errc::bad_argument,
                         [&](AnswerRequest& request) { request.conversation = conversation; }),
                 "fork()"));
  AnswerRequest calls_back{.conversation = model.conversation(), .prompt = {3, 4}};
  std::string inner;
  calls_back.emit = [&](std::string_view) {
    inner = expect_error(Errc::busy, [&] { batch.step(); });
  };
  batch.add(std::move(calls_back));
  while (batch.size() > 0) batch.step();
  CHECK(contains(inner, "a step is under way"));
}

TEST_CASE("answer batch: answers are added on other threads during steps") {
  const LanguageModel model = batch_model("gemma3");
  AnswerBatch batch(model, 3);
  std::atomic<int> adding = 3;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        AnswerRequest request{.conversation = model.conversation(), .prompt = {3, 7 * t + i}};
        request.options.max_tokens = 6;
        batch.add(std::move(request));
      }
      --adding;
    });
  }
  std::vector<std::int64_t> ended;
  while (adding > 0 || batch.size() > 0) {
    for (const FinishedAnswer& done : batch.step()) {
      CHECK(done.error == nullptr);
      ended.push_back(done.id);
    }
  }
  CHECK(ended.size() == 15);
}

TEST_CASE("answer batch: when memory runs out, answers end with an error") {
  const LanguageModel model = batch_model("llama");
  const auto requests = [&] {
    std::vector<AnswerRequest> made;
    for (int i = 0; i < 3; ++i) {
      AnswerRequest request{.conversation = model.conversation(),
                            .prompt = {3, 17 + i, 4, 5, 6, 7}};
      request.options.max_tokens = 4;
      request.options.sampler.temperature = i == 0 ? 0 : 1;
      made.push_back(std::move(request));
    }
    return made;
  };
  const auto expected = models::generate_each(model, requests());
  fail_allocations(
      150,
      [&] {
        for (const FinishedAnswer& done : models::generate_each(model, own(requests))) {
          if (done.error != nullptr) std::rethrow_exception(done.error);
        }
      },
      [&] {
        const auto again = models::generate_each(model, requests());
        for (std::size_t i = 0; i < again.size(); ++i) {
          CHECK(are_equal(again[i].answer, expected[i].answer));
        }
      });
}

TEST_CASE("serving.md: the code that it shows") {
  check_shown_code("docs/serving.md", "tests/models/answer_batch_test.cpp", 1);
  const LanguageModel model = batch_model("llama");
  const std::vector<std::vector<std::int32_t>> prompts{{3, 40}, {9}, {7, 7, 8}};
  GenerateOptions options;
  options.max_tokens = 5;
  std::map<std::int64_t, std::string> texts;

  AnswerBatch batch(model);
  for (const auto& prompt : prompts)
    batch.add({.conversation = model.conversation(), .prompt = prompt, .options = options});
  while (batch.size() > 0) {
    for (const FinishedAnswer& done : batch.step()) texts[done.id] = done.answer.text;
  }

  CHECK(texts.size() == 3);
}
