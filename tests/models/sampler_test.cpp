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

/// Logits of these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double probability : probabilities) {
    logits.push_back(static_cast<float>(std::log(probability)));
  }
  return logits;
}

/// Probabilities of all tokens, 0 for those that are not kept.
std::vector<double> kept(const nn::SamplerOptions& options, const std::vector<float>& logits,
                         const std::vector<std::int32_t>& history = {}) {
  std::vector<double> result(logits.size(), 0);
  for (const auto& [token, probability] : Sampler(options).probabilities(logits, history)) {
    result[static_cast<std::size_t>(token)] = probability;
  }
  return result;
}

bool are_near(const std::vector<double>& got, const std::vector<double>& want) {
  CAPTURE(got);
  return std::ranges::equal(got, want, [](double a, double b) { return std::abs(a - b) < 1e-6; });
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
  expect_error(Errc::bad_argument, [] { Sampler({.frequency_penalty = INFINITY}); });
  expect_error(Errc::bad_argument, [] { Sampler({.presence_penalty = NAN}); });
  for (const float bias : {INFINITY, NAN}) {
    expect_error(Errc::bad_argument, [&] { Sampler({.logit_bias = {{0, bias}}}); });
  }
  expect_error(Errc::bad_argument, [] { Sampler({.dry_multiplier = -1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.dry_base = 0.9}); });
  expect_error(Errc::bad_argument, [] { Sampler({.dry_allowed_length = -1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.dry_window = -1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.dry_breakers = {{}}}); });
  expect_error(Errc::bad_argument, [] { Sampler({.top_n_sigma = NAN}); });
  expect_error(Errc::bad_argument, [] { Sampler({.dynatemp_range = -0.1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.dynatemp_exponent = -1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.typical_p = 0}); });
  expect_error(Errc::bad_argument, [] { Sampler({.xtc_probability = 1.1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.xtc_threshold = -0.1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.adaptive_target = 1.1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.adaptive_decay = 1}); });
  expect_error(Errc::bad_argument, [] { Sampler({.mirostat = 3}); });
  expect_error(Errc::bad_argument, [] { Sampler({.mirostat_tau = -1}); });
  const auto message = expect_error(Errc::bad_argument, [] { Sampler({.xtc_probability = 2}); });
  CHECK(contains(message, "SamplerOptions.xtc_probability: is 2, allowed: 0 to 1"));
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

TEST_CASE("sampler: frequency and presence penalties count tokens of the window") {
  const std::vector<float> logits{4, 4, 4, -1};
  // Of the last five tokens, 0 is two, 1 is one, 3 is one.
  const std::vector<std::int32_t> history{2, 2, 0, 7, 1, 0, 3};
  const auto logit_of = [&](const nn::SamplerOptions& options, std::size_t token) {
    const auto all = kept(options, logits, history);
    return 4 + std::log(all[token] / all[2]);  // token 2 is as it was
  };
  nn::SamplerOptions options{.temperature = 1,
                             .repetition_penalty = 2,
                             .repetition_window = 5,
                             .frequency_penalty = 0.5,
                             .presence_penalty = 0.25};
  CHECK(logit_of(options, 0) == Approx(4 / 2.0 - 2 * 0.5 - 0.25).epsilon(1e-5));
  CHECK(logit_of(options, 1) == Approx(4 / 2.0 - 0.5 - 0.25).epsilon(1e-5));
  CHECK(logit_of(options, 3) == Approx(-1 * 2.0 - 0.5 - 0.25).epsilon(1e-5));
  options = {.temperature = 1, .presence_penalty = 1};
  CHECK_FALSE(options.is_greedy());
  options.temperature = 0;
  CHECK_FALSE(options.is_greedy());
  CHECK(Sampler(options).sample(std::vector<float>{2, 1.5f}, std::vector<std::int32_t>{0}) == 1);
}

TEST_CASE("sampler: DRY lowers what continues a repetition") {
  const std::vector<float> logits(10, 0.0f);
  const auto penalties = [&](const nn::SamplerOptions& options,
                             const std::vector<std::int32_t>& history) {
    const auto all = kept(options, logits, history);
    std::map<int, double> lost;
    for (int i = 0; i < 10; ++i) {
      const double one = std::log(all[0] / all[static_cast<std::size_t>(i)]);
      if (std::abs(one) > 1e-6) lost[i] = std::round(one * 1e4) / 1e4;
    }
    return lost;
  };
  using Lost = std::map<int, double>;
  const nn::SamplerOptions options{.temperature = 1, .dry_multiplier = 0.5, .dry_base = 2};
  // 1 2 3 was followed by 4, 2 3 also by 5, 3 alone by 6.
  const std::vector<std::int32_t> history{1, 2, 3, 4, 9, 2, 3, 5, 8, 3, 6, 1, 2, 3};
  CHECK(penalties(options, history) == Lost{{4, 0.5 * 2}, {5, 0.5}});
  auto changed = options;
  changed.dry_allowed_length = 1;
  CHECK(penalties(changed, history) == Lost{{4, 0.5 * 4}, {5, 0.5 * 2}, {6, 0.5}});
  changed.dry_allowed_length = 4;
  CHECK(penalties(changed, history).empty());
  changed = options;
  changed.dry_window = 9;  // 2 3 5 8 3 6 1 2 3
  CHECK(penalties(changed, history) == Lost{{5, 0.5}});
  // A repetition begins behind the last breaker, 1 or 8 1; a single token is never lowered for being one.
  changed.dry_window = 64;
  changed.dry_breakers = {{7}, {1}};
  CHECK(penalties(changed, history) == Lost{{4, 0.5}, {5, 0.5}});
  changed.dry_breakers = {{7, 1}, {6, 1, 2}};
  CHECK(penalties(changed, history).empty());
  changed.dry_breakers = {{7, 8}, {4}};
  CHECK(penalties(changed, history) == Lost{{5, 0.5}});
  CHECK(penalties(options, {}).empty());
  CHECK(penalties(options, {3, 3}).empty());
  CHECK(penalties(options, {3, 3, 3}) == Lost{{3, 0.5}});
  CHECK(penalties(options, {3, 3, 3, 3, 3, 3}) == Lost{{3, 0.5 * 8}});
}

TEST_CASE("sampler: DRY's repetitions are those of comparing all ends") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < testing::rounds(300); ++round) {
    std::vector<std::int32_t> history(random() % 60);
    for (std::int32_t& token : history) token = static_cast<std::int32_t>(random() % 3);
    const nn::SamplerOptions options{
        .temperature = 1,
        .dry_multiplier = 0.1,
        .dry_base = 1.1,
        .dry_allowed_length = 1 + static_cast<std::int64_t>(random() % 3)};
    const auto all = kept(options, std::vector<float>(4, 0.0f), history);
    const std::size_t size = history.size();
    for (std::int32_t token = 0; token < 3; ++token) {
      std::int64_t longest = -1;
      for (std::size_t next = 1; next < size; ++next) {
        if (history[next] != token) continue;
        std::size_t length = 0;
        while (length < next && history[next - 1 - length] == history[size - 1 - length]) ++length;
        longest = std::max(longest, static_cast<std::int64_t>(length));
      }
      const std::int64_t excess = longest - options.dry_allowed_length;
      const double want = excess < 0 ? 0 : 0.1 * std::pow(1.1, static_cast<double>(excess));
      CHECK(std::log(all[3] / all[static_cast<std::size_t>(token)]) == Approx(want).margin(1e-5));
    }
  }
}

