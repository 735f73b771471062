#pragma once

#include <tenon/held.hpp>
#include <tenon/models/language_model.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace tenon::models {

struct AnswerRequest {
  Conversation conversation;  ///< not to be used otherwise until the answer has ended
  std::vector<std::int32_t> prompt;
  std::vector<PromptPart> beginning{};  ///< read before `prompt`: of a prompt with images
  /// Errc::unsupported for drafts, and for sample_on_device unless sampling is greedy.
  GenerateOptions options{};
  /// As for generate(), on the thread that calls step(). What it throws ends its answer.
  std::function<void(std::string_view text)> emit{};
  /// With GenerateOptions::logprobs: gets each element of Generated::choices, before the text of
  /// its token.
  std::function<void(const Generated::Choice& choice)> emit_choice{};
};

struct FinishedAnswer {
  std::int64_t id = 0;  ///< as AnswerBatch::add() gave it
  Generated answer;     ///< with `error`: what there was of it
  /// What generate() would have thrown; null: nothing. It is of this answer: where a step of several fails, each reads by
  /// itself. Only where states move on (Mamba) does an error within a step end all that took part in it.
  std::exception_ptr error{};
};

struct AnswerBatchOptions {
  /// Answers that a step reads at most; more of them wait in the order that they came in. Errc::bad_argument unless it
  /// is positive.
  std::int64_t at_once = 64;
  /// Bytes for prompts that answers have read. One whose conversation is empty begins with what such a prompt has in
  /// common with its own (Generated::reused_tokens). Those that were not used for longest are dropped first; 0: none
  /// is kept. A token takes what it takes in a conversation, some 23 kB with SmolLM2 135M, 18 with Gemma 3 270M.
  ///
  /// The answer is the same, on the CPU to the last bit: answers' own tokens, which were read one by one, are not
  /// reused; not fewer than 32 tokens are read, with windows multiples of 128 reused, with ALiBi of
  /// LanguageModelOptions::chunk. Where states only move on, a prompt is reused as a whole by one that continues it. What
  /// images begin is not kept.
  std::uint64_t prompt_bytes = std::uint64_t{256} << 20;
};

/// Answers that are generated at the same time, each on its own: a server's loop, in which answers begin while others
/// are under way ("continuous batching"; Yu et al., Orca, 2022). A step reads one piece of a prompt, of the answer that
/// waits longest, and a token of each answer whose prompt was read, all of these together (LanguageModel::read_each):
///
///     AnswerBatch batch(model);
///     batch.add({.conversation = model.conversation(), .prompt = prompt});
///     while (batch.size() > 0)
///       for (const FinishedAnswer& done : batch.step()) use(done);
///
/// On the CPU an answer is the one that generate() gives with the same options, whatever else is answered. A handle;
/// add() and size() may be called on any thread, also during a step; step() on one at a time (Errc::busy).
class AnswerBatch {
 public:
  AnswerBatch(const LanguageModel& model, const AnswerBatchOptions& options);
  explicit AnswerBatch(const LanguageModel& model, std::int64_t at_once = 64);

  /// Adds an answer, which begins with the next step, and returns its number: 0, 1, ... Errors: those of
  /// generate()'s options; bad_argument for a prompt without tokens, a conversation of another model, and one that
  /// another answer of the batch uses.
  std::int64_t add(AnswerRequest request);

  /// One step; nothing without answers. Returns those that have ended, in the order of their numbers.
  std::vector<FinishedAnswer> step();

  /// Answers that have not ended.
  std::int64_t size() const;

 private:
  struct Impl;
  tenon::detail::Held<Impl, "AnswerBatch"> impl_;
};

/// All of these answers, in their order; the time that it takes is that of the longest. Errors of requests are thrown
/// before any of them begins, as AnswerBatch::add() throws them; later ones are in FinishedAnswer::error.
std::vector<FinishedAnswer> generate_each(const LanguageModel& model,
                                          std::vector<AnswerRequest> requests,
                                          std::int64_t at_once = 64);

}  // namespace tenon::models
