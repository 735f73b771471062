#pragma once

#include <atomic>
#include <utility>

extern "C" {
/// The leak checker's; null in a program without one.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
[[gnu::weak]] void __lsan_ignore_object(const void* object);
}

namespace tenon {

/// A new object that is never destroyed: threads that still run at exit, and static destructors,
/// may need it. It is reported to the leak checker as intended, because the checker does not see
/// the statics of an unloaded plugin with its own copy of the core.
template <class T, class... Arguments>
T& immortal(Arguments&&... arguments) {
  T* const object = new T(std::forward<Arguments>(arguments)...);
  if (__lsan_ignore_object != nullptr) __lsan_ignore_object(object);
  return *object;
}

/// The object that `make` (a different lambda type for each such object) returns at the first call:
/// never destroyed, the same for all callers. Unlike a static local it holds no lock during
/// construction, which would stay locked in the child of a fork(). When several threads come first,
/// each makes one, and all but one are discarded.
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
