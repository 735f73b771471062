#pragma once

#include <tenon/held.hpp>
#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::text {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant", "tool"; what the template takes
  std::string content;
  /// Further members, as a JSON object: tool_calls, tool_call_id, name, reasoning_content, ..., also a `content` that is
  /// no text, in place of the one here; empty: none. Arguments of tool_calls may be an object or its JSON in a text: the
  /// template gets what it takes.
  std::string more = {};
};

/// Families of chat templates that are built in, by how they mark turns.
enum class ChatFamily {
  chatml,  ///< <|im_start|>role ... <|im_end|> (SmolLM2, Qwen)
  gemma,   ///< <start_of_turn>role ... <end_of_turn>
  gemma4,  ///< <|turn>role ... <turn|>
  llama2,  ///< [INST] ... [/INST], the system message in <<SYS>>
  llama3,  ///< <|start_header_id|>role<|end_header_id|> ... <|eot_id|>
};

std::string_view spelling(ChatFamily family) noexcept;

/// A rendered conversation. `content` has the parts that came from messages: spellings of control
/// tokens in them are text of a user and must not become control tokens.
struct Prompt {
  std::string text;
  std::vector<TextRange> content;

  /// Token ids: control tokens come only from the format; no other special tokens are added.
  std::vector<std::int32_t> encode(const Tokenizer& tokenizer) const;
};

/// Values of a template's variables.
struct ChatVariables {
  std::optional<std::string> bos_token = {};  ///< unset: empty, or the family's
  std::optional<std::string> eos_token = {};
  /// The date of strftime_now(), as in "26 Jul 2024", with the time 0:00. Unset: now, in local time.
  std::optional<std::string> date = {};
  /// Further ones, as a JSON object: {"enable_thinking": false}; empty: none.
  std::string more = {};
};

/// Renders conversations by a model's chat template: Jinja 3.1 as Hugging Face's and llama.cpp's templates use it (with
/// trim_blocks, lstrip_blocks, loop controls, raise_exception, strftime_now and their tojson). A template is text of a
/// stranger: it can read its variables and nothing else, and its work and its results are limited. What comes from
/// messages and tools is known in the result, through filters and slices, too (Prompt::content).
///
/// A handle, which any thread may use. Use of a moved-from one throws Errc::call_order.
class ChatFormat {
 public:
  /// Errors: template_error, with the line (no template of Jinja's; include, import, extends and block), depth_limit;
  /// those of a JSON text for ChatVariables::more.
  static ChatFormat from_template(std::string_view jinja, ChatVariables variables = {});

  /// The template of a family, for models that have none.
  explicit ChatFormat(ChatFamily family, ChatVariables variables = {});

  /// The template, in Jinja; valid as long as the format.
  std::string_view source() const;

  /// The family whose marks the template has; for reports.
  std::optional<ChatFamily> family() const;

  /// The conversation as one text; with `add_generation_prompt`, it ends in the opening of the
  /// assistant's turn, where the template has one. `values`: variables of this call, as a JSON object, such as
  /// {"tools": [...]}, before those of ChatVariables::more.
  ///
  /// Errors: bad_argument (no messages, `values` that are no object), template_error (what the template raises, such as
  /// for roles that do not alternate; with its line), limit_exceeded, depth_limit; those of a JSON text.
  Prompt format(std::span<const ChatMessage> messages, bool add_generation_prompt = true,
                std::string_view values = {}) const;

  /// Spellings of the tokens that end the assistant's turn: what the template writes behind an answer, and eos_token.
  std::vector<std::string> stop_tokens() const;

 private:
  struct Impl;
  explicit ChatFormat(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  tenon::detail::Held<const Impl, "ChatFormat"> impl_;
};

}  // namespace tenon::text
