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
};

struct FinishedAnswer {
  std::int64_t id = 0;  ///< as AnswerBatch::add() gave it
  Generated answer;     ///< with `error`: what there was of it
  /// What generate() would have thrown; null: nothing. With an error of a step that several answers share, such as
  /// Errc::out_of_memory, each of them ends.
  std::exception_ptr error{};
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
  /// `at_once`: answers that a step reads at most; more of them wait in the order that they came in. Errc::bad_argument
  /// unless it is positive.
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
