#include "support/expect_error.hpp"

#include <tenon/error.hpp>
#include <tenon/nn/sampler.hpp>

#include <cmath>
#include <limits>
#include <map>
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

TEST_CASE("sampler: top-k, top-p and min-p leave out unlikely tokens") {
  const std::vector<float> logits{std::log(5.0f), std::log(3.0f), std::log(1.5f), std::log(0.5f)};
  CHECK(draws({.temperature = 1, .top_k = 2}, logits, 500).size() == 2);
  CHECK(draws({.temperature = 1, .top_p = 0.75}, logits, 500).size() == 2);  // 0.5 + 0.3 reach it
  CHECK(draws({.temperature = 1, .top_p = 0.01}, logits, 500).size() == 1);
  CHECK(draws({.temperature = 1, .min_p = 0.2}, logits, 500).size() == 3);  // 0.05 < 0.2 * 0.5
}

TEST_CASE("sampler: the repetition penalty makes seen tokens less likely") {
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
