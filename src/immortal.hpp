#pragma once

#include <atomic>
#include <utility>

extern "C" {
/// The leak checker's; null in a program without one.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
[[gnu::weak]] void __lsan_ignore_object(const void* object);
}

namespace tenon {

/// A new object that lives until the process ends: threads that still run then, and destructors of
/// static objects, may need it. The leak checker is told that it is meant to stay, for of a library
/// that was unloaded with a core of its own it sees no statics any more.
template <class T, class... Arguments>
T& immortal(Arguments&&... arguments) {
  T* const object = new T(std::forward<Arguments>(arguments)...);
  if (__lsan_ignore_object != nullptr) __lsan_ignore_object(object);
  return *object;
}

/// What `make`, a lambda of its own for each such object, returns at the first call: kept until the
/// process ends, the same for every caller. Unlike a static local it holds no lock while it is
/// made, which nobody would open in the child of a fork() on another thread: of several threads
/// that come first each makes one, and all but one let theirs go.
template <class Make>
auto& process_wide(const Make& make) {
  using Object = decltype(make());
  static constinit std::atomic<Object*> kept{nullptr};
  Object* found = kept.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  auto* const made = new Object(make());
  if (!kept.compare_exchange_strong(found, made, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
    delete made;
    return *found;
  }
  if (__lsan_ignore_object != nullptr) __lsan_ignore_object(made);
  return *made;
}

}  // namespace tenon
