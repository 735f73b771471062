// Speculative decoding gives the answers of ordinary decoding, however good or bad the drafts are.
#include "draft.hpp"

#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/failing_memory.hpp"
#include "support/rounds.hpp"
#include "support/shown_code.hpp"

#include <tenon/error.hpp>
#include <tenon/models/language_model.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;
using models::Conversation;
using models::DraftOptions;
using models::DraftPace;
using models::Generated;
using models::GenerateOptions;
using models::LanguageModel;
using models::looked_up;

namespace {

using Tokens = std::vector<std::int32_t>;

LanguageModel small_model(const std::string& architecture, std::int64_t chunk = 64,
                          std::int64_t context = 128, bool is_exact = true) {
  models::LanguageModelOptions options;
  options.context = context;
  options.chunk = chunk;
  options.backend = {.threads = 2, .exact = is_exact};
  return LanguageModel::load("tests/models/data/tiny_" + architecture + ".gguf", options);
}

DraftOptions by_lookup(std::int64_t max_tokens = 16) {
  return {.lookup = 3, .min_lookup = 1, .max_tokens = max_tokens};
}
DraftOptions by_model(const LanguageModel& model, std::int64_t max_tokens = 16,
                      double min_probability = 0) {
  return {
      .model = model.conversation(), .min_probability = min_probability, .max_tokens = max_tokens};
}

struct Answer {
  Generated generated;
  std::string streamed;
  Tokens held;
};

Answer answer(const LanguageModel& model, std::span<const std::int32_t> prompt,
              const GenerateOptions& options) {
  auto conversation = model.conversation();
  Answer made;
  made.generated = models::generate(model, conversation, prompt, options,
                                    [&](std::string_view text) { made.streamed += text; });
  made.held.assign(conversation.tokens().begin(), conversation.tokens().end());
  return made;
}

void check_same(const Answer& got, const Answer& want) {
  CHECK(got.generated.tokens == want.generated.tokens);
  CHECK(got.generated.text == want.generated.text);
  CHECK(got.streamed == want.streamed);
  CHECK(got.generated.end == want.generated.end);
  CHECK(got.held == want.held);
  CHECK(got.generated.prompt_tokens == want.generated.prompt_tokens);
  REQUIRE(got.generated.choices.size() == want.generated.choices.size());
  for (std::size_t i = 0; i < got.generated.choices.size(); ++i) {
    const auto &ours = got.generated.choices[i], &theirs = want.generated.choices[i];
    CHECK(ours.drawn.token == theirs.drawn.token);
    CHECK(ours.drawn.value == Approx(theirs.drawn.value).margin(1e-4));
    REQUIRE(ours.top.size() == theirs.top.size());
    for (std::size_t j = 0; j < ours.top.size(); ++j) {
      CHECK(ours.top[j].value == Approx(theirs.top[j].value).margin(1e-4));
    }
  }
  CHECK(got.generated.accepted_tokens <= got.generated.drafted_tokens);
}

/// Prompts that repeat themselves, so that lookups find something.
Tokens repeating(std::mt19937& random, std::size_t count) {
  std::uniform_int_distribution<std::int32_t> token(2, 271);
  Tokens tokens;
  while (tokens.size() < count) {
    if (tokens.size() > 6 && random() % 2 == 0) {
      const std::size_t begin = random() % (tokens.size() - 4);
      for (std::size_t i = 0; i < 4; ++i) tokens.push_back(tokens[begin + i]);
    } else {
      tokens.push_back(token(random));
    }
  }
  tokens.resize(count);
  return tokens;
}

const std::vector<nn::SamplerOptions> samplers = {
    {},
    {.temperature = 0, .repetition_penalty = 1.3},
    {.temperature = 0.7, .top_k = 3, .seed = 3},
    {.temperature = 1, .top_p = 0.6, .repetition_penalty = 1.1, .repetition_window = 8, .seed = 9},
    {.temperature = 0.3, .logit_bias = {{100, 4.0F}, {101, -INFINITY}}, .seed = 11},
    {.temperature = 0.6, .seed = 13, .frequency_penalty = 0.4, .dry_multiplier = 2},
    {.temperature = 0.8, .seed = 17, .xtc_probability = 0.5, .xtc_threshold = 0.02},
    {.temperature = 1, .seed = 19, .mirostat = 2, .mirostat_tau = 3},  // which learns
};

}  // namespace

