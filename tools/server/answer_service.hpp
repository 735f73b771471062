// The answers of a server: one thread generates them together, others wait for them.
#pragma once

#include <tenon/models/answer_batch.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tenon::tool {

struct AnswerEvent {
  std::size_t index = 0;  ///< of the request, as AnswerService::answer() got them
  std::string text;       ///< what follows of the answer
  std::optional<models::FinishedAnswer> end{};  ///< in place of `text`
};

/// Answers that were asked for together. A handle for one thread; the answers end when it is destroyed.
class PendingAnswers {
 public:
  PendingAnswers(PendingAnswers&&) = default;
  PendingAnswers& operator=(PendingAnswers&&) = delete;
  ~PendingAnswers();

  /// Whether events are to come: not all have ended.
  bool is_pending() const { return pending_ > 0; }
  /// The next event; nothing where there is none within this time. Throws where the service failed.
  std::optional<AnswerEvent> next(std::chrono::milliseconds wait);

 private:
  friend class AnswerService;
  struct Mailbox;
  PendingAnswers(std::shared_ptr<Mailbox> mailbox, std::size_t count);

  std::shared_ptr<Mailbox> mailbox_;
  std::size_t pending_ = 0;
};

/// Generates answers in shared steps (models::AnswerBatch) on a thread of its own. Any thread may ask for some.
class AnswerService {
 public:
  AnswerService(const models::LanguageModel& model, const models::AnswerBatchOptions& options);
  ~AnswerService();
  AnswerService(const AnswerService&) = delete;
  AnswerService& operator=(const AnswerService&) = delete;

  /// `emit` and `interrupt` of the requests are the service's. Errors: those of AnswerBatch::add(), before any of
  /// them begins; cancelled after stop().
  PendingAnswers answer(std::vector<models::AnswerRequest> requests);

  /// Answers that have not ended.
  std::size_t size() const;

  /// Ends all answers, which are cut, and refuses further ones.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::tool
