#pragma once

#include <mutex>

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

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct All;

  std::mutex mutex_;
  ForkLockedMutex* previous_ = nullptr;
  ForkLockedMutex* next_ = nullptr;
};

}  // namespace tenon
