// Sampling as a part of a program gives what nn::Sampler gives on the host.
#include "sampling_program.hpp"
#include "support/expect_error.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/models/language_model.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr double too_far = 6;  // deviations, which happen once in 1e9

std::vector<BackendPtr> cpu_backends() {
  return detail::on_device(cpu_device(), {.backend = {.threads = 1}}).backends;
}

SamplingProgram program_of(std::int64_t vocabulary, std::int64_t candidates,
                           std::int64_t rows = 1) {
  return {Shape({rows, vocabulary}, f32), nn::sampling_inputs({}, {}, vocabulary), candidates,
          cpu_backends()};
}

bool is_known(const SamplingProgram::Result& result) { return result.is_known.values<bool>()[0]; }
std::int32_t token(const SamplingProgram::Result& result) {
  return result.token.values<std::int32_t>()[0];
}

/// The kept tokens in the order of their ids.
std::vector<std::int32_t> ids(const SamplingProgram::Result& result) {
  std::vector<std::int32_t> kept;
  const std::vector<float> weights = result.kept();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) kept.push_back(static_cast<std::int32_t>(i));
  }
  return kept;
}
/// Without those whose weight f32 does not hold.
std::vector<std::int32_t> ids(const std::vector<KeptToken>& tokens) {
  std::vector<std::int32_t> kept;
  for (const KeptToken& token : tokens) {
    if (token.weight > 1e-30) kept.push_back(token.id);
  }
  std::ranges::sort(kept);
  return kept;
}

/// The largest error of a probability against those of sorting.
double worst_error(const SamplingProgram::Result& result, const nn::SamplerOptions& options,
                   const std::vector<float>& logits) {
  const std::vector<double> want = probabilities(options, logits);
  const std::vector<float> weights = result.kept();
  double total = 0, worst = 0;
  for (const float weight : weights) total += static_cast<double>(weight);
  for (std::size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(weights[i]) / total - want[i]));
  }
  return worst;
}

/// The tokens kept where top_p is multiplied by this factor, and min_p as much the other way: above
/// one, more tokens.
std::vector<std::int32_t> kept_within(nn::SamplerOptions options, double factor,
                                      const std::vector<float>& logits) {
  if (options.top_p < 1) options.top_p *= factor;
  options.min_p *= 2 - factor;
  return ids(sorted_kept(options, logits));
}

/// Whether the kept tokens are those of bounds that differ in the sixth digit: f32 sums that end at
/// top_p are no more exact.
bool is_kept_within_rounding(const SamplingProgram::Result& result,
                             const nn::SamplerOptions& options, const std::vector<float>& logits) {
  std::vector<std::int32_t> kept;
  for (const std::int32_t id : ids(result)) {
    if (result.kept()[static_cast<std::size_t>(id)] > 1e-30F) kept.push_back(id);
  }
  return std::ranges::includes(kept, kept_within(options, 1 - 4e-6, logits)) &&
         std::ranges::includes(kept_within(options, 1 + 4e-6, logits), kept);
}

const std::vector<nn::SamplerOptions> many_options = {
    {.temperature = 1},
    {.temperature = 0},
    {.temperature = 0.7, .top_k = 40},
    {.temperature = 2, .top_k = 16},
    {.temperature = 2, .top_k = 17},
    {.temperature = 1.5, .top_k = 4999},
    {.temperature = 1.5, .top_k = 1 << 30},
    {.temperature = 0.8, .top_p = 0.9},
    {.temperature = 3, .top_p = 0.999999},
    {.temperature = 1, .min_p = 0.05},
    {.temperature = 5, .min_p = 1e-5},
    {.temperature = 0.9, .top_k = 50, .top_p = 0.8, .min_p = 0.02},
    {.temperature = 0.9, .top_p = 0.8, .min_p = 0.001},
    {.temperature = 0.9, .top_k = 1},
    {.temperature = 1e-30, .top_p = 0.5},
    {.temperature = 1e30},
    {.temperature = 1e-300},
    {.temperature = 1e300},
    {.temperature = 1, .top_p = 1e-300},
    {.temperature = 1, .min_p = 1},
};

}  // namespace

