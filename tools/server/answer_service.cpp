#include "server/answer_service.hpp"

#include <tenon/error.hpp>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

namespace tenon::tool {

/// What the thread that generates gives to the one that waits.
struct PendingAnswers::Mailbox {
  std::stop_source cancel;
  std::mutex mutex;
  std::condition_variable is_new;
  std::deque<AnswerEvent> events;
  std::exception_ptr failure;  // why there are no more events

  void put(AnswerEvent event) {
    const std::scoped_lock lock(mutex);
    events.push_back(std::move(event));
    is_new.notify_one();
  }
  void fail(const std::exception_ptr& why) {
    const std::scoped_lock lock(mutex);
    failure = why;
    is_new.notify_one();
  }
};

PendingAnswers::PendingAnswers(std::shared_ptr<Mailbox> mailbox, std::size_t count)
    : mailbox_(std::move(mailbox)), pending_(count) {}

PendingAnswers::~PendingAnswers() {
  if (mailbox_) mailbox_->cancel.request_stop();
}

std::optional<AnswerEvent> PendingAnswers::next(std::chrono::milliseconds wait) {
  std::unique_lock lock(mailbox_->mutex);
  const auto has_some = [&] { return !mailbox_->events.empty() || mailbox_->failure; };
  if (!mailbox_->is_new.wait_for(lock, wait, has_some)) return std::nullopt;
  if (mailbox_->events.empty()) std::rethrow_exception(mailbox_->failure);
  AnswerEvent event = std::move(mailbox_->events.front());
  mailbox_->events.pop_front();
  if (event.end) --pending_;
  return event;
}

struct AnswerService::Impl {
  static constexpr std::size_t max_answers = 1024;  // under way and waiting
  using Mailbox = PendingAnswers::Mailbox;
  /// Where an answer goes.
  struct Receiver {
    std::shared_ptr<Mailbox> mailbox;
    std::size_t index = 0;

    void put(models::FinishedAnswer answer) const {
      mailbox->put({.index = index, .text = {}, .end = std::move(answer)});
    }
  };
  using Receivers = std::map<std::int64_t, Receiver>;
  using EarlyAnswers = std::map<std::int64_t, models::FinishedAnswer>;

  Impl(const models::LanguageModel& of, const models::AnswerBatchOptions& chosen)
      : model(of), options(chosen), batch(model, options), worker([this] { work(); }) {}

  void work() {
    while (wait_for_work()) {
      try {
        const auto begin = std::chrono::steady_clock::now();
        std::vector<models::FinishedAnswer> finished = batch.step();
        deliver(std::move(finished), std::chrono::steady_clock::now() - begin);
      } catch (...) {
        fail(std::current_exception());
      }
    }
  }

  /// Returns whether there is some; none comes after stop().
  bool wait_for_work() {
    std::unique_lock lock(mutex);
    has_work.wait(lock, [&] { return is_stopping || !receivers.empty(); });
    return !receivers.empty();
  }

  void deliver(std::vector<models::FinishedAnswer> finished, std::chrono::nanoseconds step_time) {
    const std::scoped_lock lock(mutex);
    ++counts.steps;
    counts.step_time += step_time;
    for (models::FinishedAnswer& answer : finished) {
      if (abandoned.erase(answer.id) > 0) continue;
      count(answer);
      const auto found = receivers.find(answer.id);
      if (found == receivers.end()) {
        early.emplace(answer.id, std::move(answer));
      } else {
        found->second.put(std::move(answer));
        receivers.erase(found);
      }
    }
  }

  void count(const models::FinishedAnswer& answer) {
    ++(answer.error ? counts.failed : counts.ended);
    counts.prompt_tokens += answer.answer.prompt_tokens;
    counts.reused_tokens += answer.answer.reused_tokens;
    counts.generated_tokens += static_cast<std::int64_t>(answer.answer.tokens.size());
  }

  /// A step that failed as a whole, such as for lack of memory, ends all answers. Only the new batch needs memory.
  void fail(const std::exception_ptr& error) {
    const std::scoped_lock lock(mutex);
    failure = error;
    ++failures;
    counts.failed += static_cast<std::int64_t>(receivers.size());
    for (const auto& [id, to] : receivers) {
      to.mailbox->cancel.request_stop();
      to.mailbox->fail(error);
    }
    try {
      batch = models::AnswerBatch(model, options);
      ++batches;
      // The new one counts from 0 again.
      abandoned.clear();
      early.clear();
    } catch (...) {  // without memory for one, the old one goes on: its answers are cancelled
      abandoned.merge(receivers);
    }
    receivers.clear();
  }

