#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon::cpu::winograd {

/// The 3 by 3 taps of some outputs, at most 16, and one channel, in f32.
struct FilterTaps {
  const std::byte* first;
  std::int64_t output, row, column;  ///< steps in bytes
};

/// G g G' (winograd.hpp) of `count` outputs, in f64 and rounded once: number n of output o goes to
/// to[n * step + o]; zeros behind the last one, up to 16.
void transform_filters(const FilterTaps& taps, std::int64_t count, float* to,
                       std::int64_t step) noexcept;

}  // namespace tenon::cpu::winograd
