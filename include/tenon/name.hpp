#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

/// An interned identifier: axis tag, dimension symbol, layout, attribute word. A pointer, trivially
/// destructible, so that shapes and attributes can live in an arena.
///
/// The table of names is process-wide, only grows, and may be used from any thread. A plugin that
/// brings its own copy of the core has a table of its own; names of both compare by their text.
class Name {
 public:
  constexpr Name() noexcept = default;  ///< the empty name

  /// Errc::limit_exceeded for more than 255 bytes, or more than 2^20 distinct names.
  Name(std::string_view text);  // NOLINT(google-explicit-constructor): words read as names
  Name(const char* text) : Name(std::string_view(text)) {}  // NOLINT(google-explicit-constructor)
  /// A string itself, not what makes one: {"k", 0} is an axis.
  template <std::same_as<std::string> Text>
  Name(const Text& text) : Name(std::string_view(text)) {}  // NOLINT(google-explicit-constructor)

  /// Valid until the process ends.
  std::string_view text() const noexcept {
    return entry_ == nullptr ? std::string_view() : entry_->text;
  }
  constexpr bool empty() const noexcept { return entry_ == nullptr; }
  /// Its number in the table; 0 for the empty name.
  std::uint32_t id() const noexcept { return entry_ == nullptr ? 0 : entry_->id; }

  /// The name with this id; `id` must come from id().
  static Name from_id(std::uint32_t id) noexcept;

  friend bool operator==(Name a, Name b) noexcept {
    if (a.entry_ == b.entry_) return true;
    if (a.entry_ == nullptr || b.entry_ == nullptr) return false;
    return a.entry_->hash == b.entry_->hash && a.entry_->text == b.entry_->text;
  }

 private:
  struct Entry {
    std::uint32_t id;
    std::uint32_t hash;
    std::string_view text;
  };
  struct Table;
  static Table& table();

  const Entry* entry_ = nullptr;
};

}  // namespace tenon
