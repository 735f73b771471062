#pragma once

#include <cstdint>
#include <string_view>

namespace tenon {

/// An interned identifier: axis tag, dimension symbol, layout, attribute word. Four bytes, compared
/// by number, trivially destructible, so that shapes and attributes can live in an arena.
///
/// The table of names is process-wide, only grows, and may be used from any thread.
class Name {
 public:
  constexpr Name() noexcept = default;  ///< the empty name

  /// At most 255 bytes; longer, or more than 2^20 distinct names: Errc::limit_exceeded.
  Name(std::string_view text);  // NOLINT(google-explicit-constructor): words read as names
  Name(const char* text) : Name(std::string_view(text)) {}  // NOLINT(google-explicit-constructor)

  /// Valid until the process ends.
  std::string_view text() const noexcept;
  constexpr bool empty() const noexcept { return id_ == 0; }
  constexpr std::uint32_t id() const noexcept { return id_; }

  /// The name with this id; `id` must come from id().
  static Name from_id(std::uint32_t id) noexcept;

  friend constexpr bool operator==(Name a, Name b) noexcept = default;

 private:
  std::uint32_t id_ = 0;
};

}  // namespace tenon