TEST_CASE("lookup: what followed the last tokens where they stood before") {
  const Tokens text{1, 2, 3, 4, 9, 2, 3, 5, 6, 2, 3};
  CHECK(looked_up(text, 1, 3, 2) == Tokens{5, 6});  // of equal matches the last
  CHECK(looked_up(text, 1, 1, 2) == Tokens{5, 6});
  const Tokens longer{1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3};
  CHECK(looked_up(longer, 1, 3, 2) == Tokens{4, 9});  // the longest first
  CHECK(looked_up(longer, 1, 2, 2) == Tokens{5, 1});
  CHECK(looked_up(longer, 3, 3, 2) == Tokens{4, 9});
  CHECK(looked_up(longer, 4, 4, 2).empty());
  CHECK(looked_up(longer, 1, 3, 0).empty());
  CHECK(looked_up(Tokens{1, 2, 3}, 1, 3, 4).empty());
  CHECK(looked_up(Tokens{1}, 1, 3, 4).empty());
  CHECK(looked_up(Tokens{}, 1, 3, 4).empty());
}

TEST_CASE("lookup: a text that repeats itself goes on doing so") {
  CHECK(looked_up(Tokens{7, 7}, 1, 3, 5) == Tokens{7, 7, 7, 7, 7});
  CHECK(looked_up(Tokens{9, 1, 2, 3, 1, 2}, 2, 3, 7) == Tokens{3, 1, 2, 3, 1, 2, 3});
}

TEST_CASE("lookup: it finds what trying every place does") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < rounds(200); ++round) {
    Tokens text(random() % 40);
    for (std::int32_t& id : text) id = static_cast<std::int32_t>(random() % 4);
    const std::size_t low = 1 + random() % 3, high = low + random() % 3;
    Tokens want;
    for (std::size_t match = high; match >= low && want.empty(); --match) {
      for (std::size_t end = match; end < text.size(); ++end) {
        if (!std::equal(text.end() - static_cast<std::ptrdiff_t>(match), text.end(),
                        text.begin() + static_cast<std::ptrdiff_t>(end - match))) {
          continue;
        }
        Tokens going_on = text;
        for (std::size_t i = 0; i < 6; ++i) going_on.push_back(going_on[end + i]);
        want.assign(going_on.end() - 6, going_on.end());
      }
    }
    CHECK(looked_up(text, static_cast<std::int64_t>(low), static_cast<std::int64_t>(high), 6) ==
          want);
  }
}

TEST_CASE("draft pace: lengths follow what was right") {
  DraftPace pace(16);
  const auto drafts = [&](std::int64_t right) {
    const std::int64_t length = pace.next();
    if (length > 0) pace.settle(length, std::min(right, length));
    return length;
  };
  CHECK(drafts(99) == 4);
  CHECK(drafts(99) == 8);
  CHECK(drafts(99) == 16);
  CHECK(drafts(99) == 16);
  CHECK(drafts(5) == 16);
  CHECK(drafts(99) == 6);
  CHECK(drafts(1) == 12);
  CHECK(drafts(2) == 2);
  CHECK(drafts(0) == 4);
  CHECK(drafts(0) == 1);  // nothing was right
  CHECK(drafts(0) == 0);
  CHECK(drafts(0) == 1);
  CHECK(drafts(0) == 0);
  CHECK(drafts(0) == 0);
  CHECK(drafts(1) == 1);  // one failure is made up for, of three
  CHECK(drafts(1) == 2);
  CHECK(drafts(2) == 2);
  CHECK(drafts(4) == 4);

  // Few steps pay for drafts where nothing is right.
  DraftPace wrong(16);
  int steps = 0, drafted = 0;
  for (; steps < 1000; ++steps) {
    const std::int64_t length = wrong.next();
    drafted += static_cast<int>(length);
    if (length > 0) wrong.settle(length, 0);
  }
  CHECK(drafted < steps / 10);
  CHECK(drafted > steps / 40);

  DraftPace one(1);
  CHECK(one.next() == 1);
  one.settle(1, 1);
  CHECK(one.next() == 1);
}

