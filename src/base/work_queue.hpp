// Work that is done later, in order.
#pragma once

#include <tenon/event.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/interrupt.hpp>

#include <functional>
#include <memory>
#include <string_view>

namespace tenon {

/// Runs jobs one after another on a thread of its own, which the first one starts. Thread-safe.
class WorkQueue {
 public:
  using Job = std::function<void()>;

  /// `owner`: the location that errors name; the text must outlive the queue.
  explicit WorkQueue(const char* owner) noexcept : owner_(owner), mutex_(owner) {}
  /// Waits for the jobs to end, unless one of them destroys the queue: the rest then runs after it.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Adds a job. When it has ended and is destroyed, `ended` gets what it threw, if anything; a
  /// child that is forked after that may use the queue. Errc::out_of_memory where no thread can be
  /// started, Errc::forked_process where jobs of the parent process had not ended at fork(): then
  /// `job` and `ended` are as they were.
  void push(Job&& job, EventSource&& ended);
  /// Returns when all jobs have ended and their events have happened; at once inside of a job.
  /// Errc::forked_process as above; Errc::cancelled or Errc::timeout, at `where`, once the interrupt
  /// is due before that.
  void drain(const Interrupt& interrupt = {}, std::string_view where = {});

 private:
  struct State;
  void check_process();

  const char* owner_;
  ForkAwareMutex mutex_;          // of state_
  std::shared_ptr<State> state_;  // null before the first job
};

}  // namespace tenon
