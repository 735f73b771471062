// Accesses to memory, found by the bytes that they have in common with another one.
#pragma once

#include "lower/memory_access.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <tuple>
#include <type_traits>

namespace tenon::lowering {

/// Numbered accesses. A search takes time that grows with the logarithm of their number and with the
/// number of those nearby, whatever their sizes: a program has a hundred thousand steps, each of
/// which asks. Accesses of no bytes are found as if they had one.
class AccessIndex {
 public:
  void insert(const Access& access, std::size_t number) {
    const std::int64_t bytes = size_of(access);
    Group& group = groups_[{access.kind, access.index, magnitude(bytes)}];
    group.longest = std::max(group.longest, bytes);
    group.by_begin.emplace(access.bytes.begin, Entry{bytes, number});
  }

  /// Whether pred(number) is true of one that overlaps `access`. Stops at the first.
  template <class Pred>
  bool any_overlapping(const Access& access, Pred pred) const {
    return search(groups_, access,
                  [&](std::size_t number) { return pred(number) ? Found::stop : Found::keep; });
  }

  /// Removes those that overlap `access` and of which pred(number) is true.
  template <class Pred>
  void erase_overlapping(const Access& access, Pred pred) {
    search(groups_, access,
           [&](std::size_t number) { return pred(number) ? Found::erase : Found::keep; });
  }

 private:
  struct Entry {
    std::int64_t bytes;
    std::size_t number;
  };
  /// Accesses of one kind and index whose sizes are within a factor of two, so that those which
  /// overlap a range begin within it or shortly before.
  struct Group {
    std::int64_t longest = 0;
    std::multimap<std::int64_t, Entry> by_begin;
  };
  using Key = std::tuple<Place::Kind, std::uint32_t, int>;
  enum class Found : std::uint8_t { keep, erase, stop };

  static std::int64_t size_of(const Access& access) {
    return std::max<std::int64_t>(access.bytes.size(), 1);
  }
  static int magnitude(std::int64_t bytes) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bytes)));
  }

  /// Calls visit(number) for each that overlaps; whether it said stop.
  template <class Groups, class Visit>
  static bool search(Groups& groups, const Access& access, Visit visit) {
    const std::int64_t begin = access.bytes.begin, end = begin + size_of(access);
    for (auto at = groups.lower_bound({access.kind, access.index, 0});
         at != groups.end() && std::get<0>(at->first) == access.kind &&
         std::get<1>(at->first) == access.index;
         ++at) {
      auto& group = at->second;
      auto entry = group.by_begin.upper_bound(begin - group.longest);
      while (entry != group.by_begin.end() && entry->first < end) {
        Found found = Found::keep;
        if (begin < entry->first + entry->second.bytes) found = visit(entry->second.number);
        if (found == Found::stop) return true;
        if constexpr (std::is_const_v<Groups>) {
          ++entry;
        } else {
          entry = found == Found::erase ? group.by_begin.erase(entry) : std::next(entry);
        }
      }
    }
    return false;
  }

  std::map<Key, Group> groups_;
};

}  // namespace tenon::lowering
