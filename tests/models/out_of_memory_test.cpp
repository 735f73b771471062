// A03: memory runs out at every allocation of loading, compiling and running a model.
#include "support/memory_watch.hpp"

#include <tenon/error.hpp>
#include <tenon/models/language_model.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// `logits` has room: no allocation here is the test's own.
void run_model(const std::filesystem::path& path, std::vector<float>& logits) {
  models::LanguageModelOptions options;
  options.context = 8;
  options.backend = {.threads = 1, .exact = true};
  const auto model = models::LanguageModel::load(path, options);
  auto conversation = model.conversation();
  const std::int32_t tokens[] = {3, 1, 4};
  const auto got = conversation.read(tokens);
  logits.assign(got.begin(), got.end());
}

}  // namespace

TEST_CASE("A03: memory runs out at every allocation of a model's life") {
  const std::filesystem::path path = "tests/models/data/tiny_llama.gguf";
  std::vector<float> want, logits;
  run_model(path, want);  // and whatever is made once per process
  logits = want;
  std::size_t count = 0;
  {
    MemoryWatch watch;
    run_model(path, logits);
    count = watch.allocations();
  }
  REQUIRE(count > 1000);

  // Threads that load weights hand over memory, so that this one's account does not add up: leaks
  // are the address sanitizer's to find. Each allocation is tried in some run: here every n-th,
  // from another one each time.
  const char* given = std::getenv("TENON_TEST_SEED");
  const auto seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  const std::size_t stride = std::max<std::size_t>(count / 400, 1);
  INFO("TENON_TEST_SEED=" << seed << ", " << count << " allocations");
  for (const bool for_ever : {false, true}) {
    for (std::size_t k = seed % stride; k < count; k += stride) {
      bool typed = false, succeeded = false;
      {
        MemoryWatch watch;
        watch.fail_at(k, for_ever);
        try {
          run_model(path, logits);
          succeeded = true;  // where somebody makes do with less
        } catch (const Error& error) {
          typed = error.code() == Errc::out_of_memory;
          if (!typed) UNSCOPED_INFO(error.what());
        } catch (const std::bad_alloc&) {
          typed = for_ever;  // no memory for the error itself either
        }
        watch.fail_never();
      }
      if (!typed && !succeeded) {
        FAIL_CHECK("allocation " << k << (for_ever ? " and later ones" : ""));
      }
    }
    run_model(path, logits);
    CHECK(logits == want);
  }
}

}  // namespace tenon::testing
