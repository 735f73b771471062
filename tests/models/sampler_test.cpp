#include "sampling_program.hpp"
#include "support/expect_error.hpp"
#include "support/rounds.hpp"

#include <tenon/error.hpp>
#include <tenon/nn/sampler.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::testing;
using nn::Sampler;

namespace {

const float nan_logit = std::numeric_limits<float>::quiet_NaN();

std::map<std::int32_t, int> draws(const nn::SamplerOptions& options,
                                  const std::vector<float>& logits, int count,
                                  const std::vector<std::int32_t>& history = {}) {
  Sampler sampler(options);
  std::map<std::int32_t, int> seen;
  for (int i = 0; i < count; ++i) ++seen[sampler.sample(logits, history)];
  return seen;
}

/// A draw of what sorting keeps. Without bounds tokens are drawn in the order of their ids.
std::int32_t sorted_draw(const nn::SamplerOptions& options, const std::vector<float>& logits,
                         std::mt19937_64& bits) {
  std::vector<KeptToken> tokens = sorted_kept(options, logits);
  if (options.top_k == 0 && options.top_p == 1 && options.min_p == 0) {
    std::ranges::sort(tokens, {}, &KeptToken::id);
  }
  double kept = 0;
  for (const KeptToken& token : tokens) kept += token.weight;
  double draw = static_cast<double>(bits() >> 11) * 0x1p-53 * kept;
  std::size_t i = 0;
  while (i + 1 < tokens.size() && draw >= tokens[i].weight) draw -= tokens[i++].weight;
  return tokens[i].id;
}

}  // namespace

TEST_CASE("sampler: greedy takes the highest logit, the lowest id on ties, never a NaN") {
  Sampler sampler({});
  CHECK(sampler.sample(std::vector<float>{0, 3, 1}, {}) == 1);
  CHECK(sampler.sample(std::vector<float>{2, 1, 2}, {}) == 0);
  CHECK(sampler.sample(std::vector<float>{nan_logit, -5, nan_logit}, {}) == 1);
  expect_error(Errc::bad_input, [&] { sampler.sample(std::vector<float>{nan_logit}, {}); });
  expect_error(Errc::bad_input, [&] { sampler.sample({}, {}); });
}

TEST_CASE("sampler: draws follow the softmax of the logits") {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits{std::log(5.0f), std::log(3.0f), std::log(2.0f)};
  constexpr int count = 30000;
  auto seen = draws({.temperature = 1, .seed = 7}, logits, count);
  double chi_square = 0;
  const double expected[] = {0.5 * count, 0.3 * count, 0.2 * count};
  for (int i = 0; i < 3; ++i) chi_square += std::pow(seen[i] - expected[i], 2) / expected[i];
  CHECK(chi_square < 13.8);  // 0.1 % of two degrees of freedom
}

TEST_CASE("sampler: the same seed draws the same tokens") {
  const std::vector<float> logits(50, 0.0f);
  const nn::SamplerOptions options{.temperature = 1, .seed = 42};
  Sampler a(options), b(options), c({.temperature = 1, .seed = 43});
  int differs = 0;
  for (int i = 0; i < 100; ++i) {
    const auto token = a.sample(logits, {});
    CHECK(token == b.sample(logits, {}));
    differs += token != c.sample(logits, {}) ? 1 : 0;
  }
  CHECK(differs > 50);
}

TEST_CASE("sampler: top-k, top-p and min-p exclude improbable tokens") {
  const std::vector<float> logits{std::log(5.0f), std::log(3.0f), std::log(1.5f), std::log(0.5f)};
  CHECK(draws({.temperature = 1, .top_k = 2}, logits, 500).size() == 2);
  CHECK(draws({.temperature = 1, .top_p = 0.75}, logits, 500).size() == 2);  // 0.5 + 0.3 reach it
  CHECK(draws({.temperature = 1, .top_p = 0.01}, logits, 500).size() == 1);
  CHECK(draws({.temperature = 1, .min_p = 0.2}, logits, 500).size() == 3);  // 0.05 < 0.2 * 0.5
}

TEST_CASE("sampler: draws are those of sorting the whole vocabulary") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 4);
  const nn::SamplerOptions all_options[] = {
      {.temperature = 1},
      {.temperature = 0.7, .top_k = 40},
      {.temperature = 2, .top_k = 700},
      {.temperature = 1.5, .top_k = 4999},
      {.temperature = 0.8, .top_p = 0.9},
      {.temperature = 3, .top_p = 0.999999},
      {.temperature = 1, .min_p = 0.05},
      {.temperature = 5, .min_p = 1e-5},
      {.temperature = 0.9, .top_k = 50, .top_p = 0.8, .min_p = 0.02},
      {.temperature = 0.9, .top_p = 0.8, .min_p = 0.001},
      {.temperature = 1e-30, .top_p = 0.5},
  };
  int draws = 0, differ = 0;
  for (nn::SamplerOptions options : all_options) {
    options.seed = seed;
    Sampler sampler(options);
    std::mt19937_64 bits(seed);
    for (int i = 0; i < testing::rounds(200); ++i) {
      std::vector<float> logits(5000);
      for (float& logit : logits) logit = normal(random);
      logits[static_cast<std::size_t>(i)] = nan_logit;
      logits[static_cast<std::size_t>(i) + 1] = -std::numeric_limits<float>::infinity();
      logits[static_cast<std::size_t>(i) + 2] = logits[static_cast<std::size_t>(i) + 3];
      const std::int32_t got = sampler.sample(logits, {});
      ++draws;
      if (got != sorted_draw(options, logits, bits)) ++differ;
    }
  }
  // Weights differ in the seventh digit, and so do the numbers at which one token follows another.
  CAPTURE(draws);
  CHECK(differ <= 8);
}

TEST_CASE("sampler: a logit without end wins") {
  const float infinity = std::numeric_limits<float>::infinity();
  Sampler sampler({.temperature = 1, .top_p = 0.9});
  CHECK(sampler.sample(std::vector<float>{1, infinity, 2, infinity}, {}) == 1);
  expect_error(Errc::bad_input, [&] { sampler.sample(std::vector<float>{nan_logit}, {}); });
}

TEST_CASE("sampler: the repetition penalty makes seen tokens less probable") {
  const std::vector<float> logits{2.0f, 1.5f, -1.0f};
  Sampler sampler({.repetition_penalty = 2});
  CHECK(sampler.sample(logits, {}) == 0);
  CHECK(sampler.sample(logits, std::vector<std::int32_t>{0}) == 1);
  Sampler negative({.repetition_penalty = 10});
  CHECK(negative.sample(std::vector<float>{-1.0f, -2.0f}, std::vector<std::int32_t>{0}) == 1);
}

TEST_CASE("sampler: numbers out of range are refused") {
  expect_error(Errc::bad_argument, [] { Sampler({.temperature = -1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.top_k = -1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.top_p = 0}); });
  expect_error(Errc::bad_argument, [] { Sampler({.min_p = 2}); });
  expect_error(Errc::bad_argument, [] { Sampler({.repetition_penalty = 0}); });
}

TEST_CASE("sampler: biases that leave no token are refused, not ignored") {
  const float never = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits{1, 2, 3};
  for (const double temperature : {0.0, 1.0}) {
    Sampler none({.temperature = temperature, .logit_bias = {{0, never}, {1, never}, {2, never}}});
    expect_error(Errc::bad_argument, [&] { none.sample(logits, {}); });
    Sampler one({.temperature = temperature, .logit_bias = {{0, never}, {2, never}}});
    CHECK(one.sample(logits, {}) == 1);
  }
}
