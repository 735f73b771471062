#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tenon::text {

/// The slots of a hash table with open addressing, in owned or borrowed memory. Their number is a
/// power of two, and at least half of them are empty (a negative `id`).
template <class Slot>
class HashSlots {
 public:
  static std::size_t count_for(std::size_t entries) noexcept { return std::bit_ceil(2 * entries); }

  explicit HashSlots(std::size_t entries) : made_(count_for(entries)), all_(made_) {}
  explicit HashSlots(std::span<const Slot> kept) : all_(kept) {}
  HashSlots(HashSlots&&) noexcept = default;
  HashSlots& operator=(HashSlots&&) noexcept = default;

  std::span<const Slot> all() const noexcept { return all_; }

  /// The index wraps around: a search starts at a hash and ends at an empty slot.
  const Slot& operator[](std::size_t at) const noexcept { return all_[at & (all_.size() - 1)]; }
  /// Of slots made here.
  void set(std::size_t at, const Slot& slot) { made_[at & (all_.size() - 1)] = slot; }

 private:
  std::vector<Slot> made_;
  std::span<const Slot> all_;
};

/// Range-checks every entry: whether all searches in these slots end, with ids below `ids`.
template <class Slot>
bool are_safe(std::span<const Slot> slots, std::size_t ids) noexcept {
  std::int32_t lowest = 0, highest = -1;
  for (const Slot& slot : slots) {
    lowest = std::min(lowest, slot.id);
    highest = std::max(highest, slot.id);
  }
  return std::has_single_bit(slots.size()) && lowest < 0 && std::cmp_less(highest, ids);
}

}  // namespace tenon::text
