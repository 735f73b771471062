#pragma once

#include <cstddef>

namespace tenon::testing {

/// Counts what operator new gives out on this thread while it lives; one at a time.
class MemoryWatch {
 public:
  MemoryWatch() noexcept;
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  std::ptrdiff_t live_bytes() const noexcept;  ///< given out and not returned yet
  std::ptrdiff_t peak_bytes() const noexcept;  ///< the most that live_bytes() has been
  std::size_t allocations() const noexcept;

  /// Makes the allocation number `at` (from 0) fail, and all later ones too where `for_ever`.
  void fail_at(std::size_t at, bool for_ever) noexcept;
  /// Lets everything succeed again.
  void fail_never() noexcept;
};

/// As long as it lives, operator new fails on all threads but this one.
class NoMemoryElsewhere {
 public:
  NoMemoryElsewhere() noexcept;
  ~NoMemoryElsewhere();
  NoMemoryElsewhere(const NoMemoryElsewhere&) = delete;
  NoMemoryElsewhere& operator=(const NoMemoryElsewhere&) = delete;
};

/// Open file descriptors of this process.
std::size_t open_descriptors();

}  // namespace tenon::testing
