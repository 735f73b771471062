// Texts and tokens, of language models and encoders.
#pragma once

#include "server/routes.hpp"

#include <tenon/text/tokenizer.hpp>

namespace tenon::tool {

/// /tokenize and /detokenize, as llama.cpp's server has them. The tokenizer must live as long as the routes.
void add_token_routes(Routes& routes, const text::Tokenizer& tokenizer);

}  // namespace tenon::tool
