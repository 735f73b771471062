#include <tenon/fork_locked_mutex.hpp>

#include <mutex>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace tenon {

/// A list. A thread that holds one of them locks no other, so they may be locked in any order.
struct ForkLockedMutex::All {
  static std::mutex mutex;
  static ForkLockedMutex* first;
  static const int registered;

  static void lock() {
    mutex.lock();
    for (ForkLockedMutex* each = first; each != nullptr; each = each->next_) each->lock();
  }
  static void unlock() {
    for (ForkLockedMutex* each = first; each != nullptr; each = each->next_) each->unlock();
    mutex.unlock();
  }
};

constinit std::mutex ForkLockedMutex::All::mutex;
constinit ForkLockedMutex* ForkLockedMutex::All::first = nullptr;

// Not at the first use: that could be in one thread while another forks.
#if defined(__unix__) || defined(__APPLE__)
const int ForkLockedMutex::All::registered = ::pthread_atfork(lock, unlock, unlock);
#endif

ForkLockedMutex::ForkLockedMutex() {
  const std::scoped_lock lock(All::mutex);
  next_ = All::first;
  if (next_ != nullptr) next_->previous_ = this;
  All::first = this;
}

ForkLockedMutex::~ForkLockedMutex() {
  const std::scoped_lock lock(All::mutex);
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ != nullptr ? previous_->next_ : All::first) = next_;
}

}  // namespace tenon