TEST_CASE("conversation: rows that are read at once are those that are read one by one") {
  for (const char* const architecture : {"llama", "gemma3", "qwen2vl", "deepseek2", "gpt-oss"}) {
    for (const std::int64_t chunk : {3, 64}) {
      INFO(architecture << ", chunks of " << chunk);
      const auto model = small_model(architecture, chunk);
      const Tokens tokens{5, 90, 17, 200, 31, 8, 8, 120};
      auto one = model.conversation(), all = model.conversation(), greedy = model.conversation(),
           guess = model.conversation();
      const auto rows = all.read_all(tokens);
      const auto best = greedy.read_all_greedy(tokens);
      const auto width = static_cast<std::size_t>(model.config().vocabulary);
      REQUIRE(rows.size() == tokens.size() * width);
      REQUIRE(best.size() == tokens.size());
      CHECK(all.position() == 8);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto want = one.read({&tokens[i], 1});
        for (std::size_t j = 0; j < width; ++j) {
          CHECK(rows[i * width + j] == Approx(want[j]).margin(1e-4));
        }
        const auto [token, probability] = guess.read_guess({&tokens[i], 1});
        CHECK(token == std::ranges::max_element(want) - want.begin());
        CHECK(best[i] == token);
        double sum = 0;
        for (const float logit : want) {
          sum += std::exp(static_cast<double>(logit - *std::ranges::max_element(want)));
        }
        CHECK(static_cast<double>(probability) == Approx(1 / sum).epsilon(1e-4));
      }
      all.rewind(3);
      CHECK(all.read_all_greedy(std::span(tokens).subspan(3)) ==
            std::vector(best.begin() + 3, best.end()));
      expect_error(Errc::bad_argument, [&] { all.read_all({}); });
      expect_error(Errc::bad_argument, [&] { all.read_all_greedy({}); });
      expect_error(Errc::out_of_range, [&] { all.read_guess(Tokens{272}); });
    }
  }
}

TEST_CASE("decoder: up to four rows at once have the bits of single ones") {
  for (const char* const architecture :
       {"llama", "llama_nvfp4", "gemma3", "qwen3moe", "deepseek2"}) {
    for (const bool is_exact : {false, true}) {
      INFO(architecture << (is_exact ? ", exact" : ""));
      const auto model = small_model(architecture, 64, 128, is_exact);
      Tokens tokens;
      for (std::int32_t i = 0; i < 60; ++i) tokens.push_back((7 * i * i + 3 * i) % 272);
      auto conversation = model.conversation();
      conversation.read(std::span(tokens).first(36));
      std::vector<float> want;
      for (std::size_t i = 36; i < 60; ++i) {
        const auto logits = conversation.read({&tokens[i], 1});
        want.insert(want.end(), logits.begin(), logits.end());
      }
      for (std::size_t rows = 2; rows <= 4; ++rows) {
        conversation.rewind(36);
        std::vector<float> got;
        for (std::size_t i = 36; i < 60; i += rows) {
          const auto logits = conversation.read_all(std::span(tokens).subspan(i, rows));
          got.insert(got.end(), logits.begin(), logits.end());
        }
        CHECK(got == want);
      }
    }
  }
}

