#pragma once

#include <atomic>
#include <cstdint>

namespace tenon {

/// A mutex that fork() locks before it forks, and unlocks in parent and child: for what belongs to
/// the process, which a child needs whole. As std::mutex, for a few accesses to memory at a time:
/// a thread that holds one locks no other and makes none, calls nothing of a user's, and waits for
/// nothing. What takes longer belongs under a ForkAwareMutex.
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

  // No std::mutex: the thread sanitizer ends a program in which a thread holds more than 64.
  std::atomic<std::int32_t> locked_{0};
  ForkLockedMutex* previous_ = nullptr;
  ForkLockedMutex* next_ = nullptr;
};

}  // namespace tenon
