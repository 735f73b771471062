// Requests for text: what chat and plain completions of OpenAI's API share.
#pragma once

#include "server/served_model.hpp"
#include "server/text_request.hpp"

#include <tenon/models/answer_batch.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// A request whose answers are choices, in the order of requests().
class Completion : public TextRequest {
 public:
  bool is_stream() const override { return is_stream_; }
  std::vector<models::AnswerRequest> requests() override;
  Json response(const std::vector<models::Generated>& answers) override;
  std::string beginning() override;
  std::string piece(const AnswerEvent& event) override;
  std::string ending() override;
  std::string failed(const std::exception_ptr& error) override;
  const models::GenerateOptions& options() const { return options_; }

 protected:
  using Choices = std::span<const models::Generated::Choice>;

  struct Kind {
    std::string_view id;      ///< what ids begin with
    std::string_view whole;   ///< "object" of a response
    std::string_view chunk;   ///< and of a piece of one
    std::string_view prompt;  ///< the member of a request that has the prompt
  };
  /// Errors: those of RequestFields, and of GenerateOptions' members.
  Completion(const ServedModel& served, const RequestFields& fields, const Kind& kind);

  /// Adds a prompt, for which there will be `n` choices. Errors: bad_argument without tokens; limit_exceeded for more
  /// than the context has.
  void add_prompt(std::vector<models::PromptPart> prompt);
  const ServedModel& served() const { return served_; }
  std::int64_t choices() const { return choices_; }  ///< of each prompt
  models::GenerateOptions& options() { return options_; }

  /// What a choice has beside its index: of a whole answer, and of a stream, at the beginning, for
  /// a piece of text and at the end. Of the last three null has no chunk. `drawn`: with
  /// log-probabilities, the tokens since the last piece.
  virtual Json choice(std::size_t index, const models::Generated& answer) = 0;
  virtual Json first_delta(std::size_t index) = 0;
  virtual Json delta(std::size_t index, std::string_view text, Choices drawn) = 0;
  virtual Json last_delta(std::size_t index, const models::Generated& answer) = 0;

 private:
  void read_sampling(const RequestFields& fields);
  void read_breakers(const RequestFields& fields);
  void check_sampler(const RequestFields& fields) const;
  void read_limits(const RequestFields& fields);
  void read_grammar(const RequestFields& fields);
  Json frame(std::string_view object) const;
  std::string chunk(std::size_t index, Json members) const;
  void count(std::size_t index, const models::Generated& answer);
  Json usage() const;

  const ServedModel& served_;
  Kind kind_;
  std::string id_;
  std::int64_t created_;
  models::GenerateOptions options_;
  std::int64_t choices_ = 1;  // of each prompt
  bool is_stream_ = false, has_usage_ = false;
  std::vector<std::vector<models::PromptPart>> prompts_;
  std::size_t count_ = 0;  // of answers
  std::int64_t prompt_tokens_ = 0, reused_tokens_ = 0, answer_tokens_ = 0;
};

/// "stop", "length", as OpenAI's API has the reasons.
std::string_view finish_reason(models::Generated::End end);

/// A token of an answer with its log-probability, as chat completions have it.
Json described(const text::Tokenizer& tokenizer, const models::Generated::LogProbability& token);

std::int64_t seconds_since_1970();
std::uint64_t random_number();

/// A server-sent event.
std::string event(const Json& data);

/// What the client is told of an error.
Json described(const std::exception_ptr& error);
/// 400 for requests that cannot be answered, 500 where the machine failed, 503 when the server ends.
int http_status(const std::exception_ptr& error);

}  // namespace tenon::tool