TEST_CASE("draft: the answer is the one without") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const char* const architecture :
       {"llama", "gemma3", "gemma3n", "gemma4", "llama4", "deepseek2", "gpt2", "bloom", "qwen3moe",
        "gpt-oss", "exaone4", "qwen2vl"}) {
    const auto model = small_model(architecture, 6), other = small_model("qwen2");
    std::int64_t accepted[3] = {};
    EveryThird third;
    for (std::size_t i = 0; i < samplers.size(); ++i) {
      if (third.skips()) continue;
      INFO(architecture << ", sampler " << i);
      const Tokens prompt = repeating(random, 2 + random() % 24);
      GenerateOptions options{.max_tokens = 60, .sampler = samplers[i]};
      if (random() % 3 == 0) options.logprobs = 4;
      const Answer want = answer(model, prompt, options);
      CHECK(want.generated.drafted_tokens == 0);
      const auto most = static_cast<std::int64_t>(1 + random() % 20);
      const auto with = [&](const DraftOptions& draft, std::int64_t& right) {
        options.draft = draft;
        const Answer got = answer(model, prompt, options);
        check_same(got, want);
        right += got.generated.accepted_tokens;
      };
      with(by_lookup(most), accepted[0]);
      with(by_model(model, most), accepted[1]);
      with(by_model(other, most), accepted[2]);
      DraftOptions both = by_model(model, most, 0.02);
      both.lookup = 2;
      std::int64_t unused = 0;
      with(both, unused);
    }
    INFO(architecture);
    CHECK(accepted[1] > 0);
  }
}

TEST_CASE("draft: a grammar holds for drafted tokens, too") {
  const auto model = small_model("llama"), other = small_model("qwen2");
  const Tokens prompt = model.tokenizer().encode("abc abc");
  for (const char* const text :
       {"root ::= [a-e ]*", "root ::= (\"abc\" | \"ab\" | \" \")+ \".\"", "root ::= [a-z]{20}"}) {
    for (const double temperature : {0.0, 1.0}) {
      CAPTURE(text, temperature);
      GenerateOptions options{.max_tokens = 48, .sampler = {.temperature = temperature, .seed = 5}};
      options.grammar = text::Grammar::parse(text);
      const Answer want = answer(model, prompt, options);
      REQUIRE(want.generated.tokens.size() > 4);
      for (const DraftOptions& draft :
           {by_lookup(), by_lookup(3), by_model(model), by_model(other)}) {
        options.draft = draft;
        const Answer got = answer(model, prompt, options);
        check_same(got, want);
        CHECK(got.generated.drafted_tokens > 0);
      }
    }
  }
}

TEST_CASE("draft: one that is always right") {
  const auto model = small_model("llama");
  const Tokens prompt{3, 40, 99, 7};
  GenerateOptions options{.max_tokens = 64};
  const Answer want = answer(model, prompt, options);
  for (const std::int64_t most : {1, 2, 5, 16, 100}) {
    options.draft = by_model(model, most);
    const Answer got = answer(model, prompt, options);
    check_same(got, want);
    CHECK(got.generated.accepted_tokens == got.generated.drafted_tokens);
    // A step gives what was drafted and one token more.
    CHECK(got.generated.drafted_tokens >= 63 * most / (most + 1) - 16);
  }
}

TEST_CASE("draft: one that is always wrong costs few rows") {
  const auto model = small_model("llama", 64, 512), other = small_model("gpt2", 64, 512);
  const Tokens prompt{3, 40, 99, 7};
  // A bias has one token drawn always, which the draft model, without the bias, never guesses.
  std::int32_t token = 100;
  const auto is_guessed = [&] {
    Tokens text = prompt;
    text.resize(400, token);
    const auto guessed = other.conversation().read_all_greedy(text);
    return std::ranges::find(guessed, token) != guessed.end();
  };
  while (is_guessed()) ++token;
  GenerateOptions options{.max_tokens = 400, .sampler = {.logit_bias = {{token, 1e6F}}}};
  const Answer want = answer(model, prompt, options);
  REQUIRE(want.generated.tokens == Tokens(400, token));
  options.draft = by_model(other);
  auto drafts = answer(model, prompt, options);
  check_same(drafts, want);
  CHECK(drafts.generated.accepted_tokens == 0);
  CHECK(drafts.generated.drafted_tokens < 40);
  CHECK(drafts.generated.drafted_tokens > 10);

  // With what is looked up, all is right but the beginning.
  options.draft.lookup = 2;
  drafts = answer(model, prompt, options);
  check_same(drafts, want);
  CHECK(drafts.generated.accepted_tokens > 350);
}

