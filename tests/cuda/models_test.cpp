// Language models on the emulated device.
#include "emulated.hpp"
#include "io/temp_folder.hpp"
#include "models/sampling_program.hpp"
#include "support/expect_error.hpp"

#include <tenon/models/language_model.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
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
  for (const std::string architecture : {"llama", "qwen2", "qwen3", "gemma3", "mixtral", "qwen2moe",
                                         "qwen3moe", "phi3", "cohere2", "lfm2"}) {
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

TEST_CASE("cuda: conversations are forked on the device, saved and restored", "[gpu][models]") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "saved.safetensors";
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(7 * i % 272);
  const auto rest = [&](models::Conversation conversation) {
    const auto logits = conversation.read(std::span(tokens).subspan(13));
    return std::vector<float>(logits.begin(), logits.end());
  };
  for (const std::string architecture : {"llama", "gemma3", "lfm2", "rwkv7"}) {
    CAPTURE(architecture);
    const DevicePtr device = test_device();
    {
      const models::LanguageModel model = tiny(architecture, device, f32);
      models::Conversation conversation = model.conversation();
      conversation.read(std::span(tokens).first(13));
      models::Conversation fork = conversation.fork();
      conversation.save(path);
      const std::vector<float> want = rest(conversation);
      CHECK(rest(fork) == want);
      CHECK(rest(model.restore(path)) == want);
      const std::vector<float> on_cpu = rest(tiny(architecture, nullptr, f32).restore(path));
      for (std::size_t i = 0; i < want.size(); ++i) {
        CHECK(on_cpu[i] == Approx(want[i]).margin(2e-3));
      }
    }
    CHECK(device->default_mem_region().all_chunks().empty());
  }
}

TEST_CASE("cuda: tokens are drawn on the device, by the CPU's numbers", "[gpu][models]") {
  const nn::SamplerOptions options[] = {
      {.temperature = 0.9, .top_k = 30, .top_p = 0.9, .repetition_penalty = 1.2, .seed = 3},
      {.temperature = 1.1, .logit_bias = {{7, 1.0f}}, .seed = std::uint64_t{5} << 40},
      {.repetition_penalty = 1.3}};
  const auto drawn = [](const models::LanguageModel& model, const nn::SamplerOptions& sampler) {
    models::Conversation conversation = model.conversation();
    models::GenerateOptions generate{
        .max_tokens = 10, .sampler = sampler, .sample_on_device = true};
    return models::generate(model, conversation, model.tokenizer().encode("abcdefgh"), generate)
        .tokens;
  };
  for (const std::string architecture : {"llama", "gemma3"}) {
    CAPTURE(architecture);
    const DevicePtr device = test_device();
    {
      const models::LanguageModel model = tiny(architecture, device);
      for (const nn::SamplerOptions& sampler : options) {
        CHECK(drawn(model, sampler) == drawn(tiny(architecture, nullptr), sampler));
      }
    }
    CHECK(device->default_mem_region().all_chunks().empty());
  }
}

TEST_CASE("cuda: what sampling keeps of a larger vocabulary", "[gpu][models]") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  constexpr std::int64_t vocabulary = 5003;
  const auto program = [](const DevicePtr& device, std::int64_t candidates) {
    return SamplingProgram(Shape({1, vocabulary}, f32), nn::sampling_inputs({}, {}, vocabulary),
                           candidates, device_backends(device));
  };
  const DevicePtr device = test_device();
  for (const std::int64_t candidates : {std::int64_t{16}, vocabulary}) {
    CAPTURE(candidates);
    SamplingProgram on_device = program(device, candidates),
                    on_cpu = program(cpu_device(), candidates);
    for (const nn::SamplerOptions& options :
         {nn::SamplerOptions{.temperature = 1}, nn::SamplerOptions{.temperature = 0.8, .top_k = 12},
          nn::SamplerOptions{.temperature = 0.5, .top_p = 0.3, .min_p = 0.1}}) {
      std::vector<float> logits(vocabulary);
      for (float& logit : logits) logit = std::round(2 * normal(random)) / 2;
      const auto got = on_device.run(logits, options), want = on_cpu.run(logits, options);
      const bool is_known = want.is_known.values<bool>()[0];
      CHECK(got.is_known.values<bool>()[0] == is_known);
      if (!is_known) continue;
      const std::vector<float> kept = got.kept(), wanted = want.kept();
      for (std::size_t i = 0; i < kept.size(); ++i) {
        if ((kept[i] > 0) != (wanted[i] > 0) || std::abs(kept[i] - wanted[i]) > 1e-5f) {
          FAIL("token " << i << ": " << kept[i] << ", not " << wanted[i]);
        }
      }
    }
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
