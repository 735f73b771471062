#pragma once

#include <tenon/fields.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/nn/sampler.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>

namespace tenon::nn {

// Sampling as a part of a program: what nn::Sampler does on the host, of existing ops, as far as
// check_in_program() lets options pass.

/// SamplerOptions as values of a program, so that one program serves all of them. A number is for
/// all rows, f32[], or for each, f32[B, 1].
template <class T = Tensor>
struct SamplingInputs {
  T key;  ///< u32[2]: the seed, as random_key() has it
  T temperature, top_p, min_p;
  T top_k;  ///< i32; 0: all
  T repetition_penalty;
  T seen;    ///< i32[B, W]: the tokens that the penalty is for, in any order and number
  T biased;  ///< i32[B, N]: tokens, each once
  T bias;    ///< f32[B, N]
  TENON_FIELDS(key, temperature, top_p, min_p, top_k, repetition_penalty, seen, biased, bias)
};

/// Errc::unsupported, with its name, for an option that a program does not have and that would matter:
/// frequency and presence penalty, DRY, top_n_sigma, temperature_last, dynatemp_range, typical_p, XTC,
/// adaptive-p and Mirostat. `where` is the error's place.
void check_in_program(const SamplerOptions& options, const char* where = "sampling in a program");

/// The values for one row: [1, W] and [1, N]. W is 0 without a penalty, else a power of two of at
/// least 64. Errors: those of Sampler and its sample(), and of check_in_program().
SamplingInputs<HostBuffer> sampling_inputs(const SamplerOptions& options,
                                           std::span<const std::int32_t> history,
                                           std::int64_t vocabulary);

/// `seen` alone: all of them that depends on the history.
HostBuffer seen_tokens(const SamplerOptions& options, std::span<const std::int32_t> history,
                       std::int64_t vocabulary);

/// So many of the most probable tokens are put in order; see KeptTokens::is_known.
inline constexpr std::int64_t sampling_candidates = 512;

/// What may be drawn: the first `count` candidates, or, in rows that nothing bounds, all tokens, each
/// with its weight, a relative probability.
struct KeptTokens {
  Tensor tokens;  ///< i32[B, K]: the candidates, the most probable first, of equal ones the lowest
  Tensor sums;    ///< f32[B, K]: running sums of their weights, of which the first is 1
  Tensor count;   ///< i32[B, 1]
  Tensor all;     ///< f32[B, V]: the weight of each token
  Tensor is_all;  ///< bool[B]
  /// bool[B]: false where the candidates do not tell, and the rest means nothing: top_k is more than
  /// they are, or none of them is out of the bounds. And where a logit is NaN, or none above -inf.
  Tensor is_known;
};

/// What Sampler keeps of logits f32[B, V], but for rounding: sums are in f32. With V candidates all is
/// known that logits allow. Errc::bad_argument for other types, unknown sizes, no token or candidate.
KeptTokens kept_tokens(const Tensor& logits, const SamplingInputs<Tensor>& options,
                       std::int64_t candidates = sampling_candidates,
                       const std::source_location& where = std::source_location::current());

/// One index for each row of weights >= 0, f32[B, N], of which one is above 0: i32[B], each with the
/// probability weight / sum, to about 2^-22. `uniform`: f32[B, 1] in [0, 1). Sizes are known.
Tensor draw_index(const Tensor& weights, const Tensor& uniform,
                  const std::source_location& where = std::source_location::current());

template <class T = Tensor>
struct SampledToken {
  T token;     ///< i32[B]
  T is_known;  ///< bool[B]: as in KeptTokens; where it is false, the token means nothing
  TENON_FIELDS(token, is_known)
};

/// Draws one of the kept tokens of each row. The random numbers are those of `counter`, one integer,
/// under the key: other ones than a Sampler's.
SampledToken<Tensor> sample_token(
    const Tensor& logits, const Tensor& counter, const SamplingInputs<Tensor>& options,
    std::int64_t candidates = sampling_candidates,
    const std::source_location& where = std::source_location::current());

}  // namespace tenon::nn
