#include <tenon/error.hpp>
#include <tenon/nn/sampler.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tenon::nn {
namespace {

void require(bool holds, const char* what, double value) {
  if (!holds) throw Error(Errc::bad_argument, "Sampler", fmt::format("{} is {}", what, value));
}

/// The highest logit, the lowest id on ties; NaN never wins.
std::int32_t most_likely(std::span<const float> logits) {
  std::size_t best = logits.size();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    if (best == logits.size() || logits[i] > logits[best]) best = i;
  }
  if (best == logits.size()) throw Error(Errc::bad_input, "Sampler", "no logit is a number");
  return static_cast<std::int32_t>(best);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {
  require(options.temperature >= 0 && std::isfinite(options.temperature), "temperature",
          options.temperature);
  require(options.top_k >= 0, "top_k", static_cast<double>(options.top_k));
  require(options.top_p > 0 && options.top_p <= 1, "top_p", options.top_p);
  require(options.min_p >= 0 && options.min_p <= 1, "min_p", options.min_p);
  require(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty),
          "repetition_penalty", options.repetition_penalty);
  require(options.repetition_window >= 0, "repetition_window",
          static_cast<double>(options.repetition_window));
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history) {
  if (options_.temperature == 0 && options_.repetition_penalty == 1) return most_likely(logits);
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates_.emplace_back(logits[i], static_cast<std::int32_t>(i));
  }
  if (candidates_.empty()) throw Error(Errc::bad_input, "Sampler", "no logit is a number");

  if (options_.repetition_penalty != 1) {
    const auto window =
        std::min(history.size(), static_cast<std::size_t>(options_.repetition_window));
    std::vector<std::int32_t> seen(history.end() - static_cast<std::ptrdiff_t>(window),
                                   history.end());
    std::ranges::sort(seen);
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    for (auto& [logit, id] : candidates_) {
      if (std::ranges::binary_search(seen, id))
        logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }

  // Most likely first; equal logits by id.
  const auto before = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  if (options_.temperature == 0) return std::ranges::min_element(candidates_, before)->second;

  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < candidates_.size()) {
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(options_.top_k);
    std::partial_sort(candidates_.begin(), end, candidates_.end(), before);
    candidates_.erase(end, candidates_.end());
  } else {
    std::ranges::sort(candidates_, before);
  }

  const double peak = static_cast<double>(candidates_.front().first);
  std::vector<double> weights;
  double total = 0;
  for (const auto& [logit, id] : candidates_) {
    weights.push_back(std::exp((static_cast<double>(logit) - peak) / options_.temperature));
    total += weights.back();
  }
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size()) {
    // The most likely token always stays.
    if (count > 0 &&
        (kept >= options_.top_p * total || weights[count] < options_.min_p * weights[0]))
      break;
    kept += weights[count++];
  }
  // 53 random bits, the same on every standard library.
  double draw = static_cast<double>(random_() >> 11) * 0x1p-53 * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    if (draw < weights[i]) return candidates_[i].second;
    draw -= weights[i];
  }
  return candidates_[count - 1].second;
}

}  // namespace tenon::nn
