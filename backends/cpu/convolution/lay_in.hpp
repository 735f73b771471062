#pragma once

#include "kernels.hpp"

#include <cstdint>

namespace tenon::cpu {

/// An image copied to [rows][before + columns + after][channels], zeros on both sides.
struct LayIn {
  Image<const float> x;
  std::int64_t columns, channels;
  std::int64_t before, width;  ///< `width`: of a laid row
  float* to;
};

/// Rows [first, last).
void lay_in(const LayIn& job, std::int64_t first, std::int64_t last) noexcept;

}  // namespace tenon::cpu
