#pragma once

#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"; chatml and llama3 take any
  std::string content;
};

/// The ways in which published models mark turns.
enum class ChatFamily {
  chatml,  ///< <|im_start|>role ... <|im_end|> (SmolLM2, Qwen)
  gemma,   ///< <start_of_turn>role ... <end_of_turn>
  llama2,  ///< [INST] ... [/INST], the system message in <<SYS>>
  llama3,  ///< <|start_header_id|>role<|end_header_id|> ... <|eot_id|>
};

std::string_view spelling(ChatFamily family) noexcept;

/// A rendered conversation. `content` says which parts came from messages: spellings of control
/// tokens in there are a user's text and must not become structure.
struct Prompt {
  std::string text;
  std::vector<TextRange> content;

  /// The ids: control tokens from the format only, and no other special tokens added.
  std::vector<std::int32_t> encode(const Tokenizer& tokenizer) const;
};

/// What a template's variables stand for. Unset: the family's own.
struct ChatVariables {
  std::optional<std::string> bos_token = {};
  std::optional<std::string> eos_token = {};
  std::optional<std::string> date =
      {};  ///< today, as in "26 Jul 2024"; Llama 3.1 and 3.2 mention it
};

/// Renders conversations as a model's template does, without running the template.
///
/// A model's Jinja text is only recognised: its markers name the family, and what its members
/// differ in (a default system message, dates, trimming, whether there is a system role) is read
/// from its literals. Tools, images and reasoning traces are left out.
class ChatFormat {
 public:
  /// The format of a template. Errors: template_error (none of the families).
  static ChatFormat from_template(std::string_view jinja, ChatVariables variables = {});

  /// A family in its plainest form, for models whose template is missing or unknown.
  explicit ChatFormat(ChatFamily family, ChatVariables variables = {});

  ChatFamily family() const noexcept { return family_; }

  /// The system message that stands in where a conversation has none, if the template has one.
  const std::optional<std::string>& default_system() const noexcept { return default_system_; }

  /// The conversation as one text, with the opening of the assistant's turn at the end if asked
  /// for.
  ///
  /// Errors: bad_argument (no messages), template_error (roles that the family's templates refuse:
  /// gemma and llama2 want user and assistant in turns).
  Prompt format(std::span<const ChatMessage> messages, bool add_generation_prompt = true) const;

  /// The spellings of the tokens that end the assistant's turn.
  std::vector<std::string> stop_tokens() const;

 private:
  Prompt format_chatml(std::span<const ChatMessage> messages) const;
  Prompt format_gemma(std::span<const ChatMessage> messages) const;
  Prompt format_llama2(std::span<const ChatMessage> messages) const;
  Prompt format_llama3(std::span<const ChatMessage> messages) const;

  ChatFamily family_;
  std::string bos_;
  std::string eos_;
  std::optional<std::string> default_system_;
  bool starts_with_bos_ = false;
  bool trims_content_ = false;
  bool allows_system_ = true;
  std::optional<std::string> knowledge_date_;  ///< Llama 3.1: the line that opens every prompt
  std::string today_;
};

}  // namespace tenon::text
