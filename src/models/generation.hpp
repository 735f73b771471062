#pragma once

#include "draft.hpp"
#include "kept_prompts.hpp"
#include "stop_text.hpp"

#include <tenon/models/language_model.hpp>
#include <tenon/text/stream_decoder.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::models {

/// One answer while it is generated, either as a whole, by run(), or step by step, by begin() and what follows there,
/// where its tokens are read together with those of other answers. Options, conversation and `emit` must live as long.
class Generation {
 public:
  using Emit = std::function<void(std::string_view)>;
  using EmitChoice = std::function<void(const Generated::Choice&)>;

  /// Errors: those of GenerateOptions.
  Generation(const LanguageModel& model, Conversation& conversation, const GenerateOptions& options,
             const Emit& emit, EmitChoice emit_choice = {});

  /// All of it; `beginning` is read before `prompt`.
  Generated run(std::span<const std::int32_t> prompt, std::span<const PromptPart> beginning = {});

  /// Errc::unsupported for options that read more than one token a step, or do not leave logits to the host.
  void check_stepwise() const;
  /// Sets the prompt, and what is read before it. Errc::bad_argument without tokens.
  void begin(std::vector<std::int32_t> prompt, std::vector<PromptPart> beginning);
  /// Takes from `kept` what that has of the prompt, if the conversation is empty. Before the first piece is read.
  void reuse(KeptPrompts& kept);
  /// Whether the conversation holds the prompt, and nothing else.
  bool holds_prompt() const;
  /// Whether a piece of the prompt is to be read; else pending() is.
  bool has_prompt() const { return prompt_read_ < prompt_.size(); }
  /// Reads a piece: a part of the beginning, or at most LanguageModelOptions::chunk tokens. Returns, as what follows,
  /// whether the answer continues.
  bool read_prompt();
  /// Draws of the logits behind pending(), which somebody has read, the next one; take_drawn() adds it to the result.
  /// Several answers may draw on threads of their own.
  void draw_of(std::span<const float> logits);
  bool take_drawn();
  /// The same of the most probable token, -1 where no logit is a number.
  bool continue_with(std::int32_t most_probable);
  /// Whether the answer was not interrupted.
  bool check_interrupt();
  /// The token that is to be read next.
  std::int32_t pending() const { return pending_; }
  /// Whether the most probable token is all that is asked for.
  bool is_greedy() const;
  /// The result, once the answer does not continue.
  Generated finish();

 private:
  using Clock = std::chrono::steady_clock;

  void answer(std::span<const std::int32_t> prompt, std::span<const PromptPart> beginning);
  void start_history(std::span<const std::int32_t> prompt);
  /// The next piece of the prompt. Returns whether it was not interrupted.
  bool read_piece();
  template <class Read>
  bool completes(Read&& read);
  bool read_parts(std::span<const PromptPart> parts);
  /// Reads `tokens` and draws the next one; nothing when that was interrupted.
  std::optional<std::int32_t> draw_after(std::span<const std::int32_t> tokens);
  bool samples_on_device() const;
  std::int32_t draw(std::span<const std::int32_t> tokens);
  /// A token by what was read last.
  std::int32_t choose();
  /// Draws a token and adds it to the result. Returns whether to continue.
  bool take_choice();
  std::int32_t constrained_token(std::span<const float> logits);
  bool is_allowed(std::int32_t token);
  /// Follows a token of the answer, which adds `text` to it, in the grammar, or to where that begins.
  void follow(std::int32_t token, std::string_view text);
  bool is_stop(std::int32_t token) const;
  void read(std::span<const std::int32_t> tokens);
  void read_rows(std::span<const std::int32_t> rows);
  std::int64_t room_for_draft() const;
  std::int64_t position() const;
  void settle();
  bool ends(std::int32_t token) const;
  /// Adds a token to the result. Returns whether to continue.
  bool take(std::int32_t token);
  void put(std::string text);
  void put_rest();

  const LanguageModel& model_;
  Conversation& conversation_;
  const GenerateOptions& options_;
  const Emit& emit_;
  EmitChoice emit_choice_;
  nn::Sampler sampler_;
  text::StreamDecoder decoder_;
  StopText stop_text_;
  std::vector<std::int32_t> stop_tokens_;
  std::vector<std::int32_t> history_;
  std::optional<text::TokenConstraint> constraint_;
  bool is_constrained_ = false;     // the grammar has begun
  std::string before_grammar_;      // the answer until then
  std::vector<float> constrained_;  // logits, a member to reuse its memory
  std::optional<Drafter> drafter_;
  std::vector<std::int32_t> draft_;  // that was read behind the last token
  std::size_t row_ = 0;              // what is drawn of: the tokens of the draft that were right
  std::vector<std::int32_t> most_probable_;  // of each row, or
  std::int32_t drawn_on_device_ = 0;         // of the only one, or
  std::span<const float> logits_;            // [rows, vocabulary]
  Generated::Choice choice_{};               // of the token that was drawn last
  std::vector<PromptPart> beginning_;        // step by step: what is to be read
  std::vector<std::int32_t> prompt_;         // behind that
  std::size_t parts_read_ = 0, prompt_read_ = 0;
  std::int32_t pending_ = 0;
  Clock::time_point read_until_{};  // when the prompt was read
  Generated result_;
};

}  // namespace tenon::models
