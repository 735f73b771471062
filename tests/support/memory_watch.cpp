#include "support/memory_watch.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <new>

#include <malloc.h>

namespace tenon::testing {
namespace {

constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

struct Counters {
  bool watching = false;
  std::ptrdiff_t live = 0;
  std::ptrdiff_t peak = 0;
  std::size_t allocations = 0;
  std::size_t fail_at = never;
  bool fail_for_ever = false;
};

constinit thread_local Counters counters;
constinit std::atomic<bool> none_elsewhere{false};
constinit thread_local bool is_elsewhere = true;

bool must_fail() noexcept {
  if (none_elsewhere.load(std::memory_order_relaxed) && is_elsewhere) return true;
  if (!counters.watching) return false;
  const std::size_t number = counters.allocations++;
  return number == counters.fail_at || (counters.fail_for_ever && number > counters.fail_at);
}

void* count(void* memory) noexcept {
  if (memory != nullptr && counters.watching) {
    counters.live += static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
    counters.peak = std::max(counters.peak, counters.live);
  }
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr && counters.watching) {
    counters.live -= static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
  }
  std::free(memory);
}

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (must_fail()) return nullptr;
  const std::size_t rounded =
      (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment;
  if (rounded < size) return nullptr;
  return count(alignment <= alignof(std::max_align_t) ? std::malloc(rounded)
                                                      : std::aligned_alloc(alignment, rounded));
}

}  // namespace

MemoryWatch::MemoryWatch() noexcept { counters = {.watching = true}; }
MemoryWatch::~MemoryWatch() { counters = {}; }
std::ptrdiff_t MemoryWatch::live_bytes() const noexcept { return counters.live; }
std::ptrdiff_t MemoryWatch::peak_bytes() const noexcept { return counters.peak; }
std::size_t MemoryWatch::allocations() const noexcept { return counters.allocations; }

void MemoryWatch::fail_at(std::size_t at, bool for_ever) noexcept {
  counters.allocations = 0;
  counters.fail_at = at;
  counters.fail_for_ever = for_ever;
}

void MemoryWatch::fail_never() noexcept {
  counters.fail_at = never;
  counters.fail_for_ever = false;
}

NoMemoryElsewhere::NoMemoryElsewhere() noexcept {
  is_elsewhere = false;
  none_elsewhere = true;
}
NoMemoryElsewhere::~NoMemoryElsewhere() {
  none_elsewhere = false;
  is_elsewhere = true;
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

}  // namespace tenon::testing

// Every form of the global operators, so that one kind of memory meets one kind of release.
namespace {
constexpr std::size_t plain = alignof(std::max_align_t);
void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

using tenon::testing::allocate;
using tenon::testing::release;

void* operator new(std::size_t size) { return or_throw(allocate(size, plain)); }
void* operator new[](std::size_t size) { return or_throw(allocate(size, plain)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return or_throw(allocate(size, static_cast<std::size_t>(alignment)));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return or_throw(allocate(size, static_cast<std::size_t>(alignment)));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, plain);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, plain);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