TEST_CASE("sampler: top-n-sigma keeps the same tokens at every temperature") {
  // Mean 2, deviation 1.826: bounds at 5 - 1.826 n.
  const std::vector<float> logits{5, 1, 3, 2, -1, 2};
  for (const double temperature : {0.3, 1.0, 5.0}) {
    CAPTURE(temperature);
    const auto count = [&](double n) {
      return Sampler({.temperature = temperature, .top_n_sigma = n})
          .probabilities(logits, {})
          .size();
    };
    CHECK(std::vector<std::size_t>{count(0.5), count(1.2), count(1.8), count(4), count(0),
                                   count(-1)} == std::vector<std::size_t>{1, 2, 4, 6, 6, 6});
  }
  // Excluded tokens do not count.
  const std::vector<float> some{5, 1, 3, 2, -1, 2, -INFINITY, nan_logit};
  CHECK(Sampler({.temperature = 1, .top_n_sigma = 1.8}).probabilities(some, {}).size() == 4);
  CHECK(Sampler({.temperature = 1, .top_n_sigma = 1}).sample(std::vector<float>{3}, {}) == 0);
}

TEST_CASE("sampler: typical-p keeps the tokens of average surprise") {
  // The entropy is 1.3331, -log(p) are 0.6931, 1.6094, 1.8971, 2.3026, 2.9957.
  const auto logits = logits_of({0.5, 0.2, 0.15, 0.1, 0.05});
  const auto at = [&](double p) { return kept({.temperature = 1, .typical_p = p}, logits); };
  CHECK(are_near(at(0.1), {0, 1, 0, 0, 0}));
  CHECK(are_near(at(0.3), {0, 0.2 / 0.35, 0.15 / 0.35, 0, 0}));
  CHECK(are_near(at(0.75), {0.5 / 0.85, 0.2 / 0.85, 0.15 / 0.85, 0, 0}));
  CHECK(are_near(at(1), {0.5, 0.2, 0.15, 0.1, 0.05}));
  // Behind top-k, and before top-p and min-p, which see what it leaves.
  CHECK(are_near(kept({.temperature = 1, .top_k = 2, .typical_p = 0.2}, logits), {1, 0, 0, 0, 0}));
  CHECK(
      are_near(kept({.temperature = 1, .top_p = 0.5, .typical_p = 0.3}, logits), {0, 1, 0, 0, 0}));
  CHECK(
      are_near(kept({.temperature = 1, .min_p = 0.8, .typical_p = 0.3}, logits), {0, 1, 0, 0, 0}));
  CHECK(
      are_near(kept({.temperature = 1, .min_p = 0.9, .typical_p = 0.1}, logits), {0, 1, 0, 0, 0}));
}

