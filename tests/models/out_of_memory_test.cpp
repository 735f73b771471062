// A03: memory runs out at every allocation of loading, compiling and running a model.
#include "support/failing_memory.hpp"

#include <tenon/models/encoder.hpp>
#include <tenon/models/language_model.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// Logits of the last token, then the greedy next one. `results` has room: no allocation here is
/// the test's own.
void run_model(const std::filesystem::path& path, std::vector<float>& results) {
  models::LanguageModelOptions options;
  options.context = 8;
  options.backend = {.threads = 1, .exact = true};
  const auto model = models::LanguageModel::load(path, options);
  auto conversation = model.conversation();
  const std::int32_t tokens[] = {3, 1, 4};
  const auto got = conversation.read(tokens);
  results.assign(got.begin(), got.end());
  conversation.rewind(0);
  results.push_back(static_cast<float>(conversation.read_greedy(tokens)));
}

}  // namespace

TEST_CASE("A03: memory runs out at every allocation of a model's life") {
  const std::filesystem::path path = "tests/models/data/tiny_llama.gguf";
  std::vector<float> want, results;
  run_model(path, want);  // and whatever is made once per process
  results = want;
  // Threads that load weights hand over memory, so that this one's account does not add up: leaks
  // are the address sanitizer's to find.
  fail_allocations(
      400, [&] { run_model(path, results); },
      [&] {
        run_model(path, results);
        CHECK(results == want);
      });
}

TEST_CASE("A03: memory runs out at every allocation of a reranker's life") {
  const std::vector<std::string> documents{"a red house",
                                           "the cat is on the mat, and the dog is not"};
  std::vector<float> want, results;
  const std::filesystem::path path = "tests/models/data/encoders/xlm_roberta_rank.gguf";
  const auto run = [&] {
    const auto encoder =
        models::SentenceEncoder::load(path, {.backend = {.threads = 1, .exact = true}});
    const HostBuffer scores = encoder.score("where is the cat", documents);
    results.assign(scores.values<float>().begin(), scores.values<float>().end());
  };
  run();
  want = results;
  fail_allocations(400, run, [&] {
    run();
    CHECK(results == want);
  });
}

TEST_CASE("A03: memory runs out while a state moves on") {
  models::LanguageModelOptions options;
  options.backend = {.threads = 1, .exact = true};
  const auto model = models::LanguageModel::load("tests/models/data/tiny_mamba.gguf", options);
  const std::vector<std::int32_t> tokens(8, 3);
  auto conversation = model.conversation();
  int failed = 0, emptied = 0;
  for (std::size_t k = 0; k < 300; ++k) {
    conversation.rewind(0);
    conversation.read(std::span(tokens).first(2));
    conversation.read(std::span(tokens).first(1));
    {
      MemoryWatch watch;
      watch.fail_at(k, false);
      try {
        conversation.read(std::span(tokens).first(1));
      } catch (const Error&) {
        ++failed;
      }
      watch.fail_never();
    }
    // It holds as many tokens as it says: those from before, or none.
    const auto next = static_cast<std::size_t>(conversation.position()) + 1;
    emptied += next == 1;
    const auto got = conversation.read(std::span(tokens).first(1));
    auto other = model.conversation();
    const auto want = other.read(std::span(tokens).first(next));
    double error = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      error = std::max(error, std::fabs(double{got[i]} - double{want[i]}));
    }
    INFO("allocation " << k);
    CHECK(error < 1e-3);
  }
  CHECK(failed > 10);
  CHECK(emptied > 0);
}

}  // namespace tenon::testing
