// The output of OpenAI's Responses API: items, one after the other.
#pragma once

#include "server/request_fields.hpp"

#include <functional>
#include <string>
#include <string_view>

namespace tenon::tool {

/// Makes items of the deltas of a chat's answer, and tells of each change by an event, as streams have them. One text is
/// open at a time: an item of another kind ends it.
class ResponseItems {
 public:
  /// Takes an event, which has no "sequence_number" yet.
  using Emit = std::function<void(Json event)>;

  explicit ResponseItems(Emit emit) : emit_(std::move(emit)) {}

  /// A delta of a chat completion: `reasoning_content`, `content`, `tool_calls`, all of them optional.
  void add(const Json& delta);
  /// Ends the text that is open. `status`: "completed", or "incomplete" for one that was cut. `logprobs`: an array, which
  /// goes to the last message.
  void end(std::string_view status, const Json& logprobs);

  /// The items that have ended.
  const Json& items() const { return items_; }
  const std::string& reasoning() const { return reasoning_; }  ///< the texts of all such items

 private:
  enum class Kind { none, reasoning, message };

  void add_text(Kind kind, const std::string& text);
  void add_call(const Json& call);
  void end_text(std::string_view status, const Json& logprobs);
  void begin_item(Json item);
  void end_item(Json item);
  /// The item of the open text, with this content.
  Json item(Json content, std::string_view status) const;
  Json part(const std::string& text, const Json& logprobs) const;
  /// An event of the open text.
  Json of_text(std::string type) const;
  std::string_view text_event() const;

  Emit emit_;
  Json items_ = Json::array();
  std::string reasoning_;
  Kind kind_ = Kind::none;  // of the open text
  std::string id_, text_;   // the same
};

}  // namespace tenon::tool
