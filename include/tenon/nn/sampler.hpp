#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace tenon::nn {

/// Sampling options, applied in this order: bias, penalties (repetition, then frequency and presence),
/// DRY, top-n-sigma, temperature, top-k, typical-p, top-p, min-p, XTC, adaptive-p. Each bound is for the
/// tokens that those before it left, with probabilities whose sum is 1, and leaves one at least. The
/// order is llama.cpp's but for the temperature, which is last there: `temperature_last` has it so.
/// docs/sampling.md has formulas and sources.
///
/// Temperature 0 is greedy: the most probable token after biases, penalties and DRY, the lowest id
/// among equals; what stands behind them has no effect then.
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

  /// Is subtracted from a token's logit for each time that it was seen in the window.
  double frequency_penalty = 0;
  double presence_penalty = 0;  ///< is subtracted once from the logit of a token that was seen

  /// DRY: a token that would continue a repetition of `n` tokens, n >= dry_allowed_length, loses
  /// dry_multiplier * dry_base^(n - dry_allowed_length). 0: off.
  double dry_multiplier = 0;
  double dry_base = 1.75;
  std::int64_t dry_allowed_length = 2;
  std::int64_t dry_window = 64;  ///< how many of the last tokens are searched for repetitions
  /// Sequences of tokens that no repetition reaches across; a token that is one by itself loses nothing.
  /// models::dry_breakers() makes them of texts.
  std::vector<std::vector<std::int32_t>> dry_breakers{};

  /// Keeps logits within so many standard deviations of the largest; at most 0: all.
  double top_n_sigma = 0;
  bool temperature_last = false;  ///< behind XTC, so that bounds see probabilities at temperature 1
  /// Above 0 the temperature is between temperature -+ this (at least 0), by the entropy H of the N
  /// tokens that are left: least + (most - least) * (H / log(N))^dynatemp_exponent. Applied as with
  /// `temperature_last`.
  double dynatemp_range = 0;
  double dynatemp_exponent = 1;
  /// Keeps the tokens whose -log(probability) is closest to its mean until their sum exceeds this; of
  /// equally close ones all. 1: off.
  double typical_p = 1;
  /// XTC: with this probability drops all tokens of at least the threshold but the least probable of
  /// them. A threshold above 0.5 turns it off.
  double xtc_probability = 0;
  double xtc_threshold = 0.1;
  /// adaptive-p: prefers tokens whose probability is close to this, corrected by what was drawn before;
  /// negative: off. About the last 1 / (1 - decay) tokens count. For use behind min_p.
  double adaptive_target = -1;
  double adaptive_decay = 0.9;
  /// Mirostat 1 or 2, in the place of all bounds and what follows them (with `temperature`, also where
  /// that would be last): as many tokens are kept as make the mean surprise mirostat_tau bits, learnt at
  /// the rate mirostat_eta. 0: off.
  int mirostat = 0;
  double mirostat_tau = 5;
  double mirostat_eta = 0.1;

  /// Whether the logits of tokens that were seen change.
  bool has_penalty() const noexcept {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0;
  }
  /// Whether sampling is greedy and independent of earlier tokens.
  bool is_greedy() const noexcept {
    return temperature == 0 && !has_penalty() && dry_multiplier == 0 && logit_bias.empty();
  }

  /// Errc::bad_argument for numbers out of range (temperature < 0, top_p outside (0, 1], ...) and for
  /// the bias of a token outside of [0, vocabulary).
  void check(std::int64_t vocabulary = std::numeric_limits<std::int64_t>::max()) const;
  /// The tokens that the penalties are for: those of the window, each once, in ascending order.
  std::vector<std::int32_t> seen(std::span<const std::int32_t> history) const;

  friend bool operator==(const SamplerOptions&, const SamplerOptions&) = default;
};

struct TokenProbability {
  std::int32_t token = 0;
  double probability = 0;
  friend bool operator==(const TokenProbability&, const TokenProbability&) = default;
};

/// Samples tokens; the same options and logits give the same tokens on every machine. Mirostat and
/// adaptive-p learn of each token that is drawn.
class Sampler {
 public:
  /// Errors: those of SamplerOptions::check().
  explicit Sampler(const SamplerOptions& options);

  /// `logits`: one per token of the vocabulary; `history`: the tokens so far, oldest first.
  /// Errc::bad_input when there are no logits or all are NaN, Errc::bad_argument for a bias of a
  /// token outside the vocabulary, and for biases that exclude every token.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history);

  /// The tokens that sample() may draw, each with its probability, in ascending order of tokens. Draws and
  /// learns nothing. Errors: those of sample().
  std::vector<TokenProbability> probabilities(std::span<const float> logits,
                                              std::span<const std::int32_t> history);

 private:
  /// What may be drawn: the tokens of candidates_, or all of them. The weights' sum is `total`.
  struct Kept {
    bool is_all = false;  // then weights_ has a weight for each token
    double total = 0;
  };

  /// A number in [0, 1).
  double uniform();
  /// The logits with biases, penalties and DRY applied.
  std::span<const float> adjusted(std::span<const float> logits,
                                  std::span<const std::int32_t> history);
  void penalise(std::span<const std::int32_t> history);
  std::span<const float> near_peak(std::span<const float> logits, float peak);
  /// `excludes`: whether XTC does. Weights are relative to `peak`, the largest logit.
  Kept keep(std::span<const float> logits, float peak, bool excludes);
  Kept keep_by_surprise(std::span<const float> logits, float peak);
  std::size_t mirostat_count(std::span<const float> logits);
  // Each returns the sum of the weights that are left.
  double keep_typical(std::span<const float> logits, double total);
  double keep_typical_candidates(std::span<const float> logits);
  double bounded(double total);
  double without_top(double total);
  double with_temperature(std::span<const float> logits, float peak, double total);
  double adapted(double total);
  /// Collects values >= `bound` in candidates_: the largest first, equal ones by id.
  void collect(std::span<const float> values, float bound);
  /// The `count` largest logits as candidates_, the largest first.
  void collect_largest(std::span<const float> logits, std::size_t count);
  /// Weights of candidates_ that are logits; their sum.
  double weigh_candidates(float peak, double temperature);
  /// All tokens that have a weight, in the order of their ids; the sum.
  double collect_all();
  /// Weights of candidates_ by values_, the logits in their place; their sum.
  double weigh_again(double temperature);
  std::size_t drawn(double draw) const;  ///< of candidates_
  std::int32_t drawn_of_all(double draw) const;
  void learn(std::size_t candidate, double total);

  SamplerOptions options_;
  std::mt19937_64 random_;
  double surprise_ = 0;                           // mirostat's bound in bits
  double adaptive_sum_ = 0, adaptive_count_ = 0;  // of probabilities of drawn tokens, fading
  std::vector<std::pair<float, std::int32_t>> candidates_;
  std::vector<float> weights_, adjusted_, near_, values_;  // members to reuse their memory
  std::vector<double> originals_;                          // adaptive-p: probabilities before it
};

/// log(sum of exp(logit)): a logit minus this is its token's log-probability. NaNs are ignored.
double log_sum_exp(std::span<const float> logits);

/// Ids of the `count` largest logits (or of all, if fewer), the largest first, equal ones by id,
/// without NaNs.
std::vector<std::int32_t> top_k(std::span<const float> logits, std::int64_t count);

}  // namespace tenon::nn
