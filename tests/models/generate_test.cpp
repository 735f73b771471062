// Generation on a tiny model: how it ends, what it reports, and what loading prepares.
#include "io/temp_folder.hpp"
#include "logits.hpp"
#include "stop_text.hpp"
#include "support/expect_error.hpp"
#include "support/rounds.hpp"

#include <tenon/error.hpp>
#include <tenon/models/language_model.hpp>

#include <chrono>
#include <cmath>
#include <limits>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;
using models::Generated;
using models::StopText;

namespace {

const char* const tiny_llama = "tests/models/data/tiny_llama.gguf";

models::LanguageModelOptions small_pieces(std::int64_t chunk = 4, std::int64_t context = 64) {
  models::LanguageModelOptions options;
  options.context = context;
  options.chunk = chunk;
  options.backend = {.threads = 2, .exact = true};
  return options;
}

std::vector<std::int32_t> tokens_up_to(std::int32_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(7 * i % 272);
  return tokens;
}

std::vector<float> values_of(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

Generated greedy(const models::LanguageModel& model, const models::GenerateOptions& options,
                 std::string* streamed = nullptr) {
  auto conversation = model.conversation();
  return models::generate(model, conversation, model.tokenizer().encode("abc"), options,
                          [&](std::string_view text) {
                            if (streamed != nullptr) *streamed += text;
                          });
}

}  // namespace

TEST_CASE("interrupt: a request ends the reading of a prompt between pieces") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces());
  const auto tokens = tokens_up_to(48);
  std::stop_source source;
  models::Interrupt interrupt;
  interrupt.cancel = source.get_token();
  auto conversation = model.conversation();
  int pieces = 0;
  expect_error(Errc::cancelled, [&] {
    conversation.read_all(
        tokens,
        [&](std::span<const float>, std::int64_t) {
          if (++pieces == 3) source.request_stop();
        },
        interrupt);
  });
  CHECK(conversation.position() == 12);
  expect_error(Errc::cancelled,
               [&] { conversation.read(std::span(tokens).subspan(12), interrupt); });
  expect_error(Errc::cancelled,
               [&] { conversation.read_greedy(std::span(tokens).subspan(12), interrupt); });
  CHECK(conversation.position() == 12);

  // The conversation continues from there.
  const auto rest = conversation.read(std::span(tokens).subspan(12));
  auto whole = model.conversation();
  const auto want = whole.read(tokens);
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(rest[i] == Approx(want[i]).margin(1e-4));
}

TEST_CASE("interrupt: a deadline ends the reading of a prompt of thousands of tokens") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces(1, 4096));
  const auto tokens = tokens_up_to(4000);
  auto conversation = model.conversation();
  models::Interrupt interrupt;
  interrupt.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  expect_error(Errc::timeout, [&] { conversation.read(tokens, interrupt); });
  CHECK(conversation.position() < 4000);
}

TEST_CASE("interrupt: states that only move on are those of the tokens that were read") {
  using Clock = std::chrono::steady_clock;
  for (const std::string architecture : {"llama", "mamba", "rwkv7", "lfm2", "qwen35", "jamba"}) {
    for (const std::int64_t chunk : {1, 128}) {
      INFO(architecture << ", chunks of " << chunk);
      auto options = small_pieces(chunk, 1024);
      const auto model =
          models::LanguageModel::load("tests/models/data/tiny_" + architecture + ".gguf", options);
      const auto tokens = tokens_up_to(200);
      const std::span<const std::int32_t> first = std::span(tokens).first(40);
      const auto after = [&](models::Conversation& conversation, std::size_t count) {
        return values_of(conversation.read(std::span(tokens).subspan(count, 5)));
      };
      auto whole = model.conversation();
      whole.read(first);
      whole.read(tokens);  // planned
      whole.rewind(0);
      whole.read(first);
      const Clock::time_point begin = Clock::now();
      whole.read(std::span(tokens).subspan(40));
      const Clock::duration total = Clock::now() - begin;
      constexpr int deadlines = rounds(24);
      for (int i = 0; i < deadlines; ++i) {
        auto conversation = model.conversation();
        conversation.read(first);
        try {
          conversation.read(std::span(tokens).subspan(40),
                            {.deadline = Clock::now() + total * i / deadlines});
          continue;
        } catch (const Error& error) {
          REQUIRE(error.code() == Errc::timeout);
        }
        const auto count = static_cast<std::size_t>(conversation.position());
        REQUIRE(count >= 40);
        REQUIRE((count - 40) % static_cast<std::size_t>(chunk) == 0);
        if (count + 5 > tokens.size()) continue;
        auto other = model.conversation();
        other.read(first);
        if (count > 40) other.read(std::span(tokens).subspan(40, count - 40));
        CHECK(after(conversation, count) == after(other, count));
      }
    }
  }
}