  /// Under the lock.
  void check_open() const {
    if (is_stopping) throw Error(Errc::cancelled, "server", "the server is stopping");
    if (receivers.size() >= max_answers) {
      throw Error(Errc::busy, "server", "too many answers wait: try again later");
    }
  }

  /// Adds an answer, which may end before its receiver is known: nothing is locked meanwhile, for a grammar takes its time.
  void add(models::AnswerRequest request, Receiver to) {
    std::unique_lock lock(mutex);
    check_open();
    models::AnswerBatch current = batch;
    const std::uint64_t batch_before = batches, failure_before = failures;
    lock.unlock();
    // Once the answer is in the batch, no memory is needed to know of it.
    Receivers made;
    made.emplace(0, to);
    Receivers::node_type receiver = made.extract(made.begin());
    const std::int64_t id = current.add(std::move(request));
    receiver.key() = id;
    lock.lock();
    // The answer is in the batch already, or has ended; a batch that was replaced has none any more.
    const auto ended = batches == batch_before ? early.extract(id) : EarlyAnswers::node_type();
    const bool is_in_batch = batches == batch_before && ended.empty();
    try {
      check_open();
    } catch (...) {
      if (is_in_batch) abandoned.insert(std::move(receiver));
      throw;
    }
    if (!ended.empty()) {
      to.put(std::move(ended.mapped()));
    } else if (failures != failure_before) {
      ++counts.failed;
      to.mailbox->cancel.request_stop();
      to.mailbox->fail(failure);
      if (is_in_batch) abandoned.insert(std::move(receiver));
    } else {
      receivers.insert(std::move(receiver));
      has_work.notify_one();
    }
  }

  models::LanguageModel model;
  models::AnswerBatchOptions options;
  std::mutex mutex;
  std::condition_variable has_work;
  models::AnswerBatch batch;
  std::uint64_t failures = 0;  // of steps
  std::uint64_t batches = 0;   // that were replaced after one
  std::exception_ptr failure;
  // By the number of the answer: who waits for it, and those that ended before that was known.
  Receivers receivers;
  EarlyAnswers early;
  Receivers abandoned;   // were told that their answers failed
  ServiceCounts counts;  // but for `under_way`
  bool is_stopping = false;
  std::thread worker;  // last: it uses the others
};

AnswerService::AnswerService(const models::LanguageModel& model,
                             const models::AnswerBatchOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}

AnswerService::~AnswerService() {
  stop();
  impl_->worker.join();
}

PendingAnswers AnswerService::answer(std::vector<models::AnswerRequest> requests) {
  auto mailbox = std::make_shared<PendingAnswers::Mailbox>();
  PendingAnswers pending(mailbox, requests.size());  // ends what was added when a later one fails
  for (std::size_t index = 0; index < requests.size(); ++index) {
    models::AnswerRequest& request = requests[index];
    request.options.interrupt.cancel = mailbox->cancel.get_token();
    const auto drawn = std::make_shared<std::vector<models::Generated::Choice>>();
    request.emit_choice = [drawn](const auto& choice) { drawn->push_back(choice); };
    request.emit = [mailbox, index, drawn](std::string_view text) {
      mailbox->put(
          {.index = index, .text = std::string(text), .choices = std::exchange(*drawn, {})});
    };
    impl_->add(std::move(request), {mailbox, index});
  }
  return pending;
}

ServiceCounts AnswerService::counts() const {
  const std::scoped_lock lock(impl_->mutex);
  ServiceCounts counts = impl_->counts;
  counts.under_way = static_cast<std::int64_t>(impl_->receivers.size());
  return counts;
}

void AnswerService::stop() {
  const std::scoped_lock lock(impl_->mutex);
  impl_->is_stopping = true;
  for (const auto& [id, to] : impl_->receivers) to.mailbox->cancel.request_stop();
  impl_->has_work.notify_one();
}

}  // namespace tenon::tool
