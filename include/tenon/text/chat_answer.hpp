#pragma once

#include <tenon/held.hpp>
#include <tenon/text/chat.hpp>
#include <tenon/text/grammar.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// A function that a model wants to have called.
struct ToolCall {
  std::string name;
  std::string arguments;  ///< a JSON object
  std::string id{};       ///< as the model wrote it; empty where its template writes none
};

/// The parts of an answer.
struct ChatAnswer {
  /// What the user reads, without white space between its ends and calls, reasoning or other marks.
  std::string content;
  std::string reasoning{};
  std::vector<ToolCall> calls{};
  /// The end of the text that belongs to none of them: a call that is not complete, or, of an answer that grows, the
  /// beginning of a mark.
  std::string rest{};

  /// The answer as a message of the conversation, for ChatFormat::format(); calls without an id get call00000, ... Errors:
  /// those of a JSON text for arguments that are none; what AnswerFormat::read() gives is.
  ChatMessage message() const;
};

struct CallGrammarOptions {
  std::string tool{};   ///< the only one that may be called; empty: any of them
  bool several = true;  ///< more than one call, where the template has several
  /// What the grammar begins behind: empty, or the beginning of a call's marks, such as AnswerFormat::call_mark().
  std::string after{};
};

/// How the model of a chat template writes its reasoning and its calls of tools. Both are found by rendering sample
/// conversations, so that a template needs to be known to nobody:
///
///     const AnswerFormat answers(chat, R"({"tools": [...]})");
///     const Prompt prompt = chat.format(messages, true, R"({"tools": [...]})");
///     ...  // generate, with answers.stop_tokens() and answers.preserved_tokens()
///     const ChatAnswer answer = answers.read(text);
///     for (const ToolCall& call : answer.calls) messages.push_back({"tool", run(call), ...});
///
/// Calls are read in JSON (Qwen, Hermes, Llama 3, Mistral, Granite, Command R), as a name and JSON (DeepSeek, Kimi, gpt-oss),
/// with a mark around each argument (Qwen3-Coder, GLM, MiniMax) and as calls of Python (LFM2, Llama 4).
///
/// A handle; immutable and thread-safe. Use of a moved-from one throws Errc::call_order.
class AnswerFormat {
 public:
  /// `values`: the variables of ChatFormat::format(), of which "tools" say which arguments are texts, and others whether
  /// the model reasons. Errors: those of a JSON text, bad_argument for one that is no object. What a template
  /// refuses is no error: without a sample of a call it has none.
  explicit AnswerFormat(const ChatFormat& format, std::string_view values = {});

  bool has_calls() const;
  bool has_reasoning() const;
  /// What stands behind reasoning, such as "</think>", for GenerateOptions::grammar_after; empty without any. For gpt-oss it is
  /// what its final message begins with; calls are messages of their own, behind "<|start|>assistant". Valid as long as
  /// this.
  std::string_view reasoning_end() const;
  /// Whether the prompt ends within reasoning, so that answers begin with it.
  bool starts_in_reasoning() const;

  /// Takes an answer apart, without its end token. It may be one that still grows, with `is_whole` false: the parts only
  /// get longer, but for a mark whose beginning may be in `rest`. What looks like a call and is none (no
  /// value of JSON's or Python's, no name) is content. Errors: bad_encoding for a text that is not UTF-8.
  ChatAnswer read(std::string_view text, bool is_whole = true) const;

  /// The mark that calls begin with, such as "<tool_call>"; empty for those that begin without one.
  std::string call_mark() const;

  /// Answers that are nothing but calls of the tools in `values`, with arguments that their schemas
  /// allow, written as the template does; between marks around each argument a text is one of
  /// `enum` or `const`, or any. A tool without parameters takes no arguments. To have a model call
  /// a tool, it is GenerateOptions::grammar, with reasoning_end() as grammar_after of models that
  /// reason; to leave the choice to the model, with call_mark() as grammar_after and
  /// CallGrammarOptions::after.
  ///
  /// Errors: bad_argument (no such tool, none at all, another `after`); unsupported for templates without calls, those
  /// whose texts have quotes of their own (Gemma 4), marks with types (DeepSeek V3.2) and marks beyond ASCII around
  /// texts; those of Grammar::from_json_schema.
  Grammar call_grammar(const CallGrammarOptions& options = {}) const;

  /// Spellings of tokens that end a turn, valid as long as this: ChatFormat::stop_tokens(), and what the template writes behind calls.
  const std::vector<std::string>& stop_tokens() const;
  /// Spellings that read() looks for. Where one is a control token, the answer's text has to have it
  /// (GenerateOptions::preserved_tokens).
  const std::vector<std::string>& preserved_tokens() const;

 private:
  struct Impl;
  tenon::detail::Held<const Impl, "AnswerFormat"> impl_;
};

}  // namespace tenon::text
