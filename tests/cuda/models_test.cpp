// Language models on the emulated device.
#include "emulated.hpp"
#include "support/expect_error.hpp"

#include <tenon/models/language_model.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

models::LanguageModel tiny(const std::string& architecture, DevicePtr device, DType cache = f32) {
  return models::LanguageModel::load("tests/models/data/tiny_" + architecture + ".gguf",
                                     {.context = 64,
                                      .chunk = 12,
                                      .cache = cache,
                                      .device = std::move(device),
                                      .backend = {.exact = true}});
}

/// A prompt of two chunks, one of which has more rows than a GEMV takes, then some tokens one by one.
std::vector<std::int32_t> continued(const models::LanguageModel& model) {
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < 20; ++i) prompt.push_back(7 * i % 272);
  models::Conversation conversation = model.conversation();
  std::vector<std::int32_t> tokens{conversation.read_greedy(prompt)};
  for (int i = 0; i < 12; ++i) tokens.push_back(conversation.read_greedy({&tokens.back(), 1}));
  return tokens;
}

TEST_CASE("cuda: language models give the CPU's tokens, and run on the device alone",
          "[gpu][models]") {
  for (const std::string architecture :
       {"llama", "qwen2", "qwen3", "gemma3", "mixtral", "qwen2moe", "qwen3moe"}) {
    CAPTURE(architecture);
    const DevicePtr device = test_device();
    {
      const models::LanguageModel model = tiny(architecture, device);
      CHECK(continued(model) == continued(tiny(architecture, nullptr)));
      const PlanReport plan = model.plan();
      CHECK(plan.weight_copies.empty());
      for (const auto& transfer : plan.transfers) CHECK(transfer.bytes < 64);
      for (const PlanReport::Part& part : plan.parts) CHECK(part.backend == "cuda");
    }
    CHECK(device->default_mem_region().all_chunks().empty());
  }
}

TEST_CASE("cuda: caches of other types", "[gpu][models]") {
  for (const DType cache : {f16, bf16}) {
    CAPTURE(name(cache));
    const DevicePtr device = test_device();
    CHECK(continued(tiny("llama", device, cache)) == continued(tiny("llama", nullptr, cache)));
  }
}

}  // namespace
}  // namespace tenon::testing
