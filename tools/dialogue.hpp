#pragma once

#include <tenon/models/language_model.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// A conversation in messages. Each turn reads only tokens that changed since the last one. When
/// the context is full, the oldest turns are dropped, never the system message. Without a format,
/// turns are concatenated plain text.
class Dialogue {
 public:
  /// `model` must live as long. The format's stop tokens are added to `options`. `conversation`: one
  /// of the model, of whose tokens those are used with which prompts begin.
  Dialogue(const models::LanguageModel& model, std::optional<text::ChatFormat> format,
           models::GenerateOptions options, models::Conversation conversation);

  /// Empty: none. Errc::bad_argument without a format, Errc::template_error where the format has no
  /// system messages; nothing changes then.
  void set_system(std::string content);
  /// Forgets all but the system message.
  void clear();

  /// The tokens of the context.
  const models::Conversation& conversation() const noexcept { return conversation_; }

  struct Opening {
    std::size_t kept = 0, read = 0;  ///< tokens that the conversation held, and others
  };
  /// Reads what every first message comes behind: the format's beginning and the system message.
  /// Nothing without a format.
  Opening read_opening(const models::Interrupt& interrupt);

  struct Answer {
    models::Generated generated;
    std::size_t left_out = 0;  ///< turns that were dropped because the context is full
  };
  /// Errc::bad_argument when the message does not fit the context even alone. A message whose
  /// reading was interrupted is forgotten; an answer that was cut short stays.
  Answer answer(std::string message, const models::Interrupt& interrupt,
                const std::function<void(std::string_view)>& emit);

  /// All of them, the system message first, those that were left out too.
  std::vector<text::ChatMessage> messages() const;

 private:
  std::vector<std::int32_t> prompt(const std::string& message);
  std::vector<std::int32_t> formatted(std::size_t first, const std::string& message) const;
  std::vector<std::int32_t> continued(const std::string& message) const;
  bool has_room(std::size_t tokens) const;

  const models::LanguageModel& model_;
  std::optional<text::ChatFormat> format_;
  models::GenerateOptions options_;
  models::Conversation conversation_;
  std::string system_;
  std::vector<text::ChatMessage> turns_;  // user and assistant, alternating
  std::size_t first_ = 0;                 // of those that are in the context
  std::vector<std::int32_t> transcript_;  // of the context; its last token may not be read yet
};

}  // namespace tenon::tool