TEST_CASE("token sampling: what is kept, and how probable it is") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 4);
  SamplingProgram quick = program_of(5000, 16), exact = program_of(5000, 5000);
  int unknown = 0;
  for (const nn::SamplerOptions& options : many_options) {
    CAPTURE(options.temperature, options.top_k, options.top_p, options.min_p);
    for (int i = 0; i < rounds(12); ++i) {
      std::vector<float> logits(5000);
      for (float& logit : logits) logit = normal(random);
      if (i % 2 == 0) {  // many equal ones
        for (float& logit : logits) logit = std::round(logit);
      }
      logits[static_cast<std::size_t>(i)] = -infinity;
      const auto whole = exact.run(logits, options);
      CHECK(is_known(whole));
      const auto result = quick.run(logits, options);
      const std::size_t kept = sorted_kept(options, logits).size();
      if (!is_known(result)) CHECK((kept >= 16 || options.top_k > 16));
      unknown += is_known(result) ? 0 : 1;
      for (const auto* one : {&whole, &result}) {
        if (!is_known(*one)) continue;
        CHECK(is_kept_within_rounding(*one, options, logits));
        if (ids(*one) == ids(sorted_kept(options, logits))) {
          CHECK(worst_error(*one, options, logits) < 1e-5);
        }
        CHECK(std::ranges::binary_search(kept_within(options, 1 + 4e-6, logits), token(*one)));
      }
    }
  }
  CHECK(unknown > 0);
}

TEST_CASE("token sampling: ties, infinities, NaNs, one token") {
  const std::vector<std::vector<float>> rows = {
      {3},
      {-infinity, 2},
      {2, 2, 2, 2, 2, 2, 2},
      {1, 2, 2, -infinity, 2, 0},
      {0.0f, -0.0f, 0.0f, -0.0f},
      {1, infinity, 2, infinity},
      {infinity},
      {5, -infinity, infinity},
      {-infinity, 1, -infinity, 1},
      {1e30f, -1e30f, 3e30f, -3e30f},
  };
  for (const std::vector<float>& logits : rows) {
    const auto size = static_cast<std::int64_t>(logits.size());
    SamplingProgram program = program_of(size, nn::sampling_candidates);
    for (nn::SamplerOptions options : many_options) {
      for (const std::int64_t top_k : {options.top_k, std::int64_t{2}, size, size + 1}) {
        options.top_k = top_k;
        CAPTURE(logits, options.temperature, top_k, options.top_p, options.min_p);
        const auto result = program.run(logits, options);
        CHECK(is_known(result));
        const std::vector<KeptToken> want = sorted_kept(options, logits);
        CHECK(ids(result) == ids(want));
        CHECK(worst_error(result, options, logits) < 1e-6);
        if (want.size() == 1) {
          CHECK(token(result) == nn::Sampler(options).sample(logits, {}));
        }
      }
    }
  }
  // A NaN, and nothing above -inf, are left to the host.
  for (const std::vector<float>& logits :
       {std::vector<float>(7, not_a_number), std::vector<float>(7, -infinity),
        std::vector<float>{1, 2, 3, 4, 5, not_a_number, 7}}) {
    CHECK_FALSE(is_known(program_of(7, 7).run(logits, {.temperature = 1})));
    CHECK_FALSE(is_known(program_of(7, 2).run(logits, {.temperature = 1, .top_k = 1})));
  }
}

TEST_CASE("token sampling: of equal logits the first are kept, wherever they stand") {
  std::vector<float> logits(5000, 1.0f);
  SamplingProgram program = program_of(5000, 16);
  CHECK(ids(program.run(logits, {.temperature = 1, .top_k = 5})) ==
        std::vector<std::int32_t>{0, 1, 2, 3, 4});
  // In a block with a larger one, and before it.
  logits[4000] = 2;
  CHECK(ids(program.run(logits, {.temperature = 1, .top_k = 3})) ==
        std::vector<std::int32_t>{0, 1, 4000});
  logits[0] = logits[1] = 0;
  CHECK(ids(program.run(logits, {.temperature = 1, .top_k = 3})) ==
        std::vector<std::int32_t>{2, 3, 4000});
  CHECK(token(program.run(logits, {})) == 4000);
}