TEST_CASE("draft: a draft model ends with the first token that it is not sure of") {
  const auto model = small_model("llama");
  const Tokens prompt{3, 40, 99, 7};
  GenerateOptions options{.max_tokens = 48};
  const Answer want = answer(model, prompt, options);
  const auto drafts = [&](double probability) {
    options.draft = by_model(model, 8, probability);
    const Answer got = answer(model, prompt, options);
    check_same(got, want);
    CHECK(got.generated.accepted_tokens == got.generated.drafted_tokens);
    return got.generated.drafted_tokens;
  };
  CHECK(drafts(1) == 23);  // one a step, of two tokens, but for the first
  CHECK(drafts(0) > 36);
  CHECK(drafts(0.05) <= drafts(0));
}

TEST_CASE("draft: stop texts end the answer where they do without") {
  const auto model = small_model("llama");
  const Tokens prompt = model.tokenizer().encode("abc");
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions options{.max_tokens = 32, .sampler = {.temperature = temperature, .seed = 5}};
    const std::string whole = answer(model, prompt, options).generated.text;
    REQUIRE(whole.size() > 16);
    for (std::size_t begin = 0; begin + 3 < whole.size(); begin += 2) {
      options.stop = {whole.substr(begin, 1 + begin % 4)};
      CAPTURE(options.stop.front(), begin);
      options.draft = {};
      const Answer want = answer(model, prompt, options);
      for (const DraftOptions& draft : {by_lookup(), by_model(model), by_model(model, 3)}) {
        options.draft = draft;
        check_same(answer(model, prompt, options), want);
      }
    }
  }
}

TEST_CASE("draft: the answer ends at every position as it does without") {
  const auto model = small_model("llama");
  const Tokens prompt{3, 40, 99, 7};
  const Answer whole = answer(model, prompt, {.max_tokens = 24});
  const auto compare = [&](const LanguageModel& target, const GenerateOptions& options) {
    const Answer want = answer(target, prompt, options);
    for (const DraftOptions& draft : {by_lookup(), by_model(model), by_model(model, 2)}) {
      GenerateOptions drafting = options;
      drafting.draft = draft;
      check_same(answer(target, prompt, drafting), want);
    }
    return want.generated.end;
  };
  for (std::size_t count = 0; count < 24; ++count) {
    CAPTURE(count);
    CHECK(compare(model, {.max_tokens = static_cast<std::int64_t>(count)}) ==
          Generated::End::length);
    // A token that ends the answer.
    const std::string token(model.tokenizer().token(whole.generated.tokens[count]));
    compare(model, {.max_tokens = 24, .stop = {token}});
    // A full context.
    const auto small = small_model("llama", 64, static_cast<std::int64_t>(4 + count));
    CHECK(compare(small, {.max_tokens = 100}) == Generated::End::context);
  }
}

TEST_CASE("draft: cancelled at every token, the conversation goes on as it does without") {
  const auto model = small_model("llama", 3);
  const Tokens prompt{3, 40, 99, 7};
  const auto cut = [&](int calls, const DraftOptions& draft, Conversation& conversation) {
    std::stop_source source;
    GenerateOptions options{.max_tokens = 24, .sampler = {.temperature = 0.5, .seed = 1}};
    options.interrupt.cancel = source.get_token();
    options.draft = draft;
    return models::generate(model, conversation, prompt, options, [&](std::string_view) {
      if (--calls == 0) source.request_stop();
    });
  };
  for (int calls = 1; calls < 16; ++calls) {
    auto plain = model.conversation();
    const Generated want = cut(calls, {}, plain);
    for (const DraftOptions& draft :
         {by_lookup(), by_model(model), by_model(small_model("gpt2"))}) {
      auto drafting = model.conversation();
      const Generated got = cut(calls, draft, drafting);
      CHECK(got.end == want.end);
      CHECK(got.tokens == want.tokens);
      CHECK(std::ranges::equal(drafting.tokens(), plain.tokens()));
      auto fork = drafting.fork();
      const auto rest = fork.read_greedy(Tokens{got.tokens.back()});
      CHECK(rest == plain.fork().read_greedy(Tokens{want.tokens.back()}));
    }
  }
}

