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
  std::vector<models::Generated::Choice>
      choices{};  ///< of the tokens since the last text, with logprobs
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

/// What a service has done since it began.
struct ServiceCounts {
  std::int64_t under_way = 0;  ///< answers that have not ended, those that wait included
  std::int64_t ended = 0;      ///< answers, those of clients that left included
  std::int64_t failed = 0;
  std::int64_t prompt_tokens = 0;  ///< of answers that have ended or failed
  std::int64_t reused_tokens = 0;  ///< those among them that were not read again
  std::int64_t generated_tokens = 0;
  std::int64_t steps = 0;
  std::chrono::nanoseconds step_time{};
};

/// Generates answers in shared steps (models::AnswerBatch) on a thread of its own. Any thread may ask for some.
class AnswerService {
 public:
  AnswerService(const models::LanguageModel& model, const models::AnswerBatchOptions& options);
  ~AnswerService();
  AnswerService(const AnswerService&) = delete;
  AnswerService& operator=(const AnswerService&) = delete;

  /// `emit`, `emit_choice` and `interrupt` of the requests are the service's. Errors: those of
  /// AnswerBatch::add(), and those added before that one are cancelled; cancelled after stop();
  /// busy.
  PendingAnswers answer(std::vector<models::AnswerRequest> requests);

  ServiceCounts counts() const;

  /// Ends all answers, which are cut, and refuses further ones.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::tool
