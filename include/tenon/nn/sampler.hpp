#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace tenon::nn {

/// How the next token is drawn. Steps in this order: bias, repetition penalty, temperature, top-k,
/// top-p, min-p, draw. Temperature 0 is greedy: the most likely token, the lowest id on ties.
struct SamplerOptions {
  double temperature = 0;
  std::int64_t top_k = 0;         ///< 0: all
  double top_p = 1;               ///< keeps the most likely tokens until their sum reaches this
  double min_p = 0;               ///< drops tokens less likely than this times the most likely one
  double repetition_penalty = 1;  ///< divides positive, multiplies negative logits of seen tokens
  std::int64_t repetition_window = 64;  ///< how many of the last tokens count as seen
  /// Added to the logits of these tokens; minus infinity: never drawn. The last one for a token
  /// counts.
  std::vector<std::pair<std::int32_t, float>> logit_bias{};
  std::uint64_t seed = 0;

  /// Whether the most likely token is drawn whatever came before.
  bool is_greedy() const noexcept {
    return temperature == 0 && repetition_penalty == 1 && logit_bias.empty();
  }
};

/// Draws tokens; the same options and logits give the same tokens on every machine.
class Sampler {
 public:
  /// Errc::bad_argument for numbers out of range (temperature < 0, top_p outside (0, 1], ...).
  explicit Sampler(const SamplerOptions& options);

  /// `logits`: one per token of the vocabulary; `history`: the tokens so far, oldest first.
  /// Errc::bad_input when there are no logits or none is a number, Errc::bad_argument when a bias
  /// is of a token beyond them.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history);

 private:
  /// With biases and the repetition penalty.
  std::span<const float> adjusted(std::span<const float> logits,
                                  std::span<const std::int32_t> history);
  /// What reaches `bound`, to candidates_: the largest first, equal ones by id.
  void collect(std::span<const float> values, float bound);
  /// Of the candidates, which hold weights, by `random` in [0, 1). `total`: the weight of all that
  /// top-p counts.
  std::int32_t drawn(double random, double total) const;
  std::int32_t drawn_of_all(double draw) const;

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<std::pair<float, std::int32_t>> candidates_;
  std::vector<float> weights_, adjusted_;  // kept for their memory
};

/// log(sum of exp(logit)): a logit less this is its token's log-probability. NaN counts as nothing.
double log_sum_exp(std::span<const float> logits);

/// The ids of the `count` largest logits, or of all, the largest first, equal ones by id. NaN are
/// left out.
std::vector<std::int32_t> top_k(std::span<const float> logits, std::int64_t count);

}  // namespace tenon::nn