TEST_CASE("token sampling: draws have the probabilities", "[accuracy]") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  constexpr std::int64_t rows = 500, vocabulary = 1300;
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = normal(random);
  std::vector<float> repeated;
  for (int i = 0; i < rows; ++i) repeated.insert(repeated.end(), logits.begin(), logits.end());
  const HostBuffer values =
      HostBuffer::of(Shape({rows, vocabulary}, f32), std::span<const float>(repeated));
  SamplingProgram program = program_of(vocabulary, 256, rows);
  for (nn::SamplerOptions options :
       {nn::SamplerOptions{.temperature = 1}, nn::SamplerOptions{.temperature = 0.7, .top_k = 20},
        nn::SamplerOptions{.temperature = 1, .top_k = 200, .top_p = 0.9, .min_p = 0.01}}) {
    options.seed = seed;
    CAPTURE(options.top_k);
    const std::vector<double> want = probabilities(options, logits);
    std::vector<std::int64_t> counts(vocabulary, 0), of_host(vocabulary, 0);
    nn::Sampler sampler(options);
    const auto inputs = nn::sampling_inputs(options, {}, vocabulary);
    for (int i = 0; i < 12; ++i) {
      const auto result = program.run(values, inputs, i);
      for (const std::int32_t id : result.token.values<std::int32_t>()) {
        ++counts[static_cast<std::size_t>(id)];
        ++of_host[static_cast<std::size_t>(sampler.sample(logits, {}))];
      }
    }
    CHECK(excess(want, counts) < too_far);
    CHECK(excess(want, of_host) < too_far);
    // A wrong temperature would have been seen.
    options.temperature *= 1.5;
    CHECK(excess(probabilities(options, logits), counts) > too_far);
  }
}

TEST_CASE("token sampling: an index is where the running sum passes the number") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const std::int64_t size : {1, 2, 511, 512, 513, 1024, 5000}) {
    CAPTURE(size);
    Graph graph;
    const Graph::Recording recording(graph);
    const Tensor weights = graph.input("weights", Shape({1, size}, f32));
    const Tensor uniform = graph.input("uniform", Shape({1, 1}, f32));
    const Tensor index = nn::draw_index(weights, uniform);
    Session session(graph.program({&index, 1}), {.backends = cpu_backends()});
    for (int i = 0; i < 40; ++i) {
      // Whole numbers, whose sums are exact, many of them 0.
      std::vector<float> values(static_cast<std::size_t>(size));
      for (float& value : values) value = random() % 3 == 0 ? static_cast<float>(random() % 5) : 0;
      values[random() % values.size()] = 1;
      const float u = i == 0   ? 0.0f
                      : i == 1 ? 1 - 0x1p-24f
                               : static_cast<float>(random() >> 8) * 0x1p-24f;
      float total = 0;
      for (const float value : values) total += value;
      float sum = 0;
      std::int32_t want = 0;
      while (sum + values[static_cast<std::size_t>(want)] <= u * total) {
        sum += values[static_cast<std::size_t>(want++)];
      }
      const auto results =
          session.forward({HostBuffer::of(Shape({1, size}, f32), std::span<const float>(values))
                               .to_device(cpu_device()),
                           HostBuffer::of<float>(Shape({1, 1}, f32), {u}).to_device(cpu_device())});
      CHECK(results[0].to_host().values<std::int32_t>()[0] == want);
    }
  }
}

TEST_CASE("token sampling: penalties and biases are Sampler's") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  for (const std::int64_t window : {0, 3, 64, 100, 1 << 30}) {
    CAPTURE(window);
    nn::SamplerOptions options{.repetition_penalty = 1.7, .repetition_window = window};
    options.logit_bias = {{3, 0.5f}, {9, -infinity}, {3, 0.9f}, {299, -1}};
    std::vector<std::int32_t> history;
    for (int i = 0; i < 200; ++i) history.push_back(static_cast<std::int32_t>(random() % 320) - 5);
    SamplingProgram program(Shape({1, 300}, f32), nn::sampling_inputs(options, history, 300), 300,
                            cpu_backends());
    for (int i = 0; i < 40; ++i) {
      std::vector<float> logits(300);
      for (float& logit : logits) logit = normal(random);
      options.temperature = 0;
      CHECK(token(program.run(logits, options, history)) ==
            nn::Sampler(options).sample(logits, history));
      options.temperature = 1;
      CHECK(program.run(logits, options, history).kept()[9] == 0);
    }
  }
  const auto refused = [](const Shape& logits, std::int64_t candidates) {
    expect_error(Errc::bad_argument, [&] {
      SamplingProgram(logits, nn::sampling_inputs({}, {}, 7), candidates, cpu_backends());
    });
  };
  refused(Shape({1, 7}, f16), 7);
  refused(Shape({7}, f32), 7);
  refused(Shape({1, 0}, f32), 7);
  refused(Shape({1, 7}, f32), 0);
  expect_error(Errc::bad_argument, [] { nn::sampling_inputs({.logit_bias = {{7, 1}}}, {}, 7); });
  expect_error(Errc::bad_argument, [] { nn::sampling_inputs({.temperature = -1}, {}, 7); });
  expect_error(Errc::bad_argument, [] { nn::sampling_inputs({.top_p = 0}, {}, 7); });
}

