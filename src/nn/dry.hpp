// DRY ("don't repeat yourself"), after p-e-w (2024), https://github.com/oobabooga/text-generation-webui/pull/5677: what
// would continue a repetition.
#pragma once

#include <tenon/nn/sampler.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::nn {

struct Continuation {
  std::int32_t token = 0;
  std::int64_t length = 0;  ///< of the longest repetition that the token would continue
};

/// The tokens that would continue a repetition of at least `dry_allowed_length` tokens, in ascending order, without those
/// that are a breaker by themselves. A repetition is a sequence at the end of the last `dry_window` tokens that they have
/// before, too; it begins behind the last breaker. Takes time in proportion to the window.
std::vector<Continuation> continuations(const SamplerOptions& options,
                                        std::span<const std::int32_t> history);

}  // namespace tenon::nn
