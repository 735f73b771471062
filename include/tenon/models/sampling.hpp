#pragma once

#include <tenon/io/file.hpp>
#include <tenon/nn/sampler.hpp>
#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::models {

/// Recommended sampling options of a model, and their source.
struct SamplingDefaults {
  nn::SamplerOptions sampler;
  std::string source;  ///< "general.sampling", "generation_config.json" or "tenon"
};

/// The publisher's recommendation: the keys general.sampling.* of a GGUF file (temp, top_k, top_p,
/// min_p, penalty_repeat, penalty_last_n, xtc_probability, xtc_threshold, mirostat, mirostat_tau,
/// mirostat_eta; `sequence`, another order, is not followed), else generation_config.json beside the
/// file (temperature, top_k, top_p, min_p, typical_p, repetition_penalty, do_sample); options that they
/// leave out are off. Without either: temperature 0.7, top-p 0.95, repetition penalty 1.1. Errors:
/// bad_hyperparameter for numbers out of range, bad_type, and those of reading JSON.
SamplingDefaults sampling_defaults(const io::File& file);

/// Where DRY's repetitions end unless something else is said: a line feed, a colon, a quotation mark, an asterisk.
inline constexpr std::string_view dry_breaker_texts[] = {"\n", ":", "\"", "*"};

/// nn::SamplerOptions::dry_breakers of texts: each token that has one of them in it, and the beginnings of
/// one at a token's end, with the tokens of the rest. Takes some milliseconds, for it looks at the
/// whole vocabulary. Errc::bad_argument for an empty text.
std::vector<std::vector<std::int32_t>> dry_breakers(
    const text::Tokenizer& tokenizer, std::span<const std::string_view> texts = dry_breaker_texts);

}  // namespace tenon::models