TEST_CASE("token sampling: options of the host alone are refused by name") {
  const auto refused = [](const nn::SamplerOptions& options) {
    return expect_error(Errc::unsupported, [&] { nn::sampling_inputs(options, {}, 7); });
  };
  const std::pair<nn::SamplerOptions, std::string> all[] = {
      {{.temperature = 1, .frequency_penalty = 0.1}, "frequency_penalty 0.1"},
      {{.presence_penalty = -0.5}, "presence_penalty -0.5"},
      {{.dry_multiplier = 0.8}, "dry_multiplier 0.8"},
      {{.temperature = 1, .top_n_sigma = 1.5}, "top_n_sigma 1.5"},
      {{.temperature = 1, .temperature_last = true}, "temperature_last"},
      {{.temperature = 1, .dynatemp_range = 0.5}, "dynatemp_range 0.5"},
      {{.temperature = 1, .typical_p = 0.9}, "typical_p 0.9"},
      {{.temperature = 1, .xtc_probability = 0.5}, "xtc_probability 0.5"},
      {{.temperature = 1, .adaptive_target = 0.5}, "adaptive_target 0.5"},
      {{.temperature = 1, .mirostat = 2}, "mirostat 2"}};
  for (const auto& [options, name] : all) {
    CAPTURE(name);
    CHECK(refused(options).find(name) != std::string::npos);
  }
  // Where they have no effect they are let pass.
  nn::sampling_inputs({.temperature = 0, .typical_p = 0.9, .xtc_probability = 0.5, .mirostat = 2},
                      {}, 7);
}

TEST_CASE("token sampling: rows with options of their own") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  constexpr std::int64_t vocabulary = 700;
  const std::vector<nn::SamplerOptions> of_rows = {
      {}, {.temperature = 1, .top_k = 7}, {.temperature = 0.5, .top_p = 0.9, .min_p = 0.01}};
  std::vector<std::vector<float>> logits(3, std::vector<float>(vocabulary));
  std::vector<float> all, temperature, top_p, min_p;
  std::vector<std::int32_t> top_k;
  for (std::size_t i = 0; i < 3; ++i) {
    for (float& logit : logits[i]) logit = normal(random);
    all.insert(all.end(), logits[i].begin(), logits[i].end());
    temperature.push_back(static_cast<float>(of_rows[i].temperature));
    top_p.push_back(static_cast<float>(of_rows[i].top_p));
    min_p.push_back(static_cast<float>(of_rows[i].min_p));
    top_k.push_back(static_cast<std::int32_t>(of_rows[i].top_k));
  }
  const auto column = [](const std::vector<float>& values) {
    return HostBuffer::of(Shape({3, 1}, f32), std::span<const float>(values));
  };
  auto inputs = nn::sampling_inputs({}, {}, vocabulary);
  inputs.temperature = column(temperature);
  inputs.top_p = column(top_p);
  inputs.min_p = column(min_p);
  inputs.top_k = HostBuffer::of(Shape({3, 1}, i32), std::span<const std::int32_t>(top_k));
  SamplingProgram batch(Shape({3, vocabulary}, f32), inputs, 256, cpu_backends());
  const auto result =
      batch.run(HostBuffer::of(Shape({3, vocabulary}, f32), std::span<const float>(all)), inputs);
  SamplingProgram alone = program_of(vocabulary, 256);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto want = alone.run(logits[i], of_rows[i]);
    CHECK(result.is_known.values<bool>()[i] == is_known(want));
    CHECK(result.kept(static_cast<std::int64_t>(i)) == want.kept());
  }
}

