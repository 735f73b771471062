#include <tenon/error.hpp>
#include <tenon/nn/sampler.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

// A vocabulary has up to some hundred thousand tokens, and few of them are ever drawn: most of them
// are only compared, or only add to a sum, in loops that compilers make vectors of.
namespace tenon::nn {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t block = 64;  // logits whose largest is found together

void require(bool holds, const char* what, double value) {
  if (!holds) throw Error(Errc::bad_argument, "Sampler", fmt::format("{} is {}", what, value));
}

/// A NaN counts as nothing.
float largest(std::span<const float> values) {
  constexpr std::size_t lanes = 16;
  float best[lanes];
  std::ranges::fill(best, minus_infinity);
  std::size_t i = 0;
  for (; i + lanes <= values.size(); i += lanes) {
    for (std::size_t j = 0; j < lanes; ++j) best[j] = std::max(best[j], values[i + j]);
  }
  for (; i < values.size(); ++i) best[0] = std::max(best[0], values[i]);
  return *std::ranges::max_element(best);
}

/// The first of them, by id. Errc::bad_input when no logit is a number.
std::int32_t argmax(std::span<const float> logits, float peak) {
  const auto found = std::ranges::find(logits, peak);
  if (found == logits.end()) throw Error(Errc::bad_input, "Sampler", "no logit is a number");
  return static_cast<std::int32_t>(found - logits.begin());
}

/// weights[i] = exp((logits[i] - peak) * factor), within 4e-7 of it; 0 below e^-87 and for a NaN.
/// Argument reduction after Cody and Waite (Software Manual for the Elementary Functions, 1980).
void weigh(std::span<const float> logits, float peak, float factor, std::span<float> weights) {
  constexpr float lowest = -87.0f, log2_e = 1.44269504f;
  constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float to_integer = 0x1.8p23f;  // added to a small number, leaves it rounded
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float x = (logits[i] - peak) * factor;
    const float bounded = x > lowest ? x : lowest;
    const float shifted = bounded * log2_e + to_integer;
    const float n = shifted - to_integer;
    const float r = (bounded - n * ln2_high) - n * ln2_low;
    // Taylor's polynomial: |r| <= ln(2) / 2.
    const float p =
        1 + r * (1 + r * (1.0f / 2 +
                          r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
    const auto exponent = std::bit_cast<std::int32_t>(shifted) << 23;
    const float e = std::bit_cast<float>(std::bit_cast<std::int32_t>(p) + exponent);
    weights[i] = x > lowest ? e : 0.0f;
  }
}

double sum(std::span<const float> values) {
  double total = 0;
  for (std::size_t i = 0; i < values.size(); i += block) {
    const auto some = values.subspan(i, std::min(block, values.size() - i));
    double part = 0;
    for (const float value : some) part += static_cast<double>(value);
    total += part;
  }
  return total;
}

/// A number that at least `count` of the values reach, and not many more: of the largest values of
/// short stretches, the one that `count` of them reach. `maxima` is memory to work in.
float reached_by(std::span<const float> values, std::size_t count, std::vector<float>& maxima) {
  const std::size_t stretch = std::clamp<std::size_t>(values.size() / (4 * count), 1, block);
  maxima.clear();
  for (std::size_t i = 0; i < values.size(); i += stretch) {
    maxima.push_back(largest(values.subspan(i, std::min(stretch, values.size() - i))));
  }
  const auto last = maxima.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::ranges::nth_element(maxima, last, std::greater());
  return *last;
}

}  // namespace

void SamplerOptions::check(std::int64_t vocabulary) const {
  require(temperature >= 0 && std::isfinite(temperature), "temperature", temperature);
  require(top_k >= 0, "top_k", static_cast<double>(top_k));
  require(top_p > 0 && top_p <= 1, "top_p", top_p);
  require(min_p >= 0 && min_p <= 1, "min_p", min_p);
  require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty",
          repetition_penalty);
  require(repetition_window >= 0, "repetition_window", static_cast<double>(repetition_window));
  for (const auto& [id, bias] : logit_bias) {
    require(id >= 0, "a token of logit_bias", id);
    require(id < vocabulary, "a token of logit_bias, beyond the vocabulary,", id);
    require(!std::isnan(bias), "a logit_bias", static_cast<double>(bias));
  }
}

