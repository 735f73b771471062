#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace tenon::nn {

/// Sampling options, applied in this order: bias, repetition penalty, temperature, top-k, top-p,
/// min-p. Temperature 0 is greedy: the most probable token, the lowest id among equals.
struct SamplerOptions {
  double temperature = 0;
  std::int64_t top_k = 0;         ///< keeps the k most probable tokens; 0: all
  double top_p = 1;               ///< keeps the most probable tokens until their sum reaches this
  double min_p = 0;               ///< drops tokens below this times the highest probability
  double repetition_penalty = 1;  ///< divides positive, multiplies negative logits of seen tokens
  std::int64_t repetition_window = 64;  ///< how many of the last tokens count as seen
  /// Added to the logits of these tokens; minus infinity excludes a token. The last entry for a
  /// token applies.
  std::vector<std::pair<std::int32_t, float>> logit_bias{};
  std::uint64_t seed = 0;

  /// Whether sampling is greedy and independent of earlier tokens.
  bool is_greedy() const noexcept {
    return temperature == 0 && repetition_penalty == 1 && logit_bias.empty();
  }

  /// Errc::bad_argument for numbers out of range (temperature < 0, top_p outside (0, 1], ...) and for
  /// the bias of a token outside of [0, vocabulary).
  void check(std::int64_t vocabulary = std::numeric_limits<std::int64_t>::max()) const;
  /// The tokens that the penalty is for: those of the window, each once, in ascending order.
  std::vector<std::int32_t> seen(std::span<const std::int32_t> history) const;

  friend bool operator==(const SamplerOptions&, const SamplerOptions&) = default;
};

/// Samples tokens; the same options and logits give the same tokens on every machine.
class Sampler {
 public:
  /// Errors: those of SamplerOptions::check().
  explicit Sampler(const SamplerOptions& options);

  /// `logits`: one per token of the vocabulary; `history`: the tokens so far, oldest first.
  /// Errc::bad_input when there are no logits or all are NaN, Errc::bad_argument for a bias of a
  /// token outside the vocabulary, and for biases that exclude every token.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history);

 private:
  /// The logits with biases and the repetition penalty applied.
  std::span<const float> adjusted(std::span<const float> logits,
                                  std::span<const std::int32_t> history);
  /// Collects values >= `bound` in candidates_: the largest first, equal ones by id.
  void collect(std::span<const float> values, float bound);
  /// Draws one of the candidates, which hold weights, by `random` in [0, 1). `total`: the sum of
  /// weights that top-p refers to.
  std::int32_t drawn(double random, double total) const;
  std::int32_t drawn_of_all(double draw) const;

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<std::pair<float, std::int32_t>> candidates_;
  std::vector<float> weights_, adjusted_;  // members to reuse their memory
};

/// log(sum of exp(logit)): a logit minus this is its token's log-probability. NaNs are ignored.
double log_sum_exp(std::span<const float> logits);

/// Ids of the `count` largest logits (or of all, if fewer), the largest first, equal ones by id,
/// without NaNs.
std::vector<std::int32_t> top_k(std::span<const float> logits, std::int64_t count);

}  // namespace tenon::nn
