// Whether a pool's workers are worth waiting for while other programs use their cores.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

#if defined(__linux__)
#include <time.h>
#endif

namespace tenon::cpu {

#if defined(__linux__)
using CpuClock = clockid_t;
#else
struct CpuClock {};
#endif

/// The time that a worker has saved the callers of regions, less the time that they lost waiting
/// for it.
struct WorkerAccount {
  using Clock = std::chrono::steady_clock;

  /// The most that can be saved up: a worker may lose several time slices in a row before it is
  /// left out.
  static constexpr std::chrono::nanoseconds max_balance = std::chrono::milliseconds(20);
  /// A worker is left out for so many times what it lost, so that trying it costs 5 %.
  static constexpr int pause_factor = 20;

  std::chrono::nanoseconds balance = max_balance;
  Clock::time_point left_out_until{};
  CpuClock cpu_clock{};  ///< of the worker's thread
  std::chrono::nanoseconds cpu_time_before{};

  /// At the end of a region.
  void close(Clock::time_point now) noexcept;
};

/// The accounts of one region's workers, used by its caller alone. Lost is the time in which the
/// caller slept and the worker that it waited for did not run either: uneven shares of work are no
/// reason to leave a worker out.
class WorkerAccounts {
 public:
  using Clock = WorkerAccount::Clock;
  static constexpr int max_workers = 255;

  /// At the begin of a region, by its caller. workers.size() in [1, max_workers]: threads 1, 2, ...
  explicit WorkerAccounts(std::span<WorkerAccount* const> workers) noexcept;

  WorkerAccount& of(int thread) noexcept { return *accounts_[static_cast<std::size_t>(thread)]; }
  /// A thread left the region; the last one takes its number.
  void remove(int thread) noexcept;

  void begin_wait() noexcept;
  /// The wait was for worker `last`. True if that has lost more than it saved.
  bool end_wait(WorkerAccount& last) noexcept;
  /// At the end of the region.
  void close() noexcept;

 private:
  void book_savings() noexcept;

  std::array<WorkerAccount*, 1 + max_workers> accounts_;  // by thread, then those that left
  int workers_, threads_;
  std::chrono::nanoseconds booked_;  // the caller's CPU time up to which savings are
  Clock::time_point wait_begin_;
};

}  // namespace tenon::cpu
