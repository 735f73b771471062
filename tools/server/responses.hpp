#pragma once

#include "server/chat_completion.hpp"
#include "server/response_items.hpp"
#include "server/text_request.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// The chat completion that a request of the Responses API asks for: items are messages, `instructions` the first of
/// them. Errors: those of RequestFields; unsupported for what the server would have to keep (earlier responses,
/// conversations, files, background work) and for tools other than functions.
Json chat_request(const RequestFields& fields);

/// POST /v1/responses: a chat completion in OpenAI's newer form. Nothing is stored.
class Responses final : public TextRequest {
 public:
  /// Errors: those of chat_request() and ChatCompletion.
  Responses(const ServedModel& served, const RequestFields& fields);

  bool is_stream() const override { return chat_.is_stream(); }
  std::vector<models::AnswerRequest> requests() override { return chat_.requests(); }
  Json response(const std::vector<models::Generated>& answers) override;
  std::string beginning() override;
  std::string piece(const AnswerEvent& event) override;
  std::string ending() override { return {}; }
  std::string failed(const std::exception_ptr& error) override;

 private:
  /// `chat`: what chat_request() made of the fields.
  Responses(const ServedModel& served, const RequestFields& fields, const Json& chat);
  /// Takes the events since the last call.
  std::string take_events();
  void emit(Json event);
  void finish(const models::Generated& answer);
  /// The response, with the items that have ended.
  Json as_json(std::string_view status) const;

  Json frame_;  // the members of a response that are known from the beginning
  ChatCompletion chat_;
  const text::Tokenizer& tokenizer_;
  ResponseItems items_;
  Json usage_;
  std::string_view status_ = "in_progress";
  std::int64_t sequence_ = 0;
  std::string events_;
};

}  // namespace tenon::tool
