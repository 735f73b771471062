#include "barrier.hpp"

#include "worker_accounts.hpp"

#include <chrono>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tenon::cpu {
namespace {

// Longer than a step between two layers, shorter than a scheduler's time slice: a thread that waits
// longer has been descheduled or has nothing to do, and its core is better given away.
constexpr auto spin_time = std::chrono::microseconds(50);

void pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

bool spin_while_equal(const std::atomic<std::int32_t>& word, std::int32_t old) noexcept {
  const auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 16; ++i) {
      if (word.load(std::memory_order_acquire) != old) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void park_while_equal(const std::atomic<std::int32_t>& word, std::int32_t old) noexcept {
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

Barrier::Barrier(int threads, bool spins) noexcept : spins_(spins), threads_(threads) {}

bool Barrier::arrive(int thread) noexcept {
  const std::int32_t threads = threads_;  // may change as soon as this thread has arrived
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < threads) return false;
  arrived_.store(0, std::memory_order_relaxed);
  last_ = thread;
  if (left_ >= 0) --threads_;
  left_ = std::exchange(leaving_, -1);
  phase_.fetch_add(1, std::memory_order_release);
  phase_.notify_all();
  return true;
}

int Barrier::wait(int thread, WorkerAccounts* accounts) noexcept {
  const std::int32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrive(thread)) return -1;
  if (spins_ && spin_while_equal(phase_, phase)) return -1;
  if (accounts != nullptr) accounts->begin_wait();
  park_while_equal(phase_, phase);
  return accounts != nullptr && accounts->end_wait(accounts->of(last_)) ? last_ : -1;
}

void Barrier::leave(int number) noexcept { arrive(number); }

}  // namespace tenon::cpu
