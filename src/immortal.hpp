#pragma once

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

}  // namespace tenon
