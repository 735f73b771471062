#include "server/encoder_api.hpp"

#include "base/base64.hpp"
#include "encoders.hpp"
#include "server/token_api.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

/// As many as OpenAI's API takes.
constexpr std::size_t max_texts = 2048;

void check_count(std::string_view member, std::size_t texts) {
  if (texts == 0) throw MemberError(Errc::bad_argument, std::string(member), "has no texts");
  if (texts > max_texts) {
    throw MemberError(Errc::limit_exceeded, std::string(member),
                      fmt::format("has {} texts; there can be {}", texts, max_texts));
  }
}

/// Of all texts. Errors: bad_input for one without tokens; limit_exceeded for one that would lose its end, which the client
/// would not see.
std::int64_t count_tokens(const models::SentenceEncoder& encoder,
                          std::span<const std::string> texts, bool is_list) {
  const auto member = [&](std::size_t i) {
    return is_list ? fmt::format("input[{}]", i) : "input";
  };
  const std::int64_t most = encoder.config().max_tokens;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::int64_t count = std::ssize(encoder.tokenizer().encode(texts[i]));
    if (count == 0) throw MemberError(Errc::bad_input, member(i), "has no tokens");
    if (count > most) {
      throw MemberError(Errc::limit_exceeded, member(i),
                        fmt::format("has {} tokens, and the model reads {}", count, most));
    }
    all += count;
  }
  return all;
}

Json usage(std::int64_t tokens) { return {{"prompt_tokens", tokens}, {"total_tokens", tokens}}; }

/// An embedding as OpenAI's API has it: numbers, or the bytes of f32, little endian, in base64.
Json encoded(std::span<const float> row, bool in_base64) {
  if (!in_base64) return std::vector<float>(row.begin(), row.end());
  const auto bytes = std::as_bytes(row);
  return to_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Json embed(ServedEncoder& served, const RequestFields& fields) {
  const std::vector<std::string> texts = fields.texts("input");
  check_count("input", texts.size());
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    throw MemberError(Errc::unsupported, "encoding_format",
                      fmt::format("is '{}', not float or base64", format));
  }
  const std::int64_t width = served.encoder.embedding_width();
  fields.refuse_other_than("dimensions", width);
  const std::scoped_lock lock(served.mutex);
  const std::int64_t tokens = count_tokens(served.encoder, texts, fields.at("input").is_array());
  const HostBuffer made = served.encoder.embed(texts, {.cancel = served.stop.get_token()});
  const auto values = made.values<float>();
  Json data = Json::array();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto columns = static_cast<std::size_t>(width);
    data.push_back(
        {{"object", "embedding"},
         {"index", i},
         {"embedding", encoded(values.subspan(i * columns, columns), format == "base64")}});
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", served.name},
          {"usage", usage(tokens)}};
}

Json rerank(ServedEncoder& served, const RequestFields& fields) {
  fields.at("query");
  const std::string query = *fields.text("query");
  const std::vector<std::string> documents = fields.texts("documents");
  check_count("documents", documents.size());
  const auto most = fields.integer("top_n", 1).value_or(std::ssize(documents));
  const bool returns_documents = fields.flag("return_documents").value_or(false);
  const std::scoped_lock lock(served.mutex);
  const HostBuffer made =
      served.encoder.score(query, documents, {.cancel = served.stop.get_token()});
  const auto scores = made.values<float>();
  std::int64_t tokens = 0;
  for (const std::string& document : documents) {
    tokens += std::ssize(served.encoder.tokens(query, document));
  }
  Json results = Json::array();
  for (const std::size_t at : best_first(scores, most)) {
    Json result{{"index", at}, {"relevance_score", scores[at]}};
    if (returns_documents) result["document"] = {{"text", documents[at]}};
    results.push_back(std::move(result));
  }
  return {{"model", served.name}, {"results", std::move(results)}, {"usage", usage(tokens)}};
}

}  // namespace

void add_encoder_routes(Routes& routes, ServedEncoder& served) {
  if (served.encoder.config().pooling == models::Pooling::rank) {
    routes.post_json("/v1/rerank",
                     [&](const RequestFields& fields) { return rerank(served, fields); });
  } else {
    routes.post_json("/v1/embeddings",
                     [&](const RequestFields& fields) { return embed(served, fields); });
  }
  add_token_routes(routes, served.encoder.tokenizer());
}

}  // namespace tenon::tool
