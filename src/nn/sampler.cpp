#include "descending_order.hpp"
#include "dry.hpp"

#include <tenon/error.hpp>
#include <tenon/nn/sampler.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

// A vocabulary has up to some hundred thousand tokens, and few of them are ever drawn: most of them
// are only compared, or only add to a sum, in loops that compilers make vectors of.
namespace tenon::nn {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t block = 64;  // logits whose largest is found together
constexpr float least_weight = std::numeric_limits<float>::min();
constexpr double coldest = 1e-30;  // a temperature below it is this one

[[noreturn]] void refuse(std::string_view member, std::string message) {
  throw Error(Errc::bad_argument, fmt::format("SamplerOptions.{}", member), std::move(message));
}

void require(bool holds, std::string_view member, double value, std::string_view allowed) {
  if (!holds) refuse(member, fmt::format("is {}, allowed: {}", value, allowed));
}

void check_bias(std::int32_t id, std::int64_t vocabulary) {
  if (id >= 0 && id < vocabulary) return;
  refuse("logit_bias",
         fmt::format("has token {}, outside of the vocabulary of {}", id, vocabulary));
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

/// The sum of the values that reach a bound.
double sum_from(std::span<const float> values, float bound) {
  constexpr std::size_t lanes = 16;
  double parts[lanes] = {};
  std::size_t i = 0;
  const auto counted = [bound](float value) {
    return static_cast<double>(value >= bound ? value : 0.0f);
  };
  for (; i + lanes <= values.size(); i += lanes) {
    for (std::size_t j = 0; j < lanes; ++j) parts[j] += counted(values[i + j]);
  }
  for (; i < values.size(); ++i) parts[0] += counted(values[i]);
  return std::accumulate(std::begin(parts), std::end(parts), 0.0);
}

/// A number that at least `count` of the values reach, and not many more: of the largest values of
/// short pieces, the one that `count` of them reach. `maxima` is memory to work in.
float reached_by(std::span<const float> values, std::size_t count, std::vector<float>& maxima) {
  const std::size_t piece = std::clamp<std::size_t>(values.size() / (4 * count), 1, block);
  maxima.clear();
  for (std::size_t i = 0; i < values.size(); i += piece) {
    maxima.push_back(largest(values.subspan(i, std::min(piece, values.size() - i))));
  }
  const auto last = maxima.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::ranges::nth_element(maxima, last, std::greater());
  return *last;
}

double weight_of(std::span<const std::pair<float, std::int32_t>> candidates) {
  double total = 0;
  for (const auto& [weight, id] : candidates) total += static_cast<double>(weight);
  return total;
}

/// The tokens of a vocabulary, or of some of it, that typical_p keeps. After Meister et al. (2023), Locally Typical Sampling,
/// https://arxiv.org/abs/2202.00666: -log(probability) is the logit but for a factor and a constant, so that its distance from
/// the entropy is the logit's distance from the mean logit.
class Typical {
 public:
  Typical(std::span<const float> logits, std::span<const float> weights,
          const SamplerOptions& options, double total) {
    const double temperature = options.temperature_last || options.dynatemp_range > 0
                                   ? 1
                                   : std::max(options.temperature, coldest);
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (weights[i] > 0) sum += static_cast<double>(weights[i]) * static_cast<double>(logits[i]);
    }
    mean_ = sum / total;
    // The weights by distance in steps of 1/16; only those of the step that reaches the sum are put in order.
    constexpr double steps = 16;
    std::vector<double> parts(static_cast<std::size_t>(90 * steps), 0.0);
    const auto step_of = [&](float logit) {
      const double step = distance(logit) / temperature * steps;
      return static_cast<std::size_t>(std::min(step, static_cast<double>(parts.size() - 1)));
    };
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (weights[i] > 0) parts[step_of(logits[i])] += static_cast<double>(weights[i]);
    }
    double kept = 0;
    std::size_t last = 0;
    while (last < parts.size() && kept + parts[last] <= options.typical_p * total) {
      kept += parts[last++];
    }
    std::vector<std::pair<double, double>> ordered;  // distance, weight
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (weights[i] > 0 && step_of(logits[i]) == last) {
        ordered.emplace_back(distance(logits[i]), static_cast<double>(weights[i]));
      }
    }
    std::ranges::sort(ordered);
    for (const auto& [distance, weight] : ordered) {
      farthest_ = distance;
      if ((kept += weight) > options.typical_p * total) return;
    }
    farthest_ = std::numeric_limits<double>::infinity();
  }

  bool keeps(float logit) const { return distance(logit) <= farthest_; }

 private:
  double distance(float logit) const { return std::abs(static_cast<double>(logit) - mean_); }

  double mean_ = 0, farthest_ = 0;
};

