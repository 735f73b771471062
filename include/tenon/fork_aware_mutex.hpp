#pragma once

#include <tenon/error.hpp>
#include <tenon/process_number.hpp>

#include <atomic>
#include <cstdint>

namespace tenon {

/// A mutex that tells when nobody will ever unlock it: for an object, and for as long as its work
/// takes. As std::mutex. In the child of a fork() that found it locked by another thread, `lock`
/// throws Errc::forked_process: that thread does not exist in the child, and what the mutex
/// protects may be half changed.
class ForkAwareMutex {
 public:
  /// `owner`: what errors name, text that stays.
  explicit ForkAwareMutex(const char* owner) noexcept : owner_(owner) {}
  ForkAwareMutex(const ForkAwareMutex&) = delete;
  ForkAwareMutex& operator=(const ForkAwareMutex&) = delete;

  void lock() {
    while (!try_lock()) {
      const std::uint64_t held = holder_.load(std::memory_order_relaxed);
      if (held == 0) continue;
      if (held != own_mark()) refuse();
      holder_.wait(held, std::memory_order_relaxed);
    }
  }
  /// As `lock`, but a lock that is lost is taken over: where nothing can be half changed.
  void lock_or_take_over() noexcept {
    while (!try_lock()) {
      std::uint64_t held = holder_.load(std::memory_order_relaxed);
      if (held == own_mark()) {
        holder_.wait(held, std::memory_order_relaxed);
      } else if (held != 0 &&
                 holder_.compare_exchange_strong(held, own_mark(), std::memory_order_acquire,
                                                 std::memory_order_relaxed)) {
        return;
      }
    }
  }
  bool try_lock() noexcept {
    std::uint64_t nobody = 0;
    return holder_.compare_exchange_strong(nobody, own_mark(), std::memory_order_acquire,
                                           std::memory_order_relaxed);
  }
  void unlock() noexcept {
    holder_.store(0, std::memory_order_release);
    holder_.notify_one();
  }
  /// Whether a thread of a parent process holds it.
  bool is_lost() const noexcept {
    const std::uint64_t held = holder_.load(std::memory_order_relaxed);
    return held != 0 && held != own_mark();
  }

 private:
  static std::uint64_t own_mark() noexcept { return std::uint64_t{process_number()} + 1; }
  [[noreturn]] void refuse() const {
    throw Error(Errc::forked_process, owner_,
                "another thread was inside a call on this object at fork(): make a new one");
  }

  const char* owner_;
  std::atomic<std::uint64_t> holder_{0};  // the number of its process, plus 1
};

}  // namespace tenon
