#pragma once

#include "recipe.hpp"

#include <string_view>

namespace tenon::text {

/// Reads a tokenizer.json; errors as Tokenizer::from_json_text.
Recipe read_tokenizer_json(std::string_view text, std::string_view where);

}  // namespace tenon::text