/// Errc::bad_argument for biases that exclude every token.
void check_peak(float peak, const SamplerOptions& options) {
  if (peak != minus_infinity || options.logit_bias.empty()) return;
  refuse("logit_bias", "leaves no token that may be drawn");
}

std::vector<std::int32_t> sorted_window(const SamplerOptions& options,
                                        std::span<const std::int32_t> history) {
  const auto size = std::min(history.size(), static_cast<std::size_t>(options.repetition_window));
  const auto recent = history.last(size);
  std::vector<std::int32_t> window(recent.begin(), recent.end());
  std::ranges::sort(window);
  return window;
}

}  // namespace

void SamplerOptions::check(std::int64_t vocabulary) const {
  require(temperature >= 0 && std::isfinite(temperature), "temperature", temperature, "0 and more");
  require(top_k >= 0, "top_k", static_cast<double>(top_k), "0 and more");
  require(top_p > 0 && top_p <= 1, "top_p", top_p, "more than 0, up to 1");
  require(min_p >= 0 && min_p <= 1, "min_p", min_p, "0 to 1");
  require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty",
          repetition_penalty, "more than 0");
  require(repetition_window >= 0, "repetition_window", static_cast<double>(repetition_window),
          "0 and more");
  require(std::isfinite(frequency_penalty), "frequency_penalty", frequency_penalty,
          "finite numbers");
  require(std::isfinite(presence_penalty), "presence_penalty", presence_penalty, "finite numbers");
  require(dry_multiplier >= 0 && std::isfinite(dry_multiplier), "dry_multiplier", dry_multiplier,
          "0 and more");
  require(dry_base >= 1 && std::isfinite(dry_base), "dry_base", dry_base, "1 and more");
  require(dry_allowed_length >= 0, "dry_allowed_length", static_cast<double>(dry_allowed_length),
          "0 and more");
  require(dry_window >= 0, "dry_window", static_cast<double>(dry_window), "0 and more");
  for (const std::vector<std::int32_t>& breaker : dry_breakers) {
    if (breaker.empty()) refuse("dry_breakers", "has one without tokens");
  }
  require(std::isfinite(top_n_sigma), "top_n_sigma", top_n_sigma, "finite numbers");
  require(dynatemp_range >= 0 && std::isfinite(dynatemp_range), "dynatemp_range", dynatemp_range,
          "0 and more");
  require(dynatemp_exponent >= 0 && std::isfinite(dynatemp_exponent), "dynatemp_exponent",
          dynatemp_exponent, "0 and more");
  require(typical_p > 0 && typical_p <= 1, "typical_p", typical_p, "more than 0, up to 1");
  require(xtc_probability >= 0 && xtc_probability <= 1, "xtc_probability", xtc_probability,
          "0 to 1");
  require(xtc_threshold >= 0 && xtc_threshold <= 1, "xtc_threshold", xtc_threshold, "0 to 1");
  require(adaptive_target <= 1, "adaptive_target", adaptive_target, "up to 1");
  require(adaptive_decay >= 0 && adaptive_decay <= 0.99, "adaptive_decay", adaptive_decay,
          "0 to 0.99");
  require(mirostat >= 0 && mirostat <= 2, "mirostat", mirostat, "0, 1, 2");
  require(mirostat_tau >= 0 && std::isfinite(mirostat_tau), "mirostat_tau", mirostat_tau,
          "0 and more");
  require(mirostat_eta >= 0 && std::isfinite(mirostat_eta), "mirostat_eta", mirostat_eta,
          "0 and more");
  for (const auto& [id, bias] : logit_bias) {
    check_bias(id, vocabulary);
    if (!(bias < std::numeric_limits<float>::infinity()))
      refuse("logit_bias", fmt::format("of token {} is {}", id, bias));
  }
}

