#pragma once

#include "hash_slots.hpp"
#include "merging.hpp"
#include "recipe.hpp"
#include "token_index.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenon::text {

/// What two tokens merge into, and how early.
class MergeTable {
 public:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t rank = 0;
    std::int32_t id = -1;
  };

  /// Errors: bad_tokenizer where a merge's parts or its result are no tokens.
  MergeTable(std::span<const Merge> merges, const Recipe& recipe, const TokenIndex& index);
  /// With the slots() of a table of the same merges.
  explicit MergeTable(std::span<const Slot> kept) : slots_(kept) {}

  std::span<const Slot> slots() const noexcept { return slots_.all(); }

  Candidate find(std::int32_t left, std::int32_t right) const noexcept {
    const std::uint64_t key = pack(left, right);
    for (std::size_t at = mix(key); slots_[at].id >= 0; ++at) {
      if (slots_[at].key == key) return {slots_[at].rank, slots_[at].id};
    }
    return {};
  }

 private:
  static std::uint64_t pack(std::int32_t left, std::int32_t right) noexcept {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
           static_cast<std::uint32_t>(right);
  }

  /// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
  static std::size_t mix(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return static_cast<std::size_t>(x ^ (x >> 31));
  }

  HashSlots<Slot> slots_;
};

}  // namespace tenon::text
