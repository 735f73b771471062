#pragma once

#include <tenon/io/file.hpp>
#include <tenon/nn/sampler.hpp>

#include <string>

namespace tenon::models {

/// Recommended sampling options of a model, and their source.
struct SamplingDefaults {
  nn::SamplerOptions sampler;
  std::string source;  ///< "general.sampling", "generation_config.json" or "tenon"
};

/// The publisher's recommendation: the keys general.sampling.* of a GGUF file (temp, top_k, top_p,
/// min_p, penalty_repeat, penalty_last_n), else generation_config.json beside the file; options
/// that they leave out are off. Without either: temperature 0.7, top-p 0.95, repetition penalty
/// 1.1. Errors: bad_hyperparameter for numbers out of range, bad_type, and those of reading JSON.
SamplingDefaults sampling_defaults(const io::File& file);

}  // namespace tenon::models
