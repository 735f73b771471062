#pragma once

#include "convolution_kernels.hpp"

#include <cstdint>

namespace tenon::cpu {

/// An image copied to [rows][before + columns + after][channels], zeros on both sides.
struct PaddedCopy {
  Image<const float> x;
  std::int64_t columns, channels;
  std::int64_t before, width;  ///< `width`: of a row of the copy
  float* to;
};

/// Rows [first, last).
void copy_padded(const PaddedCopy& job, std::int64_t first, std::int64_t last) noexcept;

}  // namespace tenon::cpu
