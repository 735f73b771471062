#include "server/text_completion.hpp"

#include "base/utf8.hpp"
#include "server/token_api.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

constexpr std::int64_t max_logprobs = 20;

/// Of a text in UTF-8.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

/// A token as OpenAI's completions show it: JSON has no bytes that are no text.
std::string shown(const std::string& piece) {
  if (is_utf8(piece)) return piece;
  std::string text = "bytes:";
  for (const char byte : piece) {
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

bool is_tokens(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_number_integer();
}

}  // namespace

TextCompletion::TextCompletion(const ServedModel& served, const RequestFields& fields)
    : Completion(served, fields,
                 {.id = "cmpl",
                  .whole = "text_completion",
                  .chunk = "text_completion",
                  .prompt = "prompt"}) {
  fields.refuse_other_than("suffix", "");
  fields.refuse_other_than("best_of", 1);
  echoes_ = fields.flag("echo").value_or(false);
  options().logprobs = fields.integer("logprobs", 0, max_logprobs);
  if (echoes_ && options().logprobs) {
    throw MemberError(Errc::unsupported, "echo", "log-probabilities of a prompt are not computed");
  }
  const Json& prompt = fields.at("prompt");
  const bool is_one = prompt.is_string() || is_tokens(prompt);
  const Json prompts = is_one ? Json::array({prompt}) : prompt;
  if (!prompts.is_array() || prompts.empty()) {
    throw MemberError(Errc::bad_type, "prompt", "is no text, token ids, or an array of them");
  }
  for (const Json& one : prompts) {
    if (one.is_string()) {
      add_text(one.get<std::string>());
    } else {
      add_tokens(one);
    }
  }
}

void TextCompletion::add_text(const std::string& text) {
  add_prompt({{.tokens = served().model.tokenizer().encode(text)}});
  if (echoes_) texts_.push_back(text);
}

void TextCompletion::add_tokens(const Json& ids) {
  const text::Tokenizer& tokenizer = served().model.tokenizer();
  if (!is_tokens(ids))
    throw MemberError(Errc::bad_type, "prompt", "has an item that is no text and no token ids");
  std::vector<std::int32_t> tokens = token_ids(tokenizer, ids, "prompt");
  if (echoes_) texts_.push_back(tokenizer.decode(tokens));
  add_prompt({{.tokens = std::move(tokens)}});
}

std::string_view TextCompletion::echoed(std::size_t index) const {
  return echoes_ ? std::string_view(texts_[index / static_cast<std::size_t>(choices())])
                 : std::string_view();
}

Json TextCompletion::logprobs(Choices choices, std::size_t& offset) const {
  if (!options().logprobs) return nullptr;
  const text::Tokenizer& tokenizer = served().model.tokenizer();
  Json made{{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  for (const models::Generated::Choice& of : choices) {
    const std::string piece = tokenizer.piece(of.drawn.token);
    made["tokens"].push_back(shown(piece));
    made["token_logprobs"].push_back(described(tokenizer, of.drawn)["logprob"]);
    made["text_offset"].push_back(offset);
    offset += static_cast<std::size_t>(std::ranges::count_if(piece, begins_character));
    Json top = Json::object();
    for (const auto& other : of.top) {
      const std::string name = shown(tokenizer.piece(other.token));
      // Of tokens that are spelled alike, the first is the most probable.
      if (!top.contains(name)) top[name] = described(tokenizer, other)["logprob"];
    }
    made["top_logprobs"].push_back(std::move(top));
  }
  return made;
}

Json TextCompletion::choice(std::size_t index, const models::Generated& answer) {
  std::size_t offset = 0;
  return {{"text", std::string(echoed(index)) + answer.text},
          {"logprobs", logprobs(answer.choices, offset)},
          {"finish_reason", finish_reason(answer.end)}};
}

Json TextCompletion::first_delta(std::size_t index) {
  const std::string_view text = echoed(index);
  return text.empty() ? Json() : delta(index, text, {});
}

Json TextCompletion::delta(std::size_t index, std::string_view text, Choices drawn) {
  Json made{{"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (!drawn.empty()) {
    Sent& sent = sent_[index];
    sent.choices += drawn.size();
    made["logprobs"] = logprobs(drawn, sent.characters);
  }
  return made;
}

Json TextCompletion::last_delta(std::size_t index, const models::Generated& answer) {
  Sent& sent = sent_[index];
  return {{"text", ""},
          {"logprobs", logprobs(Choices(answer.choices).subspan(sent.choices), sent.characters)},
          {"finish_reason", finish_reason(answer.end)}};
}

}  // namespace tenon::tool