TEST_CASE("sampler: XTC drops the probable tokens but the least of them") {
  const auto logits = logits_of({0.4, 0.05, 0.3, 0.25});
  const std::vector<double> dropped{0, 0.05 / 0.3, 0, 0.25 / 0.3};
  nn::SamplerOptions options{.temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.2};
  CHECK(are_near(kept(options, logits), dropped));
  options.xtc_threshold = 0.35;  // one token alone stays
  CHECK(are_near(kept(options, logits), {0.4, 0.05, 0.3, 0.25}));
  options.xtc_threshold = 0.6;
  CHECK(are_near(kept(options, logits), {0.4, 0.05, 0.3, 0.25}));
  options = {.temperature = 1, .min_p = 0.2, .xtc_probability = 1, .xtc_threshold = 0.2};
  CHECK(are_near(kept(options, logits), {0, 0, 0, 1}));
  options = {.temperature = 1, .xtc_probability = 0.25, .xtc_threshold = 0.2};
  std::vector<double> mixed{0.4, 0.05, 0.3, 0.25};
  for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] = 0.75 * mixed[i] + 0.25 * dropped[i];
  CHECK(are_near(kept(options, logits), mixed));
}

TEST_CASE("sampler: the temperature behind the bounds") {
  const auto logits = logits_of({0.5, 0.3, 0.15, 0.05});
  // At temperature 1 two tokens reach 0.75, at 2 three do.
  nn::SamplerOptions options{.temperature = 2, .top_p = 0.75};
  CHECK(Sampler(options).probabilities(logits, {}).size() == 3);
  options.temperature_last = true;
  const double a = std::sqrt(0.5), b = std::sqrt(0.3);
  CHECK(are_near(kept(options, logits), {a / (a + b), b / (a + b), 0, 0}));
  // Also where XTC leaves tokens far below the most probable one.
  const std::vector<float> far{0, -90, -100};
  CHECK(are_near(kept({.temperature = 0.5, .temperature_last = true}, far), {1, 0, 0}));
}

