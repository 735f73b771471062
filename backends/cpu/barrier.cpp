#include "barrier.hpp"

#include "worker_accounts.hpp"

#include <chrono>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sched.h>
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

std::int32_t current_cpu() noexcept {
#if defined(__linux__)
  return ::sched_getcpu();
#else
  return -1;
#endif
}

void note_cpu(SeenCpu& seen, std::int32_t cpu) noexcept {
  if (seen.load(std::memory_order_relaxed) != cpu) seen.store(cpu, std::memory_order_relaxed);
}

Barrier::Barrier(int threads, bool spins, SeenCpu* cpus) noexcept
    : spins_(spins), cpus_(cpus), threads_(threads) {}

bool Barrier::shares_cpu(int thread, std::int32_t cpu) const noexcept {
  for (int i = 0; i < threads_; ++i) {
    if (i != thread && cpus_[i].load(std::memory_order_relaxed) == cpu) return true;
  }
  return false;
}

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
  bool spins = spins_;
  if (spins && cpus_ != nullptr) {
    const std::int32_t cpu = current_cpu();
    note_cpu(cpus_[thread], cpu);
    spins = cpu < 0 || !shares_cpu(thread, cpu);
  }
  if (arrive(thread)) return -1;
  if (spins && spin_while_equal(phase_, phase)) return -1;
  if (accounts != nullptr) accounts->begin_wait();
  park_while_equal(phase_, phase);
  return accounts != nullptr && accounts->end_wait(accounts->of(last_)) ? last_ : -1;
}

void Barrier::leave(int number) noexcept { arrive(number); }

}  // namespace tenon::cpu