std::vector<std::int32_t> SamplerOptions::seen(std::span<const std::int32_t> history) const {
  const auto window = std::min(history.size(), static_cast<std::size_t>(repetition_window));
  const auto recent = history.last(window);
  std::vector<std::int32_t> seen(recent.begin(), recent.end());
  std::ranges::sort(seen);
  seen.erase(std::ranges::unique(seen).begin(), seen.end());
  return seen;
}

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {
  options.check();
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history) {
  if (options_.repetition_penalty != 1 || !options_.logit_bias.empty()) {
    logits = adjusted(logits, history);
  }
  const float peak = largest(logits);
  const std::int32_t best = argmax(logits, peak);
  if (peak == minus_infinity && !options_.logit_bias.empty()) {
    throw Error(Errc::bad_argument, "Sampler", "logit_bias leaves no token that may be drawn");
  }
  if (options_.temperature == 0 || std::isinf(peak)) return best;

  // 53 random bits, the same on every standard library.
  const double random = static_cast<double>(random_() >> 11) * 0x1p-53;
  const auto top_k = static_cast<std::size_t>(options_.top_k);
  if (top_k > 0 && top_k < logits.size()) {
    // Excluded tokens are never among them, also where fewer than top_k are left.
    constexpr float least = std::numeric_limits<float>::lowest();
    collect(logits, std::max(reached_by(logits, top_k, weights_), least));
    candidates_.resize(std::min(top_k, candidates_.size()));
    double total = 0;
    for (auto& [weight, id] : candidates_) {
      weight =
          static_cast<float>(std::exp(static_cast<double>(weight - peak) / options_.temperature));
      total += static_cast<double>(weight);
    }
    return drawn(random, total);
  }

  weights_.resize(logits.size());
  const double factor = 1 / options_.temperature;
  weigh(logits, peak, static_cast<float>(std::min(factor, 1e38)), weights_);
  const double total = sum(weights_);
  if (options_.top_p == 1 && options_.min_p == 0) return drawn_of_all(random * total);
  // Those that may be drawn are few as a rule: tokens are looked for below lower and lower bounds
  // until their weights are enough.
  const float least =
      std::max(static_cast<float>(options_.min_p), std::numeric_limits<float>::min());
  for (float bound = 1e-2f;; bound = bound > 1e-9f ? bound * 1e-2f : 0) {
    collect(weights_, std::max(bound, least));
    double kept = 0;
    for (const auto& [weight, id] : candidates_) kept += static_cast<double>(weight);
    if (kept >= options_.top_p * total || bound <= least) return drawn(random, total);
  }
}

std::span<const float> Sampler::adjusted(std::span<const float> logits,
                                         std::span<const std::int32_t> history) {
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : options_.logit_bias) {
    const auto i = static_cast<std::size_t>(id);
    require(i < logits.size(), "a token of logit_bias, beyond the vocabulary,", id);
    adjusted_[i] = logits[i] + bias;
  }
  if (options_.repetition_penalty == 1) return adjusted_;
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const std::int32_t id : options_.seen(history)) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
    float& logit = adjusted_[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  return adjusted_;
}

void Sampler::collect(std::span<const float> values, float bound) {
  candidates_.clear();
  for (std::size_t i = 0; i < values.size(); i += block) {
    const auto some = values.subspan(i, std::min(block, values.size() - i));
    if (!(largest(some) >= bound)) continue;
    for (std::size_t j = 0; j < some.size(); ++j) {
      if (some[j] >= bound) candidates_.emplace_back(some[j], static_cast<std::int32_t>(i + j));
    }
  }
  std::ranges::sort(candidates_, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
}

std::int32_t Sampler::drawn(double random, double total) const {
  const auto weight = [&](std::size_t i) { return static_cast<double>(candidates_[i].first); };
  double kept = 0;
  std::size_t count = 0;
  while (count < candidates_.size()) {
    // The most likely token always stays.
    if (count > 0 && (kept >= options_.top_p * total || weight(count) < options_.min_p * weight(0)))
      break;
    kept += weight(count++);
  }
  double draw = random * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    if (draw < weight(i)) return candidates_[i].second;
    draw -= weight(i);
  }
  return candidates_[count - 1].second;
}

std::int32_t Sampler::drawn_of_all(double draw) const {
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const auto weight = static_cast<double>(weights_[i]);
    if (weight == 0) continue;
    if (draw < weight) return static_cast<std::int32_t>(i);
    draw -= weight;
    last = i;
  }
  return static_cast<std::int32_t>(last);
}

double log_sum_exp(std::span<const float> logits) {
  const float peak = largest(logits);
  if (std::isinf(peak)) return static_cast<double>(peak);
  double sum = 0;
  for (const float logit : logits) {
    if (!std::isnan(logit)) sum += std::exp(static_cast<double>(logit) - static_cast<double>(peak));
  }
  return static_cast<double>(peak) + std::log(sum);
}

std::vector<std::int32_t> top_k(std::span<const float> logits, std::int64_t count) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) ids.push_back(static_cast<std::int32_t>(i));
  }
  const auto kept =
      std::min<std::size_t>(ids.size(), static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::ranges::partial_sort(ids, ids.begin() + static_cast<std::ptrdiff_t>(kept),
                            [&](std::int32_t a, std::int32_t b) {
                              return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
                            });
  ids.resize(kept);
  return ids;
}

}  // namespace tenon::nn
