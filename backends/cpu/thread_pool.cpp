#include "thread_pool.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tenon::cpu {
namespace {

// Longer than a step between two layers, shorter than a scheduler's time slice: a thread that waits
// longer has been descheduled or has nothing to do, and its core is better given away.
constexpr auto spin_time = std::chrono::microseconds(50);

// True inside a region of any pool: a nested region runs on its own thread.
thread_local bool inside_region = false;

void pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Returns when `word` is no longer `old`: spins first if asked to, then parks.
void wait_while_equal(const std::atomic<std::int32_t>& word, std::int32_t old,
                      bool spins) noexcept {
  if (spins) {
    const auto end = std::chrono::steady_clock::now() + spin_time;
    do {
      for (int i = 0; i < 16; ++i) {
        if (word.load(std::memory_order_acquire) != old) return;
        pause();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

}  // namespace

Barrier::Barrier(int threads) noexcept
    : threads_(threads), spins_(threads <= ThreadPool::available_cpus()) {}

void Barrier::wait() noexcept {
  if (threads_ == 1) return;
  const std::int32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    wait_while_equal(phase_, phase, spins_);
  }
}

bool Worker::take(int owner, std::int64_t items, std::int64_t grain, Range& range) noexcept {
  const Range all = split(items, owner, threads);
  std::atomic<std::uint64_t>& taken = shares_[owner].of_call;
  std::uint64_t seen = taken.load(std::memory_order_relaxed);
  while (true) {
    // An owner who is further on found nothing left here; one who is not here yet took nothing.
    const auto ahead = static_cast<std::int32_t>(static_cast<std::uint32_t>(seen >> 32) - calls_);
    if (ahead > 0) return false;
    const std::int64_t before = ahead < 0 ? 0 : static_cast<std::int64_t>(seen & 0xFFFFFFFFu);
    range.begin = all.begin + before;
    if (range.begin >= all.end) return false;
    const std::int64_t left = all.end - range.begin;
    range.end = range.begin + std::min(left, std::max(grain, left / 2));
    const auto after = static_cast<std::uint64_t>(range.end - all.begin);
    // The items' own data is ordered by barriers.
    if (taken.compare_exchange_weak(seen, std::uint64_t{calls_} << 32 | after,
                                    std::memory_order_relaxed)) {
      return true;
    }
  }
}

struct ThreadPool::State {
  // A worker sleeps on its own word, so a region of few threads wakes only those.
  struct alignas(64) Slot {
    std::atomic<std::int32_t> generation{0};
    std::exception_ptr error;
    std::thread thread;
  };
  std::vector<TakenShare> shares;
  struct Region {
    Trampoline call;
    void* function;
    int threads;
    Barrier barrier;
  };

  std::vector<Slot> slots;
  std::mutex one_region;  // held by the caller of `run`
  Region* region = nullptr;
  bool spins = true;
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<std::int32_t> unfinished{0};

  explicit State(int threads)
      : shares(static_cast<std::size_t>(threads)), slots(static_cast<std::size_t>(threads)) {}

  void run_body(Region& r, int thread) noexcept {
    const bool outer = std::exchange(inside_region, true);
    try {
      Worker worker(thread, r.threads, r.barrier, shares.data());
      r.call(r.function, worker);
    } catch (...) {
      slots[static_cast<std::size_t>(thread)].error = std::current_exception();
    }
    inside_region = outer;
  }

  void work(int thread) noexcept {
    Slot& slot = slots[static_cast<std::size_t>(thread)];
    for (std::int32_t seen = 0;; ++seen) {
      wait_while_equal(slot.generation, seen, spins);
      if (stopping.load(std::memory_order_relaxed)) return;
      run_body(*region, thread);
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
    }
  }

  void wake(Slot& slot) noexcept {
    slot.generation.fetch_add(1, std::memory_order_release);
    slot.generation.notify_one();
  }
};

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = available_cpus();
  threads = std::min(threads, max_threads);
  state_ = std::make_unique<State>(threads);
  state_->spins = threads <= available_cpus();
  int started = 1;
  try {
    for (; started < threads; ++started) {
      state_->slots[static_cast<std::size_t>(started)].thread =
          std::thread([state = state_.get(), started] { state->work(started); });
    }
  } catch (const std::system_error&) {
    // Fewer threads than asked for: `threads_` below says so.
  }
  threads_ = started;
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_relaxed);
  for (int i = 1; i < threads_; ++i) state_->wake(state_->slots[static_cast<std::size_t>(i)]);
  for (int i = 1; i < threads_; ++i) state_->slots[static_cast<std::size_t>(i)].thread.join();
}

int ThreadPool::threads() const noexcept { return threads_; }

void ThreadPool::run_erased(Trampoline call, void* function, int limit) {
  if (inside_region) {
    Barrier barrier(1);
    TakenShare share;
    Worker worker(0, 1, barrier, &share);
    call(function, worker);
    return;
  }
  const int threads = std::max(1, std::min(threads_, limit));
  State& s = *state_;
  const std::lock_guard lock(s.one_region);
  State::Region region{call, function, threads, Barrier(threads)};
  for (TakenShare& share : s.shares) share.of_call.store(0, std::memory_order_relaxed);
  s.region = &region;
  s.unfinished.store(threads - 1, std::memory_order_relaxed);
  for (int i = 1; i < threads; ++i) s.wake(s.slots[static_cast<std::size_t>(i)]);
  s.run_body(region, 0);
  for (std::int32_t left; (left = s.unfinished.load(std::memory_order_acquire)) != 0;) {
    wait_while_equal(s.unfinished, left, s.spins);
  }
  std::exception_ptr first;
  for (int i = 0; i < threads; ++i) {
    std::exception_ptr error = std::exchange(s.slots[static_cast<std::size_t>(i)].error, nullptr);
    if (!first) first = error;
  }
  if (first) std::rethrow_exception(first);
}

int ThreadPool::available_cpus() noexcept {
  static const int count = [] {
#if defined(__linux__)
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }();
  return count;
}

}  // namespace tenon::cpu
