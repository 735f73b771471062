// Answers that are generated at the same time: each is the one that generate() gives alone.
#include "support/expect_error.hpp"
#include "support/failing_memory.hpp"
#include "support/remote_device.hpp"
#include "support/rounds.hpp"
#include "support/shown_code.hpp"
#include "tiny_models.hpp"

#include <tenon/error.hpp>
#include <tenon/models/answer_batch.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <new>
#include <optional>
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

using Ids = std::vector<std::int32_t>;

LanguageModel batch_model(const std::string& architecture, std::int64_t context = 64,
                          std::int64_t chunk = 5) {
  models::LanguageModelOptions options;
  options.context = context;
  options.chunk = chunk;
  options.backend = {.threads = 2};  // samplers share them
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
    std::map<std::int64_t, Ids> drawn;  // with log-probabilities
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
        request.emit_choice = [&drawn, id](const Generated::Choice& choice) {
          drawn[id].push_back(choice.drawn.token);
        };
        left.emplace(id + 1000, request.conversation);
        REQUIRE(batch.add(std::move(request)) == id);
      }
      for (const FinishedAnswer& done : batch.step()) {
        INFO("answer " << done.id);
        ++ended;
        REQUIRE(done.error == nullptr);
        CHECK(are_equal(done.answer, expected.at(done.id)));
        CHECK(emitted[done.id] == expected_text[done.id]);
        CHECK(drawn[done.id] == (done.answer.choices.empty() ? Ids() : done.answer.tokens));
        const auto held = left.at(done.id).tokens(), got = left.at(done.id + 1000).tokens();
        CHECK(std::vector(got.begin(), got.end()) == std::vector(held.begin(), held.end()));
      }
    }
    CHECK(ended == 12);
    CHECK(batch.step().empty());
  }
}

TEST_CASE("answer batch: prompts that begin alike are read once, and give the same bits") {
  const std::uint64_t seed = test_seed();
  INFO("TENON_TEST_SEED=" << seed);
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto up_to = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
  EveryThird third;
  for (const char* architecture : {"llama", "gemma3", "gpt-oss", "qwen3moe", "deepseek2", "llama4",
                                   "bloom", "mamba", "falcon-h1", "qwen2vl", "rwkv7"}) {
    if (third.skips()) continue;
    INFO(architecture);
    const LanguageModel model = batch_model(architecture, 400, 160);
    AnswerBatch batch(model);
    Ids text;
    for (int i = 0; i < 390; ++i) text.push_back(up_to(199));
    std::int64_t reused = 0;
    std::size_t previous = 0;
    for (int i = 0; i < 8; ++i) {
      // A part of a text that they share, or all of the last prompt, and something of its own. The
      // first two share more than a chunk, the least that is reused of some models.
      const std::size_t some = static_cast<std::size_t>(i < 2 ? 200 + up_to(130) : up_to(330));
      const std::size_t shared = i % 3 == 2 && previous < 330 ? previous : some;
      Ids prompt(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(shared));
      for (int j = i % 4 == 1 ? 40 : up_to(50); j >= 0; --j) prompt.push_back(up_to(199));
      std::ranges::copy(prompt, text.begin());
      previous = prompt.size();
      GenerateOptions options;
      options.max_tokens = 3;
      options.sampler.temperature = i % 2;
      options.sampler.repetition_penalty = 1.2;
      options.logprobs = 1;
      Conversation alone = model.conversation(), together = model.conversation();
      const Generated want = models::generate(model, alone, prompt, options);
      batch.add({.conversation = together, .prompt = prompt, .options = options});
      std::vector<FinishedAnswer> finished;
      while (finished.empty()) finished = batch.step();
      INFO("prompt of " << prompt.size() << " tokens, " << finished[0].answer.reused_tokens
                        << " of them reused");
      REQUIRE(finished[0].error == nullptr);
      CHECK(are_equal(finished[0].answer, want));
      CHECK(std::ranges::equal(alone.tokens(), together.tokens()));
      CHECK(std::ranges::equal(alone.read(Ids{9, 8}), together.read(Ids{9, 8})));
      reused += finished[0].answer.reused_tokens;
    }
    if (!model.config().is_recurrent()) CHECK(reused > 0);
  }
}

namespace {

/// How many tokens of prompts, answered one after the other, were reused.
std::vector<std::int64_t> reused_of(const LanguageModel& model, std::uint64_t prompt_bytes,
                                    const std::vector<Ids>& prompts) {
  AnswerBatch batch(model, {.prompt_bytes = prompt_bytes});
  std::vector<std::int64_t> reused;
  for (const Ids& prompt : prompts) {
    AnswerRequest request{.conversation = model.conversation(), .prompt = prompt};
    request.options.max_tokens = 2;
    batch.add(std::move(request));
    while (batch.size() > 0) {
      for (const FinishedAnswer& done : batch.step()) {
        REQUIRE(done.error == nullptr);
        Conversation alone = model.conversation();
        GenerateOptions options;
        options.max_tokens = 2;
        CHECK(are_equal(done.answer, models::generate(model, alone, prompt, options)));
        reused.push_back(done.answer.reused_tokens);
      }
    }
  }
  return reused;
}

/// `shared` times a token, then others.
Ids prompt_of(std::int32_t token, std::size_t shared, std::int32_t other, std::size_t size) {
  Ids prompt(shared, token);
  prompt.resize(size, other);
  return prompt;
}

}  // namespace