TEST_CASE("conversation: one use at a time") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces());
  auto conversation = model.conversation();
  const auto tokens = tokens_up_to(8);
  int pieces = 0;
  conversation.read_all(tokens, [&](std::span<const float>, std::int64_t) {
    ++pieces;
    expect_error(Errc::busy, [&] { conversation.read(tokens); });
    expect_error(Errc::busy, [&] { conversation.rewind(0); });
    std::jthread([&] { expect_error(Errc::busy, [&] { conversation.read_greedy(tokens); }); });
  });
  CHECK(pieces == 2);
  CHECK(conversation.position() == 8);
  conversation.read(tokens);
  CHECK(conversation.position() == 16);
}

TEST_CASE("generate: interrupted while it reads the prompt, it says how much was read") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces());
  std::stop_source source;
  source.request_stop();
  models::GenerateOptions options;
  options.interrupt.cancel = source.get_token();
  const auto cancelled = greedy(model, options);
  CHECK(cancelled.end == Generated::End::cancelled);
  CHECK(cancelled.tokens.empty());
  CHECK(cancelled.prompt_tokens == 0);

  options.interrupt = {};
  options.interrupt.deadline = std::chrono::steady_clock::now();
  CHECK(greedy(model, options).end == Generated::End::deadline);
}

TEST_CASE("generate: interrupted while it answers, it gives what there is") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces());
  models::GenerateOptions options;
  options.max_tokens = 40;
  const auto whole = greedy(model, options);
  REQUIRE(whole.tokens.size() == 40);
  std::stop_source source;
  options.interrupt.cancel = source.get_token();
  auto conversation = model.conversation();
  const auto cut = models::generate(model, conversation, model.tokenizer().encode("abc"), options,
                                    [&](std::string_view) { source.request_stop(); });
  CHECK(cut.end == Generated::End::cancelled);
  REQUIRE_FALSE(cut.tokens.empty());
  CHECK(cut.tokens.size() < 40);
  CHECK(whole.text.starts_with(cut.text));
}

TEST_CASE("generate: a conversation of another model is refused") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces());
  const auto same = model;
  auto conversation = same.conversation();
  CHECK(models::generate(model, conversation, tokens_up_to(2), {.max_tokens = 1}).prompt_tokens ==
        2);
  auto other = models::LanguageModel::load(tiny_llama, small_pieces()).conversation();
  const std::string what = expect_error(
      Errc::bad_argument, [&] { models::generate(model, other, tokens_up_to(2), {}); });
  CHECK(what.find("another model") != std::string::npos);
  CHECK(other.position() == 0);
}

TEST_CASE("generate: an answer does not depend on how much of the prompt was read before") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces(1));
  const auto prompt = tokens_up_to(20);
  models::GenerateOptions options;
  options.max_tokens = 24;
  options.sampler = {.temperature = 0, .repetition_penalty = 2};
  const auto answer = [&](std::size_t before) {
    auto conversation = model.conversation();
    if (before > 0) conversation.read(std::span(prompt).first(before));
    return models::generate(model, conversation, std::span(prompt).subspan(before), options).tokens;
  };
  const auto want = answer(0);
  CHECK(answer(10) == want);
  CHECK(answer(19) == want);  // the penalty refers to all of them
  options.sampler.repetition_penalty = 1;
  CHECK(answer(0) != want);
}

