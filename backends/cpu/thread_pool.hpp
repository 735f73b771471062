#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace tenon::cpu {

/// A barrier for the threads of one parallel region.
///
/// Waiting spins for some microseconds and then parks, so a crossing costs hundreds of nanoseconds
/// when every thread has a core, and a thread without one does not keep the others' cores busy.
/// Memory written by a thread before `wait` is visible to all threads after it.
class Barrier {
 public:
  /// `threads` >= 1 is the number of threads that cross together.
  explicit Barrier(int threads) noexcept;
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  void wait() noexcept;

 private:
  std::int32_t threads_;
  bool spins_;
  alignas(64) std::atomic<std::int32_t> arrived_{0};
  alignas(64) std::atomic<std::int32_t> phase_{0};
};

/// The part [begin, end) of `count` items that falls to one of `threads` threads: contiguous, equal
/// to within one item.
struct Range {
  std::int64_t begin;
  std::int64_t end;
};
constexpr Range split(std::int64_t count, int thread, int threads) noexcept {
  return {count * thread / threads, count * (thread + 1) / threads};
}

/// How much of a thread's share has been taken: the number of the call in the high half, so that
/// nobody need set it back between calls, items in the low half.
struct alignas(64) TakenShare {
  std::atomic<std::uint64_t> of_call{0};
};

/// What a worker of a region knows about itself.
class Worker {
 public:
  /// `shares`: one per thread of the region, zeroes.
  Worker(int index, int count, Barrier& common, TakenShare* shares) noexcept
      : thread(index), threads(count), barrier(common), shares_(shares) {}

  const int thread;  ///< 0 is the thread that called `run`
  const int threads;
  Barrier& barrier;  ///< shared by all threads of the region; all must cross it equally often

  /// Calls run(begin, end) on this thread for stretches of [0, items), until with the other
  /// threads' calls every item is done or taken. Each thread has an even share of neighbours and
  /// takes from it by halves, down to `grain` items; who is done helps the others. All threads of
  /// the region must make the same calls in the same order. items < 2^32. No barrier inside.
  template <class F>
  void share(std::int64_t items, std::int64_t grain, F&& run) {
    ++calls_;
    for (int i = 0; i < threads; ++i) {
      const int owner = thread + i < threads ? thread + i : thread + i - threads;
      for (Range range{}; take(owner, items, grain, range);) run(range.begin, range.end);
    }
  }

 private:
  bool take(int owner, std::int64_t items, std::int64_t grain, Range& range) noexcept;

  TakenShare* shares_;
  std::uint32_t calls_ = 0;
};

/// Threads that run one parallel region at a time.
///
/// Between regions workers spin briefly, then park. A pool may be used from several threads; their
/// regions run one after the other. A region started from inside a region runs on the calling
/// thread alone (`threads` == 1), so nesting is slow but never deadlocks.
class ThreadPool {
 public:
  static constexpr int max_threads = 256;

  /// Clamped to [1, max_threads]; 0 means one thread per CPU this process may run on.
  /// If the machine refuses to start so many threads the pool is smaller; `threads` says how many.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept;

  /// Calls `body` once on each of max(1, min(threads(), limit)) threads and returns when all have
  /// finished. The caller is thread 0. If bodies throw, the exception of the lowest-numbered thread
  /// is rethrown here after all have ended; a body must not throw while others wait at the barrier,
  /// since they would wait forever.
  template <class F>
  void run(F&& body, int limit = max_threads) {
    using Body = std::remove_reference_t<F>;
    run_erased([](void* function, Worker& worker) { (*static_cast<Body*>(function))(worker); },
               const_cast<void*>(static_cast<const void*>(std::addressof(body))), limit);
  }

  /// Number of CPUs that this process may run on, at least 1.
  static int available_cpus() noexcept;

 private:
  struct State;
  using Trampoline = void (*)(void* function, Worker& worker);
  void run_erased(Trampoline call, void* function, int limit);

  std::unique_ptr<State> state_;
  int threads_ = 1;
};

}  // namespace tenon::cpu