std::vector<std::int32_t> SamplerOptions::seen(std::span<const std::int32_t> history) const {
  std::vector<std::int32_t> seen = sorted_window(*this, history);
  seen.erase(std::ranges::unique(seen).begin(), seen.end());
  return seen;
}

Sampler::Sampler(const SamplerOptions& options)
    : options_(options),
      random_(options.seed),
      surprise_(2 * options.mirostat_tau),
      adaptive_sum_(options.adaptive_target / (1 - options.adaptive_decay)),
      adaptive_count_(1 / (1 - options.adaptive_decay)) {
  options.check();
  std::ranges::sort(options_.dry_breakers);
}

double Sampler::uniform() {
  // 53 random bits, the same on every standard library.
  return static_cast<double>(random_() >> 11) * 0x1p-53;
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history) {
  logits = adjusted(logits, history);
  const float peak = largest(logits);
  const std::int32_t best = argmax(logits, peak);
  check_peak(peak, options_);
  if (options_.temperature == 0 || std::isinf(peak)) return best;

  const double random = uniform();
  const bool excludes = options_.xtc_probability > 0 && options_.mirostat == 0 &&
                        uniform() < options_.xtc_probability;
  const Kept kept = keep(logits, peak, excludes);
  if (kept.is_all) return drawn_of_all(random * kept.total);
  const std::size_t candidate = drawn(random * kept.total);
  learn(candidate, kept.total);
  return candidates_[candidate].second;
}

std::vector<TokenProbability> Sampler::probabilities(std::span<const float> logits,
                                                     std::span<const std::int32_t> history) {
  logits = adjusted(logits, history);
  const float peak = largest(logits);
  const std::int32_t best = argmax(logits, peak);
  check_peak(peak, options_);
  if (options_.temperature == 0 || std::isinf(peak)) return {{best, 1}};

  std::vector<double> found(logits.size(), 0.0);
  const double xtc = options_.mirostat == 0 ? options_.xtc_probability : 0;
  for (const bool excludes : {false, true}) {
    const double part = excludes ? xtc : 1 - xtc;
    if (part == 0) continue;
    Kept kept = keep(logits, peak, excludes);
    if (kept.is_all) kept.total = collect_all();
    for (const auto& [weight, id] : candidates_) {
      found[static_cast<std::size_t>(id)] += part * (static_cast<double>(weight) / kept.total);
    }
  }
  std::vector<TokenProbability> result;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] > 0) result.push_back({static_cast<std::int32_t>(i), found[i]});
  }
  return result;
}

std::span<const float> Sampler::adjusted(std::span<const float> logits,
                                         std::span<const std::int32_t> history) {
  const bool is_dry = options_.dry_multiplier > 0;
  if (options_.logit_bias.empty() && !options_.has_penalty() && !is_dry) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : options_.logit_bias) {
    const auto i = static_cast<std::size_t>(id);
    check_bias(id, std::ssize(logits));
    adjusted_[i] = logits[i] + bias;
  }
  if (options_.has_penalty()) penalise(history);
  if (is_dry) {
    for (const auto& [id, length] : continuations(options_, history)) {
      if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
      const auto excess = static_cast<double>(length - options_.dry_allowed_length);
      const double penalty = options_.dry_multiplier * std::pow(options_.dry_base, excess);
      constexpr double most = std::numeric_limits<float>::max();
      adjusted_[static_cast<std::size_t>(id)] -= static_cast<float>(std::min(penalty, most));
    }
  }
  return adjusted_;
}

