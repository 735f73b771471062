// Work that is done later, in order.
#pragma once

#include <tenon/fork_aware_mutex.hpp>

#include <functional>
#include <memory>

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

  /// Adds a job, which must not throw. Errc::out_of_memory where no thread can be started,
  /// Errc::forked_process where jobs of the parent process had not ended at fork(). When it throws,
  /// `job` is as it was.
  void push(Job&& job);
  /// Whether no job waits or runs.
  bool is_idle() const;
  /// Returns when all jobs have ended; at once inside of a job. Errc::forked_process as above.
  void drain();

 private:
  struct State;
  void check_process();

  const char* owner_;
  mutable ForkAwareMutex mutex_;  // of state_
  std::shared_ptr<State> state_;  // null before the first job
};

}  // namespace tenon
