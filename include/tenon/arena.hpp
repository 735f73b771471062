#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

namespace tenon {

/// Bump allocation from one block with a fixed budget. Objects are trivially destructible, so that
/// the whole arena is freed at once. Not thread-safe.
class Arena {
 public:
  /// Allocates the budget from the heap at once; its pages are not accessed before they are used.
  /// Errc::out_of_memory.
  explicit Arena(std::size_t budget_bytes);

  std::size_t budget() const noexcept { return budget_; }
  std::size_t used() const noexcept { return used_; }

  /// Uninitialised bytes. Size 0 gives a valid pointer. Errc::bad_argument for an alignment that is
  /// not a power of two up to 4096. Errc::out_of_arena, naming the bytes needed and left; earlier
  /// objects stay intact.
  void* allocate(std::size_t size, std::size_t alignment);

  template <class T>
  T* make(const T& value) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (allocate(sizeof(T), alignof(T))) T(value);
  }

  template <class T>
  std::span<T> copy(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    auto* begin = static_cast<T*>(allocate(values.size_bytes(), alignof(T)));
    if (!values.empty()) std::memcpy(begin, values.data(), values.size_bytes());
    return {begin, values.size()};
  }

  std::string_view copy(std::string_view text) {
    const auto stored = copy(std::span<const char>(text.data(), text.size()));
    return {stored.data(), stored.size()};
  }

  /// Frees everything that was allocated since used() was `mark`.
  void rewind(std::size_t mark) noexcept { used_ = mark; }

 private:
  std::unique_ptr<std::byte[]> block_;
  std::size_t budget_;
  std::size_t used_ = 0;
};

}  // namespace tenon
