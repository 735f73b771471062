// What single families of language models have and others have not, beyond the facts of architectures.hpp. The table of
// architectures names these functions.
#pragma once

#include "hyperparameters.hpp"
#include "models/architectures.hpp"

#include <tenon/models/decoder.hpp>

namespace tenon::models {

/// A DecoderConfig that is being read from a file.
struct DecoderReading {
  const io::File& file;
  const Hyperparameters& values;
  const Architecture& architecture;
  DecoderConfig& config;
};

/// Refuses values of a head that are not as many as its keys.
void require_size_of_keys(const Hyperparameters& values, std::string_view key, std::int64_t size);
/// The period of layers without a window, which some files have as a list of those that have one.
std::int64_t read_global_every(const DecoderReading& from);
/// Which layers have experts: those that have a router.
void read_expert_layers(const DecoderReading& from);

// Architecture::assume
void assume_gemma2(const DecoderReading& from);
void assume_grok(const DecoderReading& from);
void assume_jais(const DecoderReading& from);
void assume_minicpm(const DecoderReading& from);

// Architecture::read_parts
void read_deci_parts(const DecoderReading& from);
void read_gemma4_parts(const DecoderReading& from);

// Architecture::read_windows
void read_gemma4_windows(const DecoderReading& from);
void read_llama4_chunks(const DecoderReading& from);
void read_modern_bert_windows(const DecoderReading& from);

// Architecture::read_more
void read_apertus(const DecoderReading& from);
void read_gemma3n(const DecoderReading& from);
void read_gemma4(const DecoderReading& from);
void read_modern_bert(const DecoderReading& from);

}  // namespace tenon::models
