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
  std::string role;  ///< "system", "user" or "assistant"; chatml, gemma4 and llama3 take any
  std::string content;
};

/// Families of chat templates, by how they mark turns.
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

/// Values of a template's variables. Unset: the family's defaults.
struct ChatVariables {
  std::optional<std::string> bos_token = {};
  std::optional<std::string> eos_token = {};
  std::optional<std::string> date =
      {};  ///< today's date, as in "26 Jul 2024"; used by Llama 3.1 and 3.2
};

/// Renders conversations as a model's template does, without running the template.
///
/// A model's Jinja text is matched, not interpreted: its markers determine the family, and its
/// literals the variant (default system message, dates, trimming, whether there is a system role).
/// Tools, images and reasoning traces are not supported.
class ChatFormat {
 public:
  /// The format of a template. Errors: template_error (an unknown family).
  static ChatFormat from_template(std::string_view jinja, ChatVariables variables = {});

  /// The basic variant of a family, for models whose template is missing or unknown.
  explicit ChatFormat(ChatFamily family, ChatVariables variables = {});

  ChatFamily family() const noexcept { return family_; }

  /// The template's default system message, for conversations without one.
  const std::optional<std::string>& default_system() const noexcept { return default_system_; }

  /// The conversation as one text; with `add_generation_prompt`, it ends in the opening of the
  /// assistant's turn.
  ///
  /// Errors: bad_argument (no messages), template_error (roles that the family's templates refuse:
  /// gemma and llama2 require that user and assistant alternate).
  Prompt format(std::span<const ChatMessage> messages, bool add_generation_prompt = true) const;

  /// Spellings of the tokens that end the assistant's turn.
  std::vector<std::string> stop_tokens() const;

 private:
  Prompt format_chatml(std::span<const ChatMessage> messages) const;
  Prompt format_gemma(std::span<const ChatMessage> messages) const;
  Prompt format_gemma4(std::span<const ChatMessage> messages) const;
  Prompt format_llama2(std::span<const ChatMessage> messages) const;
  Prompt format_llama3(std::span<const ChatMessage> messages) const;

  ChatFamily family_;
  std::string bos_;
  std::string eos_;
  std::optional<std::string> default_system_;
  bool starts_with_bos_ = false;
  bool trims_content_ = false;
  bool allows_system_ = true;
  bool opens_with_no_thought_ =
      false;                        ///< gemma4: the assistant's turn begins behind an empty thought
  bool joins_model_turns_ = false;  ///< gemma4: an assistant's message behind another opens no turn
  std::optional<std::string> knowledge_date_;  ///< Llama 3.1: the line that opens every prompt
  std::string today_;
};

}  // namespace tenon::text
