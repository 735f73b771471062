#pragma once

#include <atomic>
#include <cstdint>

namespace tenon::cpu {

class WorkerAccounts;

/// The CPU that the calling thread runs on, or -1 where the system does not say.
std::int32_t current_cpu() noexcept;
/// The CPU where a thread was last seen, or -1. Written when that changes, which is rare.
using SeenCpu = std::atomic<std::int32_t>;
void note_cpu(SeenCpu& seen, std::int32_t cpu) noexcept;

/// Whether `word` changed from `old` within some microseconds of spinning.
bool spin_while_equal(const std::atomic<std::int32_t>& word, std::int32_t old) noexcept;
/// Returns when `word` is no longer `old`; the thread sleeps meanwhile.
void park_while_equal(const std::atomic<std::int32_t>& word, std::int32_t old) noexcept;

/// A barrier for the threads of one parallel region. Waiting spins for some microseconds and then
/// parks, so a crossing costs hundreds of nanoseconds when every thread has a core, and a thread
/// without one does not keep the others' cores busy. A thread that was last seen on the same CPU as
/// one that it waits for gives the CPU away at once: while it spun, the other could not run. Memory written by a thread before `wait` is
/// visible to all threads after it.
class Barrier {
 public:
  /// `threads` >= 1 is the number of threads that cross together. Without `spins` a thread that
  /// waits parks at once. `cpus`: null, or one for each thread, to be kept for the next barrier of
  /// these threads.
  Barrier(int threads, bool spins, SeenCpu* cpus = nullptr) noexcept;
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  /// `thread` in [0, threads) is the caller's number, different for each. `accounts`, if any, book
  /// a wait that goes beyond spinning; the result is the thread that has lost too much by it, or
  /// -1.
  int wait(int thread, WorkerAccounts* accounts = nullptr) noexcept;

  /// Removes a thread: it crosses once more, after which `left` names it to all threads, and calls
  /// `leave` in place of the next crossing. Only thread 0 may call this, between two crossings.
  void take_out(int thread) noexcept { leaving_ = thread; }
  /// The thread that left with the crossing before, or -1.
  int left() const noexcept { return left_; }
  /// Does not wait. `number` is the thread's number for others that wait for this call.
  void leave(int number) noexcept;

 private:
  bool arrive(int thread) noexcept;
  /// Whether another thread was last seen where `thread` is.
  bool shares_cpu(int thread, std::int32_t cpu) const noexcept;

  bool spins_;
  SeenCpu* cpus_;
  int leaving_ = -1;
  alignas(64) std::atomic<std::int32_t> arrived_{0};
  // Written by the last thread to arrive before it releases the others.
  alignas(64) std::atomic<std::int32_t> phase_{0};
  std::int32_t threads_;
  int last_ = 0, left_ = -1;
};

}  // namespace tenon::cpu