TEST_CASE("sampler: a dynamic temperature follows the entropy") {
  const auto logits = logits_of({0.6, 0.3, 0.1});
  const double entropy = -(0.6 * std::log(0.6) + 0.3 * std::log(0.3) + 0.1 * std::log(0.1));
  const auto want = [&](double least, double most, double exponent) {
    const double temperature = least + (most - least) * std::pow(entropy / std::log(3), exponent);
    std::vector<double> weights;
    double total = 0;
    for (const double p : {0.6, 0.3, 0.1}) {
      weights.push_back(std::pow(p, 1 / temperature));
      total += weights.back();
    }
    for (double& weight : weights) weight /= total;
    return weights;
  };
  CHECK(are_near(kept({.temperature = 1, .dynatemp_range = 0.5}, logits), want(0.5, 1.5, 1)));
  CHECK(are_near(kept({.temperature = 1, .dynatemp_range = 3, .dynatemp_exponent = 2}, logits),
                 want(0, 4, 2)));
  // Of one token, and where the entropy says 0.
  CHECK(are_near(kept({.temperature = 1, .top_k = 1, .dynatemp_range = 0.5}, logits), {1, 0, 0}));
  CHECK(are_near(kept({.temperature = 1, .dynatemp_range = 1}, {0, -200}), {1, 0}));
}

TEST_CASE("sampler: adaptive-p prefers tokens of the target's probability, and learns") {
  const std::vector<double> given{0.5, 0.3, 0.15, 0.05};
  const auto logits = logits_of(given);
  const auto want = [&](double target) {
    std::vector<double> weights;
    double total = 0;
    for (const double p : given) {
      const double d = std::abs(p - target) / 0.3;
      total += weights.emplace_back(std::exp(5 - 10 * d * d / (1 + d)));
    }
    for (double& weight : weights) weight /= total;
    return weights;
  };
  Sampler sampler({.temperature = 1, .seed = 3, .adaptive_target = 0.3, .adaptive_decay = 0.5});
  double sum = 0.3 / 0.5, count = 1 / 0.5;
  for (int i = 0; i < 50; ++i) {
    std::vector<double> got;
    for (const auto& one : sampler.probabilities(logits, {})) got.push_back(one.probability);
    CHECK(are_near(got, want(std::clamp(0.6 - sum / count, 0.0, 1.0))));
    const std::int32_t token = sampler.sample(logits, {});
    sum = given[static_cast<std::size_t>(token)] + 0.5 * sum;
    count = 1 + 0.5 * count;
  }
}

