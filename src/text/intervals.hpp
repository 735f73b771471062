#pragma once

#include <algorithm>
#include <iterator>
#include <span>

namespace tenon::text {

/// Characters from `first` to `last`, both included.
struct Interval {
  char32_t first;
  char32_t last;
};

/// Whether a character lies in one of ascending, disjoint intervals.
inline bool lies_in(std::span<const Interval> intervals, char32_t value) noexcept {
  const auto after = std::ranges::upper_bound(intervals, value, {}, &Interval::first);
  return after != intervals.begin() && value <= std::prev(after)->last;
}

}  // namespace tenon::text
