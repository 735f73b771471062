#include "session/residency.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

namespace tenon::sessions {

void Residency::split(Segments& segments, std::int64_t at) {
  auto next = segments.upper_bound(at);
  if (next == segments.begin()) return;
  const auto found = std::prev(next);
  if (found->first == at || found->second.end <= at) return;
  segments.emplace(at, Segment{found->second.end, found->second.memories});
  found->second.end = at;
}

void Residency::require(const StorageKey& storage, const ByteRange& range, std::size_t memory,
                        const Copy& copy) {
  if (range.is_empty()) return;
  const auto found = storages_.find(storage);
  if (found == storages_.end()) return;
  Segments& segments = found->second;
  split(segments, range.begin);
  split(segments, range.end);
  const std::uint64_t wanted = std::uint64_t{1} << memory;
  auto at = segments.lower_bound(range.begin);
  while (at != segments.end() && at->first < range.end) {
    if ((at->second.memories & wanted) != 0) {
      ++at;
      continue;
    }
    // Neighbours that come from one place come in one piece.
    const auto from = static_cast<std::size_t>(std::countr_zero(at->second.memories));
    ByteRange piece{at->first, at->second.end};
    for (; at != segments.end() && at->first < range.end && at->first <= piece.end &&
           (at->second.memories & wanted) == 0 && (at->second.memories >> from & 1) != 0;
         ++at) {
      piece.end = at->second.end;
      at->second.memories |= wanted;
    }
    copy(storage, piece, from, memory);
  }
}

void Residency::written(const StorageKey& storage, const ByteRange& range, std::size_t memory) {
  if (range.is_empty()) return;
  Segments& segments = storages_[storage];
  split(segments, range.begin);
  split(segments, range.end);
  segments.erase(segments.lower_bound(range.begin), segments.lower_bound(range.end));
  segments.emplace(range.begin, Segment{range.end, std::uint64_t{1} << memory});
}

}  // namespace tenon::sessions