TEST_CASE("load: progress covers packing, and the model is packed when it returns") {
  const TempFolder folder;
  auto options = small_pieces();
  options.packed_folder = folder / "packed";
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  options.load.progress = [&](const io::LoadProgress& progress) {
    done.push_back(progress.done_bytes);
    total = progress.total_bytes;
  };
  const auto model = models::LanguageModel::load(tiny_llama, options);
  CHECK(done.size() > 10);
  CHECK(std::ranges::is_sorted(done));
  CHECK(done.back() == total);
  std::uint64_t bytes = 0;
  for (const io::TensorEntry& tensor : model.file().tensors()) bytes += tensor.size_bytes;
  CHECK(total == bytes);
  CHECK_FALSE(std::filesystem::is_empty(options.packed_folder));  // written when all is packed
  CHECK(model.load_times().pack.count() > 0);
  CHECK(model.load_times().total() >= model.load_times().pack + model.load_times().plan);

  // From the kept file there is nothing to pack, and as much to tell.
  done.clear();
  static_cast<void>(models::LanguageModel::load(tiny_llama, options));
  CHECK(done.size() > 10);
  CHECK(done.back() == total);
}

TEST_CASE("load: it can be cancelled while weights are packed") {
  auto options = small_pieces();
  std::stop_source source;
  options.load.stop = source.get_token();
  int calls = 0;
  options.load.progress = [&](const io::LoadProgress& progress) {
    if (progress.done_bytes < progress.total_bytes) ++calls;
    if (calls == 3) source.request_stop();
  };
  expect_error(Errc::cancelled, [&] { models::LanguageModel::load(tiny_llama, options); });
  CHECK(calls == 3);
}

TEST_CASE("load: a lazy one leaves packing to the first read") {
  const TempFolder folder;
  auto options = small_pieces();
  options.packed_folder = folder / "packed";
  options.lazy = true;
  const auto model = models::LanguageModel::load(tiny_llama, options);
  CHECK(std::filesystem::is_empty(options.packed_folder));
  const auto tokens = tokens_up_to(8);
  auto conversation = model.conversation();
  const auto got = conversation.read(tokens);
  CHECK_FALSE(std::filesystem::is_empty(options.packed_folder));
  const auto eager = models::LanguageModel::load(tiny_llama, small_pieces());
  auto other = eager.conversation();
  const auto want = other.read(tokens);
  CHECK(std::ranges::equal(got, want));
}

TEST_CASE("generate: planning for a prompt's length is told apart from reading it") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces(512));
  const auto first = greedy(model, {.max_tokens = 1});
  CHECK(first.plan_time.count() > 0);
  CHECK(first.prefill_time.count() > 0);
  CHECK(first.prompt_tokens == 3);
}

TEST_CASE("stop text: it is cut off, wherever pieces end") {
  const auto cut = [](const std::vector<std::string>& pieces, std::vector<std::string> stops) {
    StopText text(std::move(stops));
    std::string out;
    for (const std::string& piece : pieces) out += text.push(piece);
    out += text.finish();
    return out + (text.found() ? "|" : "");
  };
  CHECK(cut({"one two three"}, {"two"}) == "one |");
  CHECK(cut({"one t", "w", "o three"}, {"two"}) == "one |");
  CHECK(cut({"one t", "w", "ice"}, {"two"}) == "one twice");
  CHECK(cut({"one tw"}, {"two"}) == "one tw");
  CHECK(cut({"aab"}, {"ab"}) == "a|");
  CHECK(cut({"a", "a", "a", "b", "c"}, {"aab"}) == "a|");
  CHECK(cut({"xyz"}, {"z", "yz"}) == "x|");  // the earliest
  CHECK(cut({"end", "more"}, {"end"}) == "|");
  CHECK(cut({"plain"}, {}) == "plain");
  expect_error(Errc::bad_argument, [] { StopText({""}); });
}