TEST_CASE("draft: when the caller's function throws, drafted tokens are taken back") {
  const auto model = small_model("llama");
  const Tokens prompt{3, 40, 99, 7};
  const auto held = [&](int calls, const DraftOptions& draft) {
    auto conversation = model.conversation();
    const auto emit = [&](std::string_view) {
      if (--calls == 0) throw std::runtime_error("no more");
    };
    CHECK_THROWS_AS(
        models::generate(model, conversation, prompt, {.max_tokens = 24, .draft = draft}, emit),
        std::runtime_error);
    return Tokens(conversation.tokens().begin(), conversation.tokens().end());
  };
  for (int calls = 1; calls < 12; ++calls) {
    const Tokens want = held(calls, {});
    CHECK(held(calls, by_lookup()) == want);
    CHECK(held(calls, by_model(model)) == want);
  }
}

TEST_CASE("draft: a draft model's conversation is kept from answer to answer") {
  const auto model = small_model("llama", 64, 256), other = small_model("qwen2", 64, 256);
  for (const LanguageModel& drafting : {model, other}) {
    auto plain = model.conversation(), conversation = model.conversation();
    auto draft = drafting.conversation();
    GenerateOptions options{.max_tokens = 20, .sampler = {.repetition_penalty = 1.2}},
        with = options;
    with.draft = {.model = draft, .min_probability = 0};
    for (const Tokens& turn : {Tokens{3, 40, 99}, Tokens{17, 5}, Tokens{200, 8, 61, 4}}) {
      const auto want = models::generate(model, plain, turn, options);
      const auto got = models::generate(model, conversation, turn, with);
      CHECK(got.tokens == want.tokens);
      CHECK(std::ranges::equal(plain.tokens(), conversation.tokens()));
      // What it holds is the same text, but for a draft of one step.
      const auto ours = conversation.tokens(), theirs = draft.tokens();
      const auto [same, unused] = std::ranges::mismatch(ours, theirs);
      CHECK(theirs.size() > ours.size() - 20);
      CHECK(same - ours.begin() >= static_cast<std::ptrdiff_t>(theirs.size()) - 17);
    }
  }
}

TEST_CASE("draft: a draft model whose context is smaller drafts as long as the text fits") {
  const auto model = small_model("llama"), small = small_model("llama", 64, 24);
  const Tokens prompt{3, 40, 99, 7};
  GenerateOptions options{.max_tokens = 60};
  const Answer want = answer(model, prompt, options);
  options.draft = by_model(small);
  const Answer got = answer(model, prompt, options);
  check_same(got, want);
  CHECK(got.generated.accepted_tokens > 10);
  CHECK(got.generated.accepted_tokens <= 20);
  CHECK(options.draft.model->position() <= 24);
}

TEST_CASE("draft: embeddings in the text are not drafted from") {
  const auto model = small_model("gemma3"), other = small_model("qwen2");
  std::vector<float> rows(static_cast<std::size_t>(5 * model.config().width));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i));
  const auto made = [&](const DraftOptions& draft) {
    auto conversation = model.conversation();
    conversation.read(Tokens{3, 40, 99, 7});
    conversation.read_embeddings(rows);
    return models::generate(model, conversation, Tokens{8, 40, 99},
                            {.max_tokens = 40, .draft = draft});
  };
  const auto want = made({});
  for (const DraftOptions& draft : {by_lookup(), by_model(model), by_model(other)}) {
    const auto got = made(draft);
    CHECK(got.tokens == want.tokens);
    CHECK(got.drafted_tokens > 0);
  }
}

