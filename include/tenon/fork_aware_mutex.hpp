#pragma once

#include <tenon/error.hpp>
#include <tenon/process_number.hpp>

#include <atomic>
#include <cstdint>

namespace tenon {

/// A std::mutex that detects in the child of a fork() that it was locked by a thread of the parent.
/// That thread does not exist in the child, and what the mutex protects may be inconsistent: `lock`
/// then throws Errc::forked_process. For objects, held for any length of time.
class ForkAwareMutex {
 public:
  /// `owner`: the location that errors name; the text must outlive the mutex.
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
  /// As `lock`, but takes over a lost lock: for data that is never inconsistent.
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
