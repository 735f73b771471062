// A03: memory runs out at every allocation of loading, compiling and running a model.
#include "support/failing_memory.hpp"

#include <tenon/models/language_model.hpp>

#include <filesystem>
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

}  // namespace tenon::testing
