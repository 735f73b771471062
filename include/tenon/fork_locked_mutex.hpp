#pragma once

#include <atomic>
#include <cstdint>

namespace tenon {

/// A std::mutex that fork() locks before it forks and unlocks in parent and child, so that the
/// child finds the data consistent: for process-wide state. For short critical sections only: while
/// a thread holds one, it must not lock or construct another, call user code, or wait. Longer work
/// uses a ForkAwareMutex.
class ForkLockedMutex {
 public:
  ForkLockedMutex();
  ~ForkLockedMutex();
  ForkLockedMutex(const ForkLockedMutex&) = delete;
  ForkLockedMutex& operator=(const ForkLockedMutex&) = delete;

  void lock() noexcept {
    if (try_lock()) return;
    while (state_.exchange(contended, std::memory_order_acquire) != unlocked) {
      state_.wait(contended, std::memory_order_relaxed);
    }
  }
  bool try_lock() noexcept {
    std::int32_t expected = unlocked;
    return state_.compare_exchange_strong(expected, locked, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  /// Wakes nobody where nobody waits: std::atomic shares its table of waiters between addresses, and
  /// calls the system whenever a thread waits at one that has the same place there.
  void unlock() noexcept {
    if (state_.exchange(unlocked, std::memory_order_release) == contended) state_.notify_one();
  }

 private:
  struct All;

  // Not a std::mutex: the thread sanitizer aborts when a thread holds more than 64 of them.
  static constexpr std::int32_t unlocked = 0, locked = 1, contended = 2;
  std::atomic<std::int32_t> state_{unlocked};
  ForkLockedMutex* previous_ = nullptr;
  ForkLockedMutex* next_ = nullptr;
};

}  // namespace tenon