TEST_CASE("stop text: nothing comes out that a later piece takes back") {
  StopText text({"###", "\n\nUser:"});
  CHECK(text.push("Hi #") == "Hi ");
  CHECK(text.push("1\n\nUs") == "#1");
  CHECK(text.push("e it") == "\n\nUse it");
  CHECK(text.push("##") == "");
  CHECK(text.push("# no") == "");
  CHECK(text.found());
  CHECK(text.finish().empty());
}

TEST_CASE("generate: a stop text ends the answer before it") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces());
  models::GenerateOptions options;
  options.max_tokens = 24;
  const std::string whole = greedy(model, options).text;
  REQUIRE(whole.size() > 8);
  const std::string stop = whole.substr(whole.size() / 2, 3);
  options.stop = {stop};
  std::string streamed;
  const auto cut = greedy(model, options, &streamed);
  CHECK(cut.end == Generated::End::stop);
  CHECK(cut.text == whole.substr(0, whole.find(stop)));
  CHECK(streamed == cut.text);
  options.stop = {""};
  expect_error(Errc::bad_argument, [&] { greedy(model, options); });
}

TEST_CASE("generate: log-probabilities are those of the logits") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces());
  const auto vocabulary = static_cast<std::int64_t>(model.tokenizer().vocab_size());
  models::GenerateOptions options;
  options.max_tokens = 6;
  const auto plain = greedy(model, options);
  CHECK(plain.choices.empty());
  options.logprobs = vocabulary;
  const auto made = greedy(model, options);
  CHECK(made.tokens == plain.tokens);
  REQUIRE(made.choices.size() == made.tokens.size());
  auto conversation = model.conversation();
  std::vector<std::int32_t> read = model.tokenizer().encode("abc");
  for (std::size_t i = 0; i < made.tokens.size(); ++i) {
    const auto want = log_softmax(conversation.read(read).first(model.tokenizer().vocab_size()));
    const Generated::Choice& choice = made.choices[i];
    CHECK(choice.drawn.token == made.tokens[i]);
    CHECK(choice.top.front().token == made.tokens[i]);  // greedy
    REQUIRE(static_cast<std::int64_t>(choice.top.size()) == vocabulary);
    double sum = 0;
    for (std::size_t j = 0; j < choice.top.size(); ++j) {
      const auto& [token, value] = choice.top[j];
      CHECK(value == Approx(want[static_cast<std::size_t>(token)]).margin(1e-6));
      if (j > 0) CHECK(value <= choice.top[j - 1].value);
      sum += std::exp(value);
    }
    CHECK(sum == Approx(1).margin(1e-6));
    read = {made.tokens[i]};
  }
  options.logprobs = -1;
  expect_error(Errc::bad_argument, [&] { greedy(model, options); });
  options.logprobs.reset();
  options.max_tokens = -1;
  expect_error(Errc::bad_argument, [&] { greedy(model, options); });
}

TEST_CASE("generate: a bias excludes a token, or has it drawn") {
  const auto model = models::LanguageModel::load(tiny_llama, small_pieces());
  models::GenerateOptions options;
  options.max_tokens = 8;
  const std::int32_t first = greedy(model, options).tokens.front();
  options.sampler.logit_bias = {{first, -std::numeric_limits<float>::infinity()}};
  const auto without = greedy(model, options).tokens;
  CHECK(std::ranges::find(without, first) == without.end());
  options.sampler.logit_bias = {{100, 1e6f}};
  CHECK(greedy(model, options).tokens == std::vector<std::int32_t>(8, 100));
  options.sampler.logit_bias = {{272, 1}};
  expect_error(Errc::bad_argument, [&] { greedy(model, options); });
}