TEST_CASE("draft: what cannot draft is refused") {
  const auto model = small_model("llama");
  auto conversation = model.conversation();
  const auto refused = [&](Errc code, const DraftOptions& draft, const LanguageModel& target,
                           GenerateOptions options = {}) {
    auto at = target.conversation();
    options.draft = draft;
    const std::string what =
        expect_error(code, [&] { models::generate(target, at, Tokens{3, 4}, options); });
    CHECK(at.position() == 0);
    return what;
  };
  CHECK(refused(Errc::unsupported, by_lookup(), small_model("mamba")).find("mamba") !=
        std::string::npos);
  CHECK(refused(Errc::unsupported, by_model(small_model("lfm2")), model).find("lfm2") !=
        std::string::npos);
  GenerateOptions on_device{.sampler = {.temperature = 1}, .sample_on_device = true};
  refused(Errc::unsupported, by_lookup(), model, on_device);
  refused(Errc::bad_argument, {.lookup = -1}, model);
  refused(Errc::bad_argument, {.lookup = 2, .min_lookup = 0}, model);
  refused(Errc::bad_argument, {.lookup = 2, .max_tokens = -1}, model);
  refused(Errc::bad_argument, by_model(model, 8, 1.5), model);
  refused(Errc::bad_argument, by_model(model, 8, std::nan("")), model);
  expect_error(Errc::bad_argument, [&] {
    models::generate(model, conversation, Tokens{3, 4}, {.draft = {.model = conversation}});
  });

  // Without a draft, it does not matter.
  auto states = small_model("mamba").conversation();
  CHECK(models::generate(states.model(), states, Tokens{3, 4},
                         {.max_tokens = 2, .draft = {.lookup = 3, .max_tokens = 0}})
            .tokens.size() == 2);
}

TEST_CASE("draft: a model with other tokens is refused") {
  const TempFolder folder;
  std::ifstream in("tests/models/data/tiny_qwen2.gguf", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = bytes.find("<|im_start|>");
  REQUIRE(at != std::string::npos);
  bytes.replace(at, 12, "<|im_begin|>");
  const std::filesystem::path file = folder / "other.gguf";
  std::ofstream(file, std::ios::binary) << bytes;
  const auto model = small_model("llama"), other = LanguageModel::load(file);
  auto conversation = model.conversation();
  const std::string what = expect_error(Errc::incompatible, [&] {
    models::generate(model, conversation, Tokens{3, 4}, {.draft = {.model = other.conversation()}});
  });
  CHECK(what.find("'<|im_begin|>', not '<|im_start|>'") != std::string::npos);
}

TEST_CASE("A03: memory runs out while tokens are drafted") {
  const auto model = small_model("llama");
  const Tokens prompt{3, 40, 99, 7};
  GenerateOptions options{.max_tokens = 16};
  const Answer want = answer(model, prompt, options);
  for (const bool has_model : {false, true}) {
    options.draft = has_model ? by_model(model, 3) : by_lookup(3);
    auto conversation = model.conversation();
    fail_allocations(
        200,
        [&] {
          conversation.rewind(0);
          models::generate(model, conversation, prompt, options);
        },
        [&] {
          // It holds nothing that was not drawn, and goes on.
          const auto held = conversation.tokens();
          REQUIRE(held.size() <= want.held.size());
          CHECK(std::ranges::equal(held, std::span(want.held).first(held.size())));
          conversation.rewind(0);
          CHECK(models::generate(model, conversation, prompt, options).tokens ==
                want.generated.tokens);
        });
  }
}

TEST_CASE("drafts.md: the code that it shows") {
  check_shown_code("docs/drafts.md", "tests/models/draft_test.cpp", 1);
  const LanguageModel model = small_model("llama"), small = small_model("qwen2");
  const Tokens prompt{3, 40, 99, 7};

  Conversation conversation = model.conversation();
  GenerateOptions options;
  options.draft.lookup = 8;                    // by the text so far, and
  options.draft.model = small.conversation();  // by a smaller model where that finds nothing
  const Generated made = generate(model, conversation, prompt, options);
  const auto right = made.accepted_tokens;  // of made.drafted_tokens

  CHECK(right <= made.drafted_tokens);
  CHECK(made.tokens == answer(model, prompt, {}).generated.tokens);
}
