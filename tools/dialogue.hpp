#pragma once

#include <tenon/models/language_model.hpp>
#include <tenon/models/vision.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::tool {

/// An image of a message.
struct MessagePicture {
  std::string path;
  models::EncodedImage image;
};

/// A conversation in messages. Each turn reads only tokens and images that changed since the last one. When
/// the context is full, the oldest turns are dropped, never the system message. Without a format,
/// turns are concatenated plain text.
class Dialogue {
 public:
  /// `model` must live as long. The format's stop tokens are added to `options`. `conversation`: one
  /// of the model, of whose tokens those are used with which prompts begin. `reads_images`: whether
  /// markers in messages stand for pictures.
  Dialogue(const models::LanguageModel& model, std::optional<text::ChatFormat> format,
           models::GenerateOptions options, models::Conversation conversation,
           bool reads_images = false);

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
  /// reading was interrupted is forgotten; an answer that was cut short stays. `pictures` stand at the
  /// message's markers (models::image_marker), before a text without any; they need a format, and
  /// another number of them than of markers is Errc::bad_argument, too.
  Answer answer(std::string message, std::vector<MessagePicture> pictures,
                const models::Interrupt& interrupt,
                const std::function<void(std::string_view)>& emit);

  /// All of them, the system message first, those that were left out too.
  std::vector<text::ChatMessage> messages() const;
  /// The files of the pictures in messages, in order.
  std::vector<std::string> pictures() const;

 private:
  using Parts = std::vector<models::PromptPart>;

  Parts prompt(const std::string& message, const std::vector<MessagePicture>& pictures);
  Parts formatted(std::size_t first, const std::string& message,
                  const std::vector<MessagePicture>& pictures) const;
  std::vector<std::int32_t> continued(const std::string& message) const;
  Parts unread(Parts parts);
  bool has_room(std::int64_t positions) const;

  const models::LanguageModel& model_;
  std::optional<text::ChatFormat> format_;
  models::GenerateOptions options_;
  models::Conversation conversation_;
  bool reads_images_;
  std::string system_;
  std::vector<text::ChatMessage> turns_;               // user and assistant, alternating
  std::vector<std::vector<MessagePicture>> pictures_;  // of each turn of the user
  std::size_t first_ = 0;                              // of those that are in the context
  std::map<std::int64_t, HostBuffer>
      held_;  // rows of images that were to be read, by their first position
  std::vector<std::int32_t> transcript_;  // of the context; its last token may not be read yet
};

}  // namespace tenon::tool
