#include "server/encoder_api.hpp"

#include "base/base64.hpp"
#include "encoders.hpp"
#include "server/token_api.hpp"

#include <tenon/error.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
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

/// Ends work when the client has gone, or the server ends.
class ClientWatch {
 public:
  ClientWatch(const HttpRequest& request, const std::stop_token& server)
      : with_server_(server, [this] { gone_.request_stop(); }),
        thread_([this, &request](const std::stop_token& stop) {
          constexpr std::chrono::milliseconds patience{250};
          std::unique_lock lock(mutex_);
          while (!changed_.wait_for(lock, stop, patience, [] { return false; }) &&
                 !stop.stop_requested()) {
            if (!request.is_client_there()) gone_.request_stop();
          }
        }) {}

  models::Interrupt interrupt() const { return {.cancel = gone_.get_token()}; }

 private:
  std::stop_source gone_;
  std::stop_callback<std::function<void()>> with_server_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;  // last: it uses the others
};

using Ids = std::vector<std::int32_t>;

/// A text's tokens, or those that are given.
Ids read_ids(const text::Tokenizer& tokenizer, const Json& input, const std::string& name) {
  if (input.is_string()) return tokenizer.encode(input.get<std::string>());
  if (!input.is_array()) throw MemberError(Errc::bad_type, name, "is no text and no token ids");
  return token_ids(tokenizer, input, name);
}

/// Of all texts. Errors: bad_input for one without tokens; limit_exceeded for one that would lose its end, which the client
/// would not see.
std::vector<Ids> read_inputs(const models::SentenceEncoder& encoder, const RequestFields& fields) {
  const Json& input = fields.at("input");
  const bool is_list = input.is_array() && (input.empty() || !input.front().is_number());
  check_count("input", is_list ? input.size() : 1);
  const std::int64_t most = encoder.config().max_tokens;
  std::vector<Ids> all;
  for (std::size_t i = 0; i < (is_list ? input.size() : 1); ++i) {
    const std::string name = is_list ? fmt::format("input[{}]", i) : "input";
    all.push_back(read_ids(encoder.tokenizer(), is_list ? input[i] : input, name));
    if (all.back().empty()) throw MemberError(Errc::bad_input, name, "has no tokens");
    if (std::ssize(all.back()) > most) {
      throw MemberError(
          Errc::limit_exceeded, name,
          fmt::format("has {} tokens, and the model reads {}", all.back().size(), most));
    }
  }
  return all;
}

std::int64_t count_of(const std::vector<Ids>& texts) {
  std::int64_t count = 0;
  for (const Ids& text : texts) count += std::ssize(text);
  return count;
}

Json usage(std::int64_t tokens) { return {{"prompt_tokens", tokens}, {"total_tokens", tokens}}; }

/// An embedding as OpenAI's API has it: numbers, or the bytes of f32, little endian, in base64.
Json encoded(std::span<const float> row, bool in_base64) {
  if (!in_base64) return std::vector<float>(row.begin(), row.end());
  const auto bytes = std::as_bytes(row);
  return to_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Json embed(ServedEncoder& served, const RequestFields& fields, const HttpRequest& request) {
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    throw MemberError(Errc::unsupported, "encoding_format",
                      fmt::format("is '{}', not float or base64", format));
  }
  const std::int64_t width = served.encoder.embedding_width();
  fields.refuse_other_than("dimensions", width);
  const std::vector<Ids> texts = read_inputs(served.encoder, fields);
  const ClientWatch watch(request, served.stop.get_token());
  const std::scoped_lock lock(served.mutex);
  const HostBuffer made = served.encoder.embed(texts, watch.interrupt());
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
          {"usage", usage(count_of(texts))}};
}

Json rerank(ServedEncoder& served, const RequestFields& fields, const HttpRequest& request) {
  fields.at("query");
  const std::string query = *fields.text("query");
  const std::vector<std::string> documents = fields.texts("documents");
  check_count("documents", documents.size());
  const auto most = fields.integer("top_n", 1).value_or(std::ssize(documents));
  const bool returns_documents = fields.flag("return_documents").value_or(false);
  const models::SentenceEncoder& encoder = served.encoder;
  const std::int64_t limit = encoder.config().max_tokens;
  const std::int64_t count = std::ssize(encoder.tokenizer().encode(query, {.add_special = false}));
  if (count >= limit) {  // it would be read with each document
    throw MemberError(Errc::limit_exceeded, "query",
                      fmt::format("has {} tokens, and the model reads {}", count, limit));
  }
  std::vector<Ids> pairs;
  for (const std::string& document : documents) pairs.push_back(encoder.tokens(query, document));
  const ClientWatch watch(request, served.stop.get_token());
  const std::scoped_lock lock(served.mutex);
  const HostBuffer made = encoder.score(pairs, watch.interrupt());
  const auto scores = made.values<float>();
  Json results = Json::array();
  for (const std::size_t at : best_first(scores, most)) {
    Json result{{"index", at}, {"relevance_score", scores[at]}};
    if (returns_documents) result["document"] = {{"text", documents[at]}};
    results.push_back(std::move(result));
  }
  return {
      {"model", served.name}, {"results", std::move(results)}, {"usage", usage(count_of(pairs))}};
}

}  // namespace

void add_encoder_routes(Routes& routes, ServedEncoder& served) {
  const bool ranks = served.encoder.config().pooling == models::Pooling::rank;
  routes.post(ranks ? "/v1/rerank" : "/v1/embeddings", [&, ranks](const HttpRequest& request) {
    const Json body = parse_request(request.body);
    const RequestFields fields(body);
    return json_response(ranks ? rerank(served, fields, request) : embed(served, fields, request));
  });
  add_token_routes(routes, served.encoder.tokenizer());
}

}  // namespace tenon::tool
