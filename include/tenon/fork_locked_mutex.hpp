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
    while (!try_lock()) locked_.wait(1, std::memory_order_relaxed);
  }
  bool try_lock() noexcept { return locked_.exchange(1, std::memory_order_acquire) == 0; }
  void unlock() noexcept {
    locked_.store(0, std::memory_order_release);
    locked_.notify_one();
  }

 private:
  struct All;

  // Not a std::mutex: the thread sanitizer aborts when a thread holds more than 64 of them.
  std::atomic<std::int32_t> locked_{0};
  ForkLockedMutex* previous_ = nullptr;
  ForkLockedMutex* next_ = nullptr;
};

}  // namespace tenon
