// Memory for values whose live ranges are known.
#pragma once

#include "integer_math.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon::cpu {

/// First-fit allocation in the order of the steps that write the values. Memory is reused once a
/// value has been read for the last time.
class LiveRangeAllocator {
 public:
  /// The offset of `bytes` bytes that `step` writes and steps up to `last_use` read.
  std::int64_t allocate(std::int64_t bytes, std::size_t step, std::size_t last_use) {
    constexpr std::int64_t alignment = 64;
    std::erase_if(live_, [&](const Allocation& it) { return it.last_use < step; });
    std::int64_t offset = 0;
    auto next = live_.begin();
    for (; next != live_.end() && next->begin - offset < bytes; ++next) offset = next->end;
    const std::int64_t end = offset + round_up(bytes, alignment);
    live_.insert(next, {offset, end, last_use});
    peak_ = std::max(peak_, end);
    return offset;
  }
  /// The end of the highest allocation: bytes that hold all of them.
  std::int64_t peak() const noexcept { return peak_; }

 private:
  struct Allocation {
    std::int64_t begin, end;
    std::size_t last_use;
  };
  std::vector<Allocation> live_;  // by offset
  std::int64_t peak_ = 0;
};

}  // namespace tenon::cpu
