// Texts and tokens, of language models and encoders.
#pragma once

#include "server/routes.hpp"

#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::tool {

/// Token ids in a request's array. Errors, which name it by `name`: bad_type; out_of_range for ids
/// that are none.
std::vector<std::int32_t> token_ids(const text::Tokenizer& tokenizer, const Json& ids,
                                    const std::string& name);

/// /tokenize and /detokenize, as llama.cpp's server has them. The tokenizer must live as long as the routes.
void add_token_routes(Routes& routes, const text::Tokenizer& tokenizer);

}  // namespace tenon::tool
