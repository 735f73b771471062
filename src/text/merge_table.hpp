#pragma once

#include "merging.hpp"
#include "recipe.hpp"
#include "token_index.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon::text {

/// What two tokens merge into, and how early. A hash table with open addressing.
class MergeTable {
 public:
  /// Errors: bad_tokenizer where a merge's parts or its result are no tokens.
  MergeTable(const Recipe& recipe, const TokenIndex& index);

  Candidate find(std::int32_t left, std::int32_t right) const noexcept {
    const std::uint64_t key = pack(left, right);
    for (std::size_t at = mix(key) & mask_; slots_[at].id >= 0; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return {slots_[at].rank, slots_[at].id};
    }
    return {};
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t rank = 0;
    std::int32_t id = -1;
  };

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

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

}  // namespace tenon::text
