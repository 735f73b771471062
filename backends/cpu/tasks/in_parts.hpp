#pragma once

#include <tenon/interrupt.hpp>

#include <algorithm>
#include <cstdint>

namespace tenon::cpu {

/// Calls run(begin, end) for parts of [0, count), by default some milliseconds of sorting each,
/// until the interrupt, which may be null, is due. Returns whether all parts were run.
template <class F>
bool in_parts(std::int64_t count, const Interrupt* interrupt, F&& run,
              std::int64_t part = std::int64_t{1} << 20) noexcept {
  for (std::int64_t begin = 0; begin < count; begin += part) {
    if (begin != 0 && interrupt != nullptr && interrupt->is_due()) return false;
    run(begin, std::min(begin + part, count));
  }
  return true;
}

}  // namespace tenon::cpu
