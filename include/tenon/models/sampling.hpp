#pragma once

#include <tenon/io/file.hpp>
#include <tenon/nn/sampler.hpp>

#include <string>

namespace tenon::models {

/// How tokens of a model should be drawn, and who says so.
struct SamplingDefaults {
  nn::SamplerOptions sampler;
  std::string source;  ///< "general.sampling", "generation_config.json" or "tenon"
};

/// What a model's publisher advises: the keys general.sampling.* of a GGUF file (temp, top_k,
/// top_p, min_p, penalty_repeat, penalty_last_n), else generation_config.json beside the file; what
/// they leave out is off. Where neither says anything: temperature 0.7, top-p 0.95, a repetition
/// penalty of 1.1. Errors: bad_hyperparameter for numbers out of range, bad_type, and those of
/// reading JSON.
SamplingDefaults sampling_defaults(const io::File& file);

}  // namespace tenon::models