TEST_CASE("answer batch: how much of a prompt is reused") {
  const LanguageModel model = batch_model("llama", 256, 64);
  constexpr std::uint64_t much = std::uint64_t{1} << 30;
  using Reused = std::vector<std::int64_t>;
  const auto second = [&](std::size_t kept, std::size_t shared, std::size_t size) {
    return reused_of(model, much,
                     {prompt_of(1, shared, 2, kept), prompt_of(1, shared, 3, size)})[1];
  };
  CHECK(second(100, 80, 150) == 80);
  CHECK(second(100, 80, 100) == 68);  // 32 tokens are read
  CHECK(second(100, 64, 65) == 64);   // a whole piece, whatever follows
  CHECK(second(90, 80, 150) == 64);   // its last 26 tokens were few
  CHECK(second(150, 80, 90) == 64);   // the other's are
  CHECK(second(100, 96, 200) == 96);
  CHECK(second(100, 100, 200) == 96);  // 32 tokens of the piece are read
  CHECK(second(100, 100, 100) == 68);  // the same prompt
  CHECK(second(31, 31, 100) == 0);
  CHECK(second(100, 0, 100) == 0);

  // Nothing is kept; nothing is taken for a conversation that holds tokens.
  const std::vector<Ids> same(2, prompt_of(1, 100, 1, 100));
  CHECK(reused_of(model, 0, same) == Reused{0, 0});
  AnswerBatch batch(model);
  for (const bool holds_some : {false, true}) {
    Conversation conversation = model.conversation();
    if (holds_some) conversation.read(Ids{7});
    batch.add({.conversation = conversation, .prompt = same[0]});
    std::vector<FinishedAnswer> finished;
    while (finished.empty()) finished = batch.step();
    CHECK(finished[0].answer.reused_tokens == 0);
  }

  // The longest, of all that are kept.
  CHECK(reused_of(model, much,
                  {prompt_of(1, 80, 2, 200), prompt_of(1, 150, 3, 200), prompt_of(1, 90, 4, 200),
                   prompt_of(1, 130, 5, 200)}) == Reused{0, 80, 90, 130});
  // Room for two of 100 tokens: the one that was not used for longest goes.
  std::uint64_t token_bytes = 0;
  visit_fields(models::cache_shape(model.config(), 1, f16),
               [&](const std::string&, const Shape& shape) {
                 token_bytes += static_cast<std::uint64_t>(shape.bytes());
               });
  const auto whole = [](std::int32_t token) { return prompt_of(token, 100, 0, 100); };
  CHECK(reused_of(model, 200 * token_bytes, {whole(1), whole(2), whole(1), whole(3), whole(2)}) ==
        Reused{0, 0, 68, 0, 0});
  CHECK(reused_of(model, 200 * token_bytes, {whole(1), whole(2), whole(1), whole(3), whole(1)}) ==
        Reused{0, 0, 68, 0, 68});
  CHECK(reused_of(model, 99 * token_bytes, {whole(1), whole(1)}) == Reused{0, 0});
  // A prompt takes the place of its beginning.
  CHECK(reused_of(model, 201 * token_bytes,
                  {whole(1), whole(2), prompt_of(2, 100, 0, 101), whole(1)}) ==
        Reused{0, 0, 69, 68});

  register_opaque_devices();
  models::LanguageModelOptions elsewhere;
  elsewhere.context = 256;
  elsewhere.chunk = 64;
  elsewhere.device = Device::open("opaque://test");
  CHECK(reused_of(LanguageModel::load(tiny_path("llama"), elsewhere), much,
                  {prompt_of(1, 80, 2, 100), prompt_of(1, 80, 3, 150)}) == Reused{0, 80});

  // States only move on: a prompt as a whole, by one that continues it.
  const LanguageModel mamba = batch_model("mamba", 256, 64);
  CHECK(reused_of(mamba, much,
                  {prompt_of(1, 96, 0, 96), prompt_of(1, 80, 2, 150), prompt_of(1, 96, 2, 150),
                   prompt_of(1, 96, 0, 96)}) == Reused{0, 0, 96, 0});
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

TEST_CASE("answer batch: an answer that waits is interrupted, too") {
  const LanguageModel model = batch_model("llama");
  AnswerBatch batch(model, 1);
  std::stop_source stop;
  for (int i = 0; i < 3; ++i) {
    AnswerRequest request{.conversation = model.conversation(), .prompt = {3, 17 + i}};
    request.options.max_tokens = 8;
    request.options.sampler.logit_bias = {{2, -INFINITY}};
    if (i == 1) request.options.interrupt.cancel = stop.get_token();
    batch.add(std::move(request));
  }
  CHECK(batch.step().empty());
  stop.request_stop();
  const std::vector<FinishedAnswer> ended = batch.step();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].id == 1);
  CHECK(ended[0].answer.end == Generated::End::cancelled);
  CHECK(ended[0].answer.prompt_tokens == 0);
  CHECK(batch.size() == 2);
  std::map<std::int64_t, std::size_t> rest;
  while (batch.size() > 0) {
    for (const FinishedAnswer& done : batch.step()) rest[done.id] = done.answer.tokens.size();
  }
  CHECK(rest == std::map<std::int64_t, std::size_t>{{0, 8}, {2, 8}});
}