TEST_CASE("sampler: mirostat bounds the surprise, and learns") {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(2000);
  for (float& logit : logits) logit = normal(random);
  const auto every = kept({.temperature = 1}, logits);
  for (const int version : {1, 2}) {
    CAPTURE(version);
    Sampler sampler({.temperature = 1, .seed = 3, .mirostat = version, .mirostat_tau = 4});
    double bound = 8, sum = 0;
    std::size_t different = 0, before = 0;
    constexpr int count = 1500;
    for (int i = 0; i < count; ++i) {
      const auto left = sampler.probabilities(logits, {});
      if (version == 2) {
        const auto surprising = [&](double p) { return -std::log2(p) > bound; };
        const auto fits = std::ranges::count_if(every, [&](double p) { return !surprising(p); });
        CHECK(static_cast<std::ptrdiff_t>(left.size()) == fits);
      }
      different += left.size() != before ? 1 : 0;
      before = left.size();
      const std::int32_t token = sampler.sample(logits, {});
      const auto found = std::ranges::find(left, token, &nn::TokenProbability::token);
      REQUIRE(found != left.end());
      const double surprise = -std::log2(found->probability);
      sum += surprise;
      bound -= 0.1 * (surprise - 4);
    }
    CHECK(different > 100);
    CHECK(std::abs(sum / count - 4) < 0.2);
  }
  // Whatever the bound, a token is left; other bounds have no effect.
  CHECK(Sampler({.temperature = 1, .mirostat = 2, .mirostat_tau = 0})
            .probabilities(logits, {})
            .size() == 1);
  CHECK(Sampler({.temperature = 1, .top_k = 3, .mirostat = 2}).probabilities(logits, {}) ==
        Sampler({.temperature = 1, .mirostat = 2}).probabilities(logits, {}));
  for (const int version : {1, 2}) {
    CHECK(Sampler({.temperature = 1, .mirostat = version}).sample(std::vector<float>{3}, {}) == 0);
    const std::vector<float> equal(5, 1.0f);
    CHECK(Sampler({.temperature = 1, .mirostat = version}).sample(equal, {}) < 5);
  }
}

TEST_CASE("sampler: draws have the probabilities that it says") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(400);
  for (float& logit : logits) logit = normal(random);
  logits[7] = -std::numeric_limits<float>::infinity();
  const std::vector<std::int32_t> history{1, 2, 3, 4, 1, 2, 3};
  for (nn::SamplerOptions options : {
           nn::SamplerOptions{.temperature = 1.2, .top_p = 0.8, .repetition_penalty = 1.2},
           nn::SamplerOptions{.temperature = 1.2, .frequency_penalty = 0.5, .dry_multiplier = 1},
           nn::SamplerOptions{.temperature = 1, .top_n_sigma = 1.5, .typical_p = 0.8},
           nn::SamplerOptions{.temperature = 1,
                              .top_k = 30,
                              .typical_p = 0.8,
                              .xtc_probability = 0.4,
                              .xtc_threshold = 0.04},
           nn::SamplerOptions{.temperature = 1,
                              .presence_penalty = 0.5,
                              .top_n_sigma = 1.5,
                              .xtc_probability = 0.4,
                              .xtc_threshold = 0.02},
           nn::SamplerOptions{.temperature = 1, .xtc_probability = 0.4, .xtc_threshold = 0.02},
           nn::SamplerOptions{.temperature = 0.7, .min_p = 0.01, .temperature_last = true},
           nn::SamplerOptions{.temperature = 1, .dynatemp_range = 0.5},
           nn::SamplerOptions{.temperature = 1,
                              .top_p = 0.9,
                              .typical_p = 0.9,
                              .xtc_probability = 0.9,
                              .xtc_threshold = 0.03},
           nn::SamplerOptions{
               .temperature = 1, .mirostat = 2, .mirostat_tau = 3, .mirostat_eta = 0},
           nn::SamplerOptions{
               .temperature = 1, .mirostat = 1, .mirostat_tau = 3, .mirostat_eta = 0},
       }) {
    options.seed = seed;
    CAPTURE(options.top_k, options.top_p, options.typical_p, options.mirostat);
    const std::vector<double> want = kept(options, logits, history);
    double total = 0;
    for (const double one : want) total += one;
    CHECK(total == Approx(1).epsilon(1e-6));
    std::vector<std::int64_t> counts(logits.size(), 0);
    Sampler sampler(options);
    for (int i = 0; i < 20000; ++i) {
      ++counts[static_cast<std::size_t>(sampler.sample(logits, history))];
    }
    CHECK(excess(want, counts) < 6);
  }
}
