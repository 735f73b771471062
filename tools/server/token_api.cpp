#include "server/token_api.hpp"

#include "base/utf8.hpp"

#include <tenon/error.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

/// A token and what it spells: a text, or bytes where those are no whole characters.
Json described(const text::Tokenizer& tokenizer, std::int32_t token) {
  const std::string bytes = tokenizer.piece(token);
  if (is_utf8(bytes)) return {{"id", token}, {"piece", bytes}};
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return {{"id", token}, {"piece", std::move(numbers)}};
}

Json tokenize(const text::Tokenizer& tokenizer, const RequestFields& fields) {
  const auto ids = tokenizer.encode(fields.text("content").value_or(""),
                                    {.add_special = fields.flag("add_special").value_or(false),
                                     .parse_special = fields.flag("parse_special").value_or(true)});
  if (!fields.flag("with_pieces").value_or(false)) return {{"tokens", ids}};
  Json tokens = Json::array();
  for (const std::int32_t id : ids) tokens.push_back(described(tokenizer, id));
  return {{"tokens", std::move(tokens)}};
}

Json detokenize(const text::Tokenizer& tokenizer, const RequestFields& fields) {
  const Json* ids = fields.array("tokens");
  const auto tokens =
      ids == nullptr ? std::vector<std::int32_t>() : token_ids(tokenizer, *ids, "tokens");
  return {{"content", tokenizer.decode(tokens)}};
}

}  // namespace

std::vector<std::int32_t> token_ids(const text::Tokenizer& tokenizer, const Json& ids,
                                    const std::string& name) {
  const auto count = static_cast<std::int64_t>(tokenizer.vocab_size());
  std::vector<std::int32_t> tokens;
  for (const Json& id : ids) {
    if (!id.is_number_integer())
      throw MemberError(Errc::bad_type, name, "is no array of token ids");
    const auto token = id.get<std::int64_t>();
    if (token < 0 || token >= count) {
      throw MemberError(
          Errc::out_of_range, name,
          fmt::format("token {} is outside of the vocabulary of {}", id.dump(), count));
    }
    tokens.push_back(static_cast<std::int32_t>(token));
  }
  return tokens;
}

void add_token_routes(Routes& routes, const text::Tokenizer& tokenizer) {
  routes.post_json("/tokenize",
                   [&](const RequestFields& fields) { return tokenize(tokenizer, fields); });
  routes.post_json("/detokenize",
                   [&](const RequestFields& fields) { return detokenize(tokenizer, fields); });
}

}  // namespace tenon::tool