TEST_CASE("answer batch: callbacks add answers, cancel them, and drop the batch") {
  const LanguageModel model = batch_model("llama");
  auto batch = std::make_unique<AnswerBatch>(model);
  std::stop_source stop;
  const auto request = [&](std::int32_t token) {
    AnswerRequest made{.conversation = model.conversation(), .prompt = {3, token}};
    made.options.max_tokens = 8;
    made.options.sampler.logit_bias = {{2, -INFINITY}};
    return made;
  };
  AnswerRequest first = request(17), second = request(18);
  second.options.interrupt.cancel = stop.get_token();
  std::int64_t added = -1;
  first.emit = [&](std::string_view) {
    if (added < 0) added = batch->add(request(19));
    stop.request_stop();
  };
  batch->add(std::move(first));
  batch->add(std::move(second));
  std::map<std::int64_t, Generated> ended;
  while (batch->size() > 0) {
    for (FinishedAnswer& done : batch->step()) {
      CHECK(done.error == nullptr);
      ended[done.id] = std::move(done.answer);
    }
  }
  CHECK(added == 2);
  CHECK(ended.size() == 3);
  CHECK(ended[0].end == Generated::End::length);
  CHECK(ended[1].end == Generated::End::cancelled);
  CHECK(ended[2].end == Generated::End::length);

  AnswerRequest last = request(20);
  last.emit = [&](std::string_view) { batch.reset(); };
  batch->add(std::move(last));
  while (batch != nullptr) CHECK(batch->step().empty());
}

TEST_CASE("answer batch: what it refuses") {
  const LanguageModel model = batch_model("llama");
  expect_error(Errc::bad_argument, [&] { AnswerBatch(model, 0); });
  expect_error(Errc::bad_argument, [&] { AnswerBatch(model, {.at_once = 0}); });
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
                            .prompt = {3, 4, 5, 6, 7, 17 + i}};
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

TEST_CASE("answer batch: a failing allocation ends one answer at most") {
  const LanguageModel model = batch_model("llama");
  const auto requests = [&] {
    std::vector<AnswerRequest> made;
    for (int i = 0; i < 4; ++i) {
      AnswerRequest request{.conversation = model.conversation(),
                            .prompt = {3, 4, 5, 6, 7, 17 + i}};
      request.options.max_tokens = 4;
      request.options.sampler.temperature = i % 2;
      if (i == 1) request.options.grammar = text::Grammar::parse("root ::= [a-e]{9}");
      made.push_back(std::move(request));
    }
    return made;
  };
  const auto expected = models::generate_each(model, requests());
  std::size_t allocations = 0;
  const auto run = [&](std::optional<std::size_t> failing) {
    AnswerBatch batch(model);
    for (AnswerRequest& request : requests()) batch.add(std::move(request));
    std::vector<FinishedAnswer> ended;
    MemoryWatch watch;
    if (failing) watch.fail_at(*failing, false);
    while (batch.size() > 0) {
      try {
        for (FinishedAnswer& done : batch.step()) ended.push_back(std::move(done));
      } catch (const Error& error) {
        if (error.code() != Errc::out_of_memory) throw;  // before anything was read
      } catch (const std::bad_alloc&) {                  // of this test
      }
    }
    watch.fail_never();
    allocations = watch.allocations();
    return ended;
  };
  run(std::nullopt);
  run(std::nullopt);
  const std::size_t count = allocations,
                    stride = std::max<std::size_t>(count * round_stride / 150, 1);
  const std::uint64_t seed = test_seed();
  INFO("TENON_TEST_SEED=" << seed << ", " << count << " allocations");
  for (std::size_t k = seed % stride; k < count; k += stride) {
    INFO("allocation " << k);
    int failed = 0;
    const auto ended = run(k);
    REQUIRE(ended.size() <= 4);  // fewer where the list above was not made
    for (const FinishedAnswer& done : ended) {
      if (done.error == nullptr) {
        CHECK(are_equal(done.answer, expected[static_cast<std::size_t>(done.id)].answer));
      } else {
        ++failed;
        CHECK(contains(what_of(done.error), "OutOfMemory"));
      }
    }
    CHECK(failed <= 1);
  }
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
