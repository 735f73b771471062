// Memory for values of a straight stretch of steps.
#pragma once

#include "integer_math.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon::cpu {

/// Hands out places to values in the order of the steps that write them: first fit, again once a
/// value has been read for the last time.
class StretchMemory {
 public:
  /// The offset of `bytes` bytes that `step` writes and steps up to `last_use` read.
  std::int64_t take(std::int64_t bytes, std::size_t step, std::size_t last_use) {
    constexpr std::int64_t alignment = 64;
    std::erase_if(live_, [&](const Taken& taken) { return taken.last_use < step; });
    std::int64_t offset = 0;
    auto next = live_.begin();
    for (; next != live_.end() && next->begin - offset < bytes; ++next) offset = next->end;
    const std::int64_t end = offset + round_up(bytes, alignment);
    live_.insert(next, {offset, end, last_use});
    most_ = std::max(most_, end);
    return offset;
  }
  /// Bytes that are enough for all that was taken.
  std::int64_t most() const noexcept { return most_; }

 private:
  struct Taken {
    std::int64_t begin, end;
    std::size_t last_use;
  };
  std::vector<Taken> live_;  // by place
  std::int64_t most_ = 0;
};

}  // namespace tenon::cpu
