// What commands share that run encoders of texts.
#pragma once

#include "tool.hpp"

#include <tenon/models/encoder.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// `weights`: the name of a block type, or empty. Errc::bad_argument for another word.
models::EncoderOptions encoder_options(const Tool& tool, const char* command,
                                       std::string_view weights);

/// A text's lines without their ends.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace tenon::tool
