// Rows of different lengths in one batch give what each gives alone.
#include "logits.hpp"
#include "support/rounds.hpp"

#include <tenon/device.hpp>
#include <tenon/exe.hpp>
#include <tenon/io/load.hpp>
#include <tenon/models/decoder.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

Buffer of(std::initializer_list<std::int64_t> dims, const std::vector<std::int32_t>& values) {
  const Shape shape(std::vector<std::int64_t>(dims), i32);
  return HostBuffer::of<std::int32_t>(shape, std::span<const std::int32_t>(values))
      .to_device(cpu_device());
}

}  // namespace

TEST_CASE("decoder: rows of different lengths in one batch") {
  using models::Decoder;
  EveryThird third;
  for (const char* architecture :
       {"llama",  "gemma3",        "qwen3moe",       "gpt-oss",   "deepseek2", "mamba",
        "mamba2", "rwkv7",         "phi3",           "gpt2",      "lfm2",      "granitehybrid",
        "qwen35", "bloom",         "refact",         "qwen3next", "falcon-h1", "nemotron_h",
        "jamba",  "rwkv6",         "llama4",         "gemma3n",   "minicpm3",  "deci",
        "gemma4", "gemma4_inputs", "gemma4_experts", "qwen2vl"}) {
    if (third.skips()) continue;
    INFO(architecture);
    const io::File file = io::open("tests/models/data/tiny_" + std::string(architecture) + ".gguf");
    const auto config = models::DecoderConfig::from(file);
    const auto decoder = Decoder<>::init(file.view(), config);
    const CompileOptions options{.backend = {.threads = 2, .exact = true}};
    const auto run = [&](std::int64_t rows, std::int64_t steps) {
      const models::DecoderCache<Shape> cache = models::cache_shape(config, 32, f32, rows);
      const Shape of_rows({rows}, i32);
      return compile<&Decoder<>::next_rows>(decoder,
                                            {Shape({rows, steps}, i32), of_rows, of_rows, cache},
                                            cpu_device(), options)
          .bind(io::load(decoder, file, cpu_device()));
    };
    const auto empty_cache = [&](std::int64_t rows) {
      models::DecoderCache<Buffer> cache;
      transform_fields(models::cache_shape(config, 32, f32, rows), cache,
                       [](const std::string&, const Shape& shape, Buffer& buffer) {
                         buffer = HostBuffer::zeros(shape).to_device(cpu_device());
                       });
      return cache;
    };
    const auto logits_of = [](const Buffer& logits) {
      const HostBuffer host = logits.to_host();
      const auto values = host.values<float>();
      return std::vector<float>(values.begin(), values.end());
    };

    // Prompts of 9 and 3 tokens, padded to 9, and one token more for each.
    const std::vector<std::int32_t> first{3, 17, 40, 99, 5, 61, 12, 7, 200}, second{8, 30, 111};
    std::vector<std::int32_t> both = first;
    both.insert(both.end(), second.begin(), second.end());
    both.resize(18, 1);
    auto prompt = run(2, 9);
    auto step = run(2, 1);
    auto read = prompt(of({2, 9}, both), of({2}, {0, 0}), of({2}, {8, 2}), empty_cache(2));
    const std::vector<float> after_prompts = logits_of(read.logits);
    auto more = step(of({2, 1}, {50, 60}), of({2}, {9, 3}), of({2}, {0, 0}), std::move(read.cache));
    const std::vector<float> after_steps = logits_of(more.logits);

    for (const bool is_first : {true, false}) {
      std::vector<std::int32_t> tokens = is_first ? first : second;
      for (const std::vector<float>* got : {&after_prompts, &after_steps}) {
        const auto count = static_cast<std::int32_t>(tokens.size());
        auto alone = run(1, count);
        const auto want = logits_of(
            alone(of({1, count}, tokens), of({1}, {0}), of({1}, {count - 1}), empty_cache(1))
                .logits);
        const auto width = want.size();
        REQUIRE(got->size() == 2 * width);
        for (std::size_t i = 0; i < width; ++i) {
          CHECK((*got)[i + (is_first ? 0 : width)] == Approx(want[i]).margin(2e-4));
        }
        tokens.push_back(is_first ? 50 : 60);
      }
    }
  }
}
