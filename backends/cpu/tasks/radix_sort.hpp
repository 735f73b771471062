// Entries in the order of keys, and where their elements stood.
#pragma once

#include "in_parts.hpp"
#include "ordered.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tenon::cpu {

/// A key with the place that its element had.
struct PlacedKey {
  std::uint64_t key;
  std::uint32_t place;
};

// What is sorted, with `key` as the unsigned number of `bits` bits that decides. Elements of equal
// keys keep their order. For 32-bit keys, place and key are one number.
template <class T, bool with_place>
struct Sorted;

template <class T>
struct Sorted<T, false> {
  using Entry = decltype(ordered(T{}));
  static constexpr int bits = 8 * sizeof(Entry);
  static Entry make(Entry key, std::uint32_t) noexcept { return key; }
  static Entry key(Entry entry) noexcept { return entry; }
  static bool is_before(Entry a, Entry b) noexcept { return a < b; }
};

template <class T>
  requires(sizeof(T) == 4)
struct Sorted<T, true> {
  using Entry = std::uint64_t;
  static constexpr int bits = 32;
  static Entry make(std::uint32_t key, std::uint32_t place) noexcept {
    return std::uint64_t{key} << 32 | place;
  }
  static std::uint32_t key(Entry entry) noexcept { return static_cast<std::uint32_t>(entry >> 32); }
  static std::uint32_t place(Entry entry) noexcept { return static_cast<std::uint32_t>(entry); }
  static bool is_before(Entry a, Entry b) noexcept { return a < b; }
};

template <class T>
  requires(sizeof(T) == 8)
struct Sorted<T, true> {
  using Entry = PlacedKey;
  static constexpr int bits = 64;
  static Entry make(std::uint64_t key, std::uint32_t place) noexcept { return {key, place}; }
  static std::uint64_t key(const Entry& entry) noexcept { return entry.key; }
  static std::uint32_t place(const Entry& entry) noexcept { return entry.place; }
  static bool is_before(const Entry& a, const Entry& b) noexcept {
    return a.key != b.key ? a.key < b.key : a.place < b.place;
  }
};

/// Digit by digit, least significant first, each pass stable (Knuth, The Art of Computer
/// Programming 3, 5.2.5); digits that all entries share are left out. Returns which of the two
/// arrays has the result, if the interrupt is not due before.
template <class S, int digit_bits>
typename S::Entry* radix_sort(typename S::Entry* from, typename S::Entry* to, std::int64_t count,
                              const Interrupt* interrupt) noexcept {
  constexpr std::size_t digits = (S::bits + digit_bits - 1) / digit_bits;
  constexpr std::size_t values = std::size_t{1} << digit_bits;
  std::array<std::array<std::uint32_t, values>, digits> counts{};
  const auto digit_of = [](auto key, std::size_t digit) {
    return static_cast<std::size_t>(key >> (digit * digit_bits)) & (values - 1);
  };
  const bool are_counted = in_parts(count, interrupt, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto key = S::key(from[i]);
      for (std::size_t d = 0; d < digits; ++d) ++counts[d][digit_of(key, d)];
    }
  });
  if (!are_counted) return from;
  for (std::size_t d = 0; d < digits; ++d) {
    auto& places = counts[d];
    if (places[digit_of(S::key(from[0]), d)] == static_cast<std::uint32_t>(count)) continue;
    std::uint32_t place = 0;
    for (std::uint32_t& number : places) place += std::exchange(number, place);
    const bool are_placed = in_parts(count, interrupt, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        to[places[digit_of(S::key(from[i]), d)]++] = from[i];
      }
    });
    if (!are_placed) return from;
    std::swap(from, to);
  }
  return from;
}

/// The entries in order, if the interrupt is not due before: in `entries` or in `room`.
template <class S>
typename S::Entry* sort_entries(typename S::Entry* entries, typename S::Entry* room,
                                std::int64_t count, const Interrupt* interrupt = nullptr) noexcept {
  constexpr std::int64_t few = 128, many = 16384;
  if (count < few) {
    std::sort(entries, entries + count, S::is_before);
    return entries;
  }
  return count < many ? radix_sort<S, 8>(entries, room, count, interrupt)
                      : radix_sort<S, 11>(entries, room, count, interrupt);
}

}  // namespace tenon::cpu