void Sampler::penalise(std::span<const std::int32_t> history) {
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  const auto frequency = static_cast<float>(options_.frequency_penalty);
  const auto presence = static_cast<float>(options_.presence_penalty);
  std::vector<std::int32_t> window = sorted_window(options_, history);
  for (auto first = window.begin(); first != window.end();) {
    const auto next =
        std::find_if(first, window.end(), [&](std::int32_t id) { return id != *first; });
    const auto count = static_cast<float>(next - first);
    if (*first >= 0 && static_cast<std::size_t>(*first) < adjusted_.size()) {
      float& logit = adjusted_[static_cast<std::size_t>(*first)];
      logit = logit > 0 ? logit / penalty : logit * penalty;
      logit -= count * frequency + presence;
    }
    first = next;
  }
}

Sampler::Kept Sampler::keep(std::span<const float> logits, float peak, bool excludes) {
  if (options_.mirostat != 0) return keep_by_surprise(logits, peak);
  if (options_.top_n_sigma > 0) logits = near_peak(logits, peak);
  const bool is_last = options_.temperature_last || options_.dynatemp_range > 0;
  const bool is_bounded = options_.top_p < 1 || options_.min_p > 0;
  const double temperature = is_last ? 1 : options_.temperature;
  double total = 0;
  const auto top_k = static_cast<std::size_t>(options_.top_k);
  if (top_k > 0 && top_k < logits.size()) {
    collect_largest(logits, top_k);
    total = weigh_candidates(peak, temperature);
    if (options_.typical_p < 1) total = keep_typical_candidates(logits);
    total = bounded(total);
  } else {
    weights_.resize(logits.size());
    weigh(logits, peak, static_cast<float>(std::min(1 / temperature, 1e38)), weights_);
    total = sum(weights_);
    if (options_.typical_p < 1) total = keep_typical(logits, total);
    if (!is_bounded && !excludes && !is_last && options_.adaptive_target < 0) return {true, total};
    if (!is_bounded) {
      total = collect_all();
    } else {
      // Those that may be drawn are few as a rule: tokens are looked for below lower and lower bounds
      // until their weights are enough.
      const float top = options_.typical_p < 1 ? largest(weights_) : 1;
      const float least = std::max(static_cast<float>(options_.min_p) * top, least_weight);
      for (float bound = 1e-2f * top;; bound = bound > 1e-9f * top ? bound * 1e-2f : 0) {
        const bool is_last_bound = bound <= least;
        // Sums in another order differ by less than this.
        const double wanted = options_.top_p * total * (1 - 1e-6);
        if (!is_last_bound && sum_from(weights_, std::max(bound, least)) < wanted) continue;
        collect(weights_, std::max(bound, least));
        double kept = 0;
        for (const auto& [weight, id] : candidates_) kept += static_cast<double>(weight);
        if (kept >= options_.top_p * total || is_last_bound) break;
      }
      total = bounded(total);
    }
  }
  if (excludes) total = without_top(total);
  if (is_last) total = with_temperature(logits, peak, total);
  if (options_.adaptive_target >= 0) total = adapted(total);
  return {false, total};
}

/// Tang et al. (2024), https://arxiv.org/abs/2411.07641: standard deviations of all logits above -inf.
std::span<const float> Sampler::near_peak(std::span<const float> logits, float peak) {
  double count = 0, first = 0, second = 0;
  for (const float logit : logits) {
    const bool counts = logit > minus_infinity;
    const double distance = counts ? static_cast<double>(logit) - static_cast<double>(peak) : 0;
    count += counts ? 1 : 0;
    first += distance;
    second += distance * distance;
  }
  const double mean = first / count;
  const double deviation = std::sqrt(std::max(second / count - mean * mean, 0.0));
  const auto bound =
      static_cast<float>(static_cast<double>(peak) - options_.top_n_sigma * deviation);
  near_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    near_[i] = logits[i] >= bound ? logits[i] : minus_infinity;
  }
  return near_;
}

