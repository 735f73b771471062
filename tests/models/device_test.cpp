// Models on devices other than the CPU.
#include "support/expect_error.hpp"
#include "support/remote_device.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/models/language_model.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

models::LanguageModel tiny(const std::string& architecture, DevicePtr device) {
  return models::LanguageModel::load("tests/models/data/tiny_" + architecture + ".gguf",
                                     {.context = 64,
                                      .chunk = 8,
                                      .cache = f32,
                                      .device = std::move(device),
                                      .backend = {.exact = true}});
}

std::vector<std::int32_t> some_tokens() {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(7 * i % 272);
  return tokens;
}

/// A prompt, then some tokens one by one.
std::vector<std::int32_t> continued(const models::LanguageModel& model) {
  models::Conversation conversation = model.conversation();
  std::vector<std::int32_t> tokens{conversation.read_greedy(some_tokens())};
  for (int i = 0; i < 12; ++i) tokens.push_back(conversation.read_greedy({&tokens.back(), 1}));
  const nn::SamplerOptions options{.temperature = 0.8, .top_k = 30, .repetition_penalty = 1.2};
  for (int i = 0; i < 4; ++i) {
    const std::vector<std::int32_t> history = tokens;
    tokens.push_back(conversation.read_sampled({&tokens.back(), 1}, options, history));
  }
  return tokens;
}

}  // namespace

TEST_CASE("devices: a language model runs where the CPU cannot address the memory") {
  register_opaque_devices();
  EveryThird third;
  for (const std::string architecture : {"llama", "qwen2", "qwen3", "gemma3", "qwen2moe", "gpt-oss",
                                         "deepseek2", "mamba", "mamba2", "rwkv7", "phi3", "lfm2"}) {
    if (third.skips()) continue;
    CAPTURE(architecture);
    const DevicePtr device = Device::open("opaque://test");
    {
      const models::LanguageModel model = tiny(architecture, device);
      CHECK(continued(model) == continued(tiny(architecture, nullptr)));
      // Weights and state lie on the device, and nothing of them is copied to the CPU.
      const PlanReport plan = model.plan();
      CHECK(plan.weight_copies.empty());
      for (const auto& transfer : plan.transfers) {
        CAPTURE(transfer.value, transfer.from, transfer.to);
        CHECK(transfer.bytes < 64);
      }
      for (const PlanReport::Part& part : plan.parts) CHECK(part.backend == "remote");
      const auto logits = model.conversation().read(some_tokens());
      CHECK(static_cast<std::int64_t>(logits.size()) == model.config().vocabulary);
    }
    CHECK(device->default_mem_region().all_chunks().empty());
  }
}

TEST_CASE("devices: what is missing for a device is said") {
  register_npu_sim();
  register_npu_backend();
  const std::string what =
      expect_error(Errc::bad_argument, [] { tiny("llama", Device::open("npu://sim")); });
  CHECK(what.find("with a calibration") != std::string::npos);
  // A device without a backend.
  class Bare final : public FakeDevice {
   public:
    Bare() : FakeDevice(nullptr, "bare:") {}
  };
  expect_error(Errc::unavailable, [] { tiny("llama", std::make_shared<Bare>()); });
}
