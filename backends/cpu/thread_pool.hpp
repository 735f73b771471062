#pragma once

#include "barrier.hpp"

#include <tenon/interrupt.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace tenon::cpu {

/// The share [begin, end) of `count` items of one of `threads` threads: contiguous, equal to within
/// one item.
struct Range {
  std::int64_t begin;
  std::int64_t end;
};
constexpr Range split(std::int64_t count, int thread, int threads) noexcept {
  return {count * thread / threads, count * (thread + 1) / threads};
}

/// How much of a thread's share has been taken: the index of the call in the high half, so that it
/// need not be reset between calls, items in the low half.
struct alignas(64) TakenShare {
  std::atomic<std::uint64_t> of_call{0};
};

/// What a worker of a region knows about itself.
class Worker {
 public:
  /// `shares`: one per thread of the region, zeroes.
  Worker(int index, int count, Barrier& common, TakenShare* shares,
         WorkerAccounts* accounts = nullptr) noexcept
      : thread(index),
        threads(count),
        id(index),
        barrier_(common),
        shares_(shares),
        accounts_(accounts) {}

  int thread;    ///< in [0, threads); 0 is the thread that called `run`. `sync` may change both
  int threads;   ///< that share the work
  const int id;  ///< what `thread` was at first: for memory of a thread's own

  /// Waits for all threads of the region; all must cross equally often. In an elastic region a
  /// worker that costs more time than it saves is taken out here: for that thread the result is
  /// false and its body must return at once; for the others `thread` and `threads` may change.
  /// Memory written by a thread before is visible to all threads after.
  [[nodiscard]] bool sync() noexcept;

  /// Work stealing: calls run(begin, end) on this thread for ranges of [0, items) until every item
  /// has been taken by some thread. Each thread has an even contiguous share and takes half of the
  /// rest at a time, down to `grain` items; a thread whose share is empty steals from the others. A
  /// lone thread takes all of it.
  /// All threads of the region must make the same calls in the same order. items < 2^32. No barrier
  /// inside.
  template <class F>
  void share(std::int64_t items, std::int64_t grain, F&& run) {
    ++calls_;
    for (int i = 0; i < threads; ++i) {
      const int owner = thread + i < threads ? thread + i : thread + i - threads;
      for (Range range{}; !is_interrupted() && take(owner, items, grain, range);) {
        run(range.begin, range.end);
      }
    }
  }

  /// Null, or what ends the region's work early.
  const Interrupt* interrupt = nullptr;
  /// Whether the rest of the work is to be left out; barriers are crossed nevertheless.
  bool is_interrupted() const noexcept { return interrupt != nullptr && interrupt->is_due(); }

 private:
  static constexpr std::int64_t looks_per_call = 64;  // of share(), at `interrupt`

  bool take(int owner, std::int64_t items, std::int64_t grain, Range& range) noexcept;

  Barrier& barrier_;
  TakenShare* shares_;
  WorkerAccounts* accounts_;  // of the thread that called `run`, in elastic regions
  std::uint32_t calls_ = 0;
};

/// Threads that run parallel regions.
///
/// Between regions workers spin briefly, then park. A pool may be used from several threads at
/// once: each region takes workers that are free, at most its caller's even part of them, and runs
/// on the caller alone where none are. A pool of one thread shares nothing between its callers. A
/// region started from inside a region runs on the calling thread alone, so nesting is slow but
/// never deadlocks.
///
/// After fork() the first region in the child starts workers of the child's own. Whatever other
/// threads of the parent did with the pool at that moment has no effect on the child.
class ThreadPool {
 public:
  static constexpr int max_threads = 256;

  /// Clamped to [1, max_threads]; 0 means one thread per CPU this process may run on.
  /// If the machine refuses to start so many threads, or has no memory for them, the pool is
  /// smaller; `threads` says how many. std::bad_alloc where there is no memory for even one.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Threads that a region has at most.
  int threads() const noexcept { return threads_; }

  /// Calls `body` once on each of at most max(1, min(threads(), limit)) threads, of as many if no
  /// other region runs, and returns when all have finished. The caller is thread 0. If bodies
  /// throw, the exception of the lowest-numbered thread is rethrown here after all have ended; a
  /// body must not throw while others wait in Worker::sync, since they would wait forever.
  template <class F>
  void run(F&& body, int limit = max_threads) {
    run_erased(call_of<F>(), address_of(body), limit, false);
  }

  /// As `run`, for work whose results do not depend on the number of threads. Leaves out workers
  /// that lately cost more time than they saved, since noisy neighbours use their cores, and tries
  /// them again after 20 times the time lost.
  template <class F>
  void run_elastic(F&& body, int limit = max_threads) {
    run_erased(call_of<F>(), address_of(body), limit, true);
  }

  /// Number of CPUs that this process may run on, at least 1.
  static int available_cpus() noexcept;

 private:
  struct State;
  class Team;
  using Trampoline = void (*)(void* function, Worker& worker);
  template <class F>
  static Trampoline call_of() noexcept {
    return [](void* function, Worker& worker) {
      (*static_cast<std::remove_reference_t<F>*>(function))(worker);
    };
  }
  template <class Body>
  static void* address_of(Body& body) noexcept {
    return const_cast<void*>(static_cast<const void*>(std::addressof(body)));
  }
  static void run_alone(Trampoline call, void* function);
  void run_erased(Trampoline call, void* function, int limit, bool elastic);
  State& state();

  std::atomic<State*> state_;
  int threads_ = 1;
};

}  // namespace tenon::cpu
