#pragma once

#include "hash_slots.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tenon::text {

/// Finds a token's id by its text. The texts stay where they are.
///
/// Slots of 8 bytes: a vocabulary of 262,144 tokens takes 4 MiB and some 15 ms to index.
class TokenIndex {
 public:
  struct Slot {
    std::uint32_t tag = 0;  ///< other bits of the hash than the position uses
    std::int32_t id = -1;
  };

  /// Errors: bad_tokenizer where two tokens have one text.
  explicit TokenIndex(std::span<const std::string_view> tokens);
  /// With the slots() of an index of the same tokens.
  TokenIndex(std::span<const std::string_view> tokens, std::span<const Slot> kept);

  std::span<const Slot> slots() const noexcept { return slots_.all(); }

  /// The id, or -1.
  std::int32_t find(std::string_view text) const noexcept;

  /// The length of the longest token in bytes.
  std::size_t max_length() const noexcept { return max_length_; }

 private:
  std::span<const std::string_view> tokens_;
  HashSlots<Slot> slots_;
  std::size_t max_length_ = 0;
};

}  // namespace tenon::text
