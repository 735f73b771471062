#pragma once

#include "server/completion.hpp"

#include <tenon/host_buffer.hpp>
#include <tenon/text/chat_answer.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// A function that a model may call: its name, and what else there is of it. Errors: those of RequestFields; bad_argument
/// for an empty name.
void check_function(const RequestFields& function);

/// POST /v1/chat/completions: messages, tools, and an answer with its reasoning and its calls.
class ChatCompletion : public Completion {
 public:
  /// Errors: those of Completion; template_error for models without a chat template, and what it refuses; unsupported
  /// for images where the server has no encoder, or that are addresses; those of reading an image.
  /// `prompt`: where not null, it gets the prompt's text, and there is nothing to answer.
  ChatCompletion(const ServedModel& served, const RequestFields& fields,
                 std::string* prompt = nullptr);

  Json first_delta(std::size_t index) override;
  Json delta(std::size_t index, std::string_view text, Choices drawn) override;
  Json last_delta(std::size_t index, const models::Generated& answer) override;

 private:
  /// What the client has of an answer that grows.
  struct Sent {
    std::string text;  ///< of the model
    std::size_t content = 0, reasoning = 0, calls = 0;
    std::size_t choices = 0;                       ///< whose log-probabilities were sent
    std::vector<models::Generated::Choice> drawn;  ///< and those since
  };

  void add_messages(const Json& messages, const text::ChatFormat& format);
  /// A content of parts as one text, with a marker for each image.
  std::string read_parts(const Json& parts, const std::string& name);
  void add_image(const std::string& url, const std::string& name);
  void choose_tools(const RequestFields& fields, const Json& choice);
  void allow_only_calls(const text::CallGrammarOptions& options);
  text::Prompt prompt_of_messages(const text::ChatFormat& format, const std::string& values);
  void add_prompt_of(const text::Prompt& prompt);
  Json call(const text::ToolCall& call) const;
  Json logprobs(Choices choices) const;
  /// What `answer` has more than was sent, as a delta; null for nothing.
  Json news(Sent& sent, const text::ChatAnswer& answer) const;

  Json choice(std::size_t index, const models::Generated& answer) override;

  std::vector<text::ChatMessage> messages_;
  std::vector<HostBuffer> images_;
  std::optional<text::AnswerFormat> answers_;
  std::vector<Sent> sent_;  // of each choice
};

}  // namespace tenon::tool
