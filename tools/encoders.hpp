// What commands share that run encoders of texts.
#pragma once

#include "tool.hpp"

#include <tenon/models/encoder.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// `weights`: the name of a block type, or empty. Errc::bad_argument for another word.
models::EncoderOptions encoder_options(const Tool& tool, const char* command,
                                       std::string_view weights);

/// Whether a model's file or folder is one of an encoder, which makes embeddings or scores and no text.
bool is_encoder(const std::string& path);

/// The places of the `most` largest scores at most, the best first, of equal ones the first; what is no number is the
/// worst.
std::vector<std::size_t> best_first(std::span<const float> scores, std::int64_t most);

/// A text's lines without their ends.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace tenon::tool