Sampler::Kept Sampler::keep_by_surprise(std::span<const float> logits, float peak) {
  const auto weigh_all = [&] {
    weights_.resize(logits.size());
    const double factor = std::min(1 / options_.temperature, 1e38);
    weigh(logits, peak, static_cast<float>(factor), weights_);
  };
  if (options_.mirostat == 1) {
    const std::size_t count = mirostat_count(logits);
    if (count < logits.size()) {
      collect_largest(logits, count);
      return {false, weigh_candidates(peak, options_.temperature)};
    }
    weigh_all();
    return {false, collect_all()};
  }
  weigh_all();
  const double least = std::exp2(-surprise_) * sum(weights_);
  // The most probable one stays.
  collect(weights_, std::clamp(static_cast<float>(least), least_weight, 1.0f));
  return {false, weight_of(candidates_)};
}

std::size_t Sampler::mirostat_count(std::span<const float> logits) {
  constexpr std::size_t estimated_of = 100;
  collect_largest(logits, std::min(estimated_of, logits.size()));
  // The exponent of Zipf's law, by least squares of its logarithms.
  double products = 0, squares = 0;
  for (std::size_t i = 0; i + 1 < candidates_.size(); ++i) {
    if (candidates_[i + 1].first == minus_infinity) break;
    const double rank = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double step =
        static_cast<double>(candidates_[i].first) - static_cast<double>(candidates_[i + 1].first);
    products += rank * step / options_.temperature;
    squares += rank * rank;
  }
  const double exponent = products / squares, excess = exponent - 1;
  const double all = static_cast<double>(logits.size());
  const double count =
      std::pow(excess * std::exp2(surprise_) / (1 - std::pow(all, -excess)), 1 / exponent);
  if (!(count >= 1)) return 1;
  return count < all ? static_cast<std::size_t>(count) : logits.size();
}

double Sampler::keep_typical(std::span<const float> logits, double total) {
  const Typical typical(logits, weights_, options_, total);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!typical.keeps(logits[i])) weights_[i] = 0;
  }
  return sum(weights_);
}

double Sampler::keep_typical_candidates(std::span<const float> logits) {
  values_.clear();
  weights_.clear();
  for (const auto& [weight, id] : candidates_) {
    values_.push_back(logits[static_cast<std::size_t>(id)]);
    weights_.push_back(weight);
  }
  const Typical typical(values_, weights_, options_, sum(weights_));
  std::erase_if(candidates_, [&](const auto& candidate) {
    return !typical.keeps(logits[static_cast<std::size_t>(candidate.second)]);
  });
  return weight_of(candidates_);
}

double Sampler::bounded(double total) {
  const auto weight = [&](std::size_t i) { return static_cast<double>(candidates_[i].first); };
  double kept = 0;
  std::size_t count = 0;
  while (count < candidates_.size()) {
    // The most likely token always stays.
    if (count > 0 && (kept >= options_.top_p * total || weight(count) < options_.min_p * weight(0)))
      break;
    kept += weight(count++);
  }
  candidates_.resize(count);
  return kept;
}

double Sampler::without_top(double total) {
  if (options_.xtc_threshold > 0.5) return total;
  const double bound = std::max(options_.xtc_threshold * total, static_cast<double>(least_weight));
  const auto is_top = [&](const auto& candidate) {
    return static_cast<double>(candidate.first) >= bound;
  };
  const std::pair<float, std::int32_t>* last = nullptr;
  for (const auto& candidate : candidates_) {
    if (!is_top(candidate)) continue;
    const bool is_less = last == nullptr || candidate.first < last->first ||
                         (candidate.first == last->first && candidate.second > last->second);
    if (is_less) last = &candidate;
  }
  if (last == nullptr) return total;
  const std::int32_t stays = last->second;
  std::erase_if(candidates_, [&](const auto& candidate) {
    return is_top(candidate) && candidate.second != stays;
  });
  return weight_of(candidates_);
}