namespace {

models::LanguageModel tiny(const std::string& architecture) {
  return models::LanguageModel::load(
      "tests/models/data/tiny_" + architecture + ".gguf",
      {.context = 64, .chunk = 8, .backend = {.threads = 1, .exact = true}});
}

models::Generated generated(const models::LanguageModel& model, const nn::SamplerOptions& sampler,
                            bool sample_on_device) {
  models::Conversation conversation = model.conversation();
  models::GenerateOptions options;
  options.max_tokens = 12;
  options.sampler = sampler;
  options.sample_on_device = sample_on_device;
  return models::generate(model, conversation, model.tokenizer().encode("abcdefghijkl"), options);
}

}  // namespace

TEST_CASE("read_sampled: without chance it gives the tokens of sampling on the host") {
  for (const std::string architecture :
       {"llama", "qwen2", "qwen3", "gemma3", "gpt-oss", "deepseek2", "mamba", "mamba2", "rwkv7"}) {
    CAPTURE(architecture);
    if (seeks_bad_accesses && architecture != "llama" && architecture != "mamba") continue;
    const models::LanguageModel model = tiny(architecture);
    for (const nn::SamplerOptions& sampler :
         {nn::SamplerOptions{}, nn::SamplerOptions{.temperature = 1, .top_k = 1},
          nn::SamplerOptions{.temperature = 1, .top_p = 1e-6},
          nn::SamplerOptions{.repetition_penalty = 1.3},
          nn::SamplerOptions{.repetition_penalty = 2,
                             .repetition_window = 5,
                             .logit_bias = {{7, 1}, {100, -infinity}}}}) {
      CHECK(generated(model, sampler, true).tokens == generated(model, sampler, false).tokens);
    }
  }
}

TEST_CASE("read_sampled: draws have the host's probabilities, and depend on seed and position",
          "[accuracy]") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  const models::LanguageModel model = tiny("llama");
  const std::vector<std::int32_t> prompt = model.tokenizer().encode("abcdefghijkl");
  models::Conversation conversation = model.conversation();
  models::Conversation by_logits = model.conversation();
  const auto logits = by_logits.read(prompt);
  nn::SamplerOptions options{.temperature = 1.3, .top_k = 100, .top_p = 0.95, .min_p = 0.01};
  const std::vector<double> want = probabilities(options, logits);
  std::vector<std::int64_t> counts(want.size(), 0);
  const auto draw = [&](std::uint64_t number) {
    options.seed = (std::uint64_t{seed} << 32) + number;
    conversation.rewind(0);
    return conversation.read_sampled(prompt, options);
  };
  for (std::uint64_t i = 0; i < 2000; ++i) ++counts[static_cast<std::size_t>(draw(i))];
  CHECK(excess(want, counts) < too_far);
  for (std::uint64_t i = 0; i < 10; ++i) CHECK(draw(i) == draw(i));

  options.seed = seed;
  const auto first = generated(model, options, true).tokens;
  CHECK(generated(model, options, true).tokens == first);
  options.seed += 1;
  CHECK(generated(model, options, true).tokens != first);
}

TEST_CASE("read_sampled: what it refuses leaves the conversation as it was") {
  const models::LanguageModel model = tiny("llama");
  models::Conversation conversation = model.conversation();
  const std::vector<std::int32_t> tokens{1, 2, 3};
  expect_error(Errc::bad_argument, [&] { conversation.read_sampled({}, {}); });
  expect_error(Errc::bad_argument, [&] { conversation.read_sampled(tokens, {.temperature = -1}); });
  expect_error(Errc::bad_argument,
               [&] { conversation.read_sampled(tokens, {.logit_bias = {{272, 1}}}); });
  expect_error(Errc::limit_exceeded,
               [&] { conversation.read_sampled(std::vector<std::int32_t>(65, 1), {}); });
  CHECK(conversation.position() == 0);
  models::GenerateOptions options;
  options.sample_on_device = true;
  options.logprobs = 2;
  const std::string what = expect_error(
      Errc::unsupported, [&] { models::generate(model, conversation, tokens, options); });
  CHECK(what.find("logprobs") != std::string::npos);
  options.logprobs.reset();
  options.sampler = {.temperature = 1, .xtc_probability = 0.5};
  const std::string other = expect_error(
      Errc::unsupported, [&] { models::generate(model, conversation, tokens, options); });
  CHECK(other.find("xtc_probability") != std::string::npos);
  expect_error(Errc::unsupported, [&] { conversation.read_sampled(tokens, options.sampler); });
  CHECK(conversation.position() == 0);
}
