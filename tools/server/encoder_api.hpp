// What a server of an encoder answers.
#pragma once

#include "server/routes.hpp"

#include <tenon/models/encoder.hpp>

#include <mutex>
#include <stop_token>
#include <string>

namespace tenon::tool {

/// An encoder for one thread at a time, which uses all of the machine.
struct ServedEncoder {
  models::SentenceEncoder encoder;
  std::string name;
  std::stop_source stop{};  ///< ends what it does
  std::mutex mutex{};
};

/// Adds POST /v1/embeddings, or /v1/rerank for a reranker, and /tokenize. The encoder must live as long as the routes.
void add_encoder_routes(Routes& routes, ServedEncoder& served);

}  // namespace tenon::tool