double Sampler::with_temperature(std::span<const float> logits, float peak, double total) {
  values_.clear();
  double mean = 0;  // of the logarithms of weights
  for (const auto& [weight, id] : candidates_) {
    const float logit = logits[static_cast<std::size_t>(id)];
    values_.push_back(logit);
    if (weight > 0) mean += static_cast<double>(weight) * static_cast<double>(logit - peak);
  }
  double temperature = options_.temperature;
  if (options_.dynatemp_range > 0 && candidates_.size() > 1) {
    const double entropy = std::log(total) - mean / total;
    const double part = std::max(entropy, 0.0) / std::log(static_cast<double>(candidates_.size()));
    const double least = std::max(temperature - options_.dynatemp_range, 0.0);
    const double most = temperature + options_.dynatemp_range;
    temperature = least + (most - least) * std::pow(part, options_.dynatemp_exponent);
  }
  return weigh_again(temperature);
}

/// "adaptive-p" of llama.cpp (2025), https://github.com/ggml-org/llama.cpp/pull/17927, with its constants.
double Sampler::adapted(double total) {
  constexpr double width = 0.3, highest = 5, slope = 10;
  const double target =
      std::clamp(2 * options_.adaptive_target - adaptive_sum_ / adaptive_count_, 0.0, 1.0);
  values_.clear();
  originals_.clear();
  for (const auto& [weight, id] : candidates_) {
    const double probability = static_cast<double>(weight) / total;
    const double distance = std::abs(probability - target) / width;
    originals_.push_back(probability);
    values_.push_back(static_cast<float>(highest - slope * distance * distance / (1 + distance)));
  }
  return weigh_again(1);
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
  sort_descending(candidates_);
}

void Sampler::collect_largest(std::span<const float> logits, std::size_t count) {
  // Those at -inf, which may be most of them, are none.
  constexpr float lowest = std::numeric_limits<float>::lowest();
  collect(logits, std::max(reached_by(logits, count, weights_), lowest));
  candidates_.resize(std::min(count, candidates_.size()));
}

double Sampler::weigh_candidates(float peak, double temperature) {
  double total = 0;
  for (auto& [weight, id] : candidates_) {
    weight = static_cast<float>(std::exp(static_cast<double>(weight - peak) / temperature));
    total += static_cast<double>(weight);
  }
  return total;
}

double Sampler::collect_all() {
  candidates_.clear();
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0) candidates_.emplace_back(weights_[i], static_cast<std::int32_t>(i));
  }
  return weight_of(candidates_);
}

double Sampler::weigh_again(double temperature) {
  weights_.resize(values_.size());
  const double factor = std::min(1 / std::max(temperature, coldest), 1e38);
  weigh(values_, largest(values_), static_cast<float>(factor), weights_);
  for (std::size_t i = 0; i < candidates_.size(); ++i) candidates_[i].first = weights_[i];
  return weight_of(candidates_);
}

std::size_t Sampler::drawn(double draw) const {
  for (std::size_t i = 0; i + 1 < candidates_.size(); ++i) {
    const auto weight = static_cast<double>(candidates_[i].first);
    if (draw < weight) return i;
    draw -= weight;
  }
  return candidates_.size() - 1;
}

void Sampler::learn(std::size_t candidate, double total) {
  if (options_.mirostat != 0) {
    const double probability = static_cast<double>(candidates_[candidate].first) / total;
    surprise_ -= options_.mirostat_eta * (-std::log2(probability) - options_.mirostat_tau);
  } else if (options_.adaptive_target >= 0) {
    adaptive_sum_ = originals_[candidate] + options_.adaptive_decay * adaptive_sum_;
    adaptive_count_ = 1 + options_.adaptive_decay * adaptive_count_;
  }
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
