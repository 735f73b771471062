#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon::cpu::winograd {

/// The 3 by 3 taps of one output and channel, in f32.
struct FilterTaps {
  const std::byte* first;
  std::int64_t row, column;  ///< steps in bytes
};

/// G g G' (winograd.hpp), in f64 and rounded once: number n goes to to[n * step].
void transform_filter(const FilterTaps& taps, float* to, std::int64_t step) noexcept;

}  // namespace tenon::cpu::winograd
