// What a server of a language model answers.
#pragma once

#include "server/answer_service.hpp"
#include "server/routes.hpp"
#include "server/served_model.hpp"

namespace tenon::tool {

/// Adds POST /v1/chat/completions, /v1/completions, /v1/responses, /tokenize and /detokenize. Both must live as long as the routes.
void add_language_routes(Routes& routes, const ServedModel& served, AnswerService& answers);

}  // namespace tenon::tool
