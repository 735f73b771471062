// Shared by softmax and log_softmax.
#pragma once

#include "ops/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tenon {

/// Of the values of a lane: the largest, and the sum of exp(x_i - largest).
struct ExpSum {
  double peak = -std::numeric_limits<double>::infinity();
  double sum = 0;

  ExpSum(const Lane& x, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) peak = std::max(peak, x.load(i));
    for (std::int64_t i = 0; i < count; ++i) sum += std::exp(x.load(i) - peak);
  }
};

}  // namespace tenon
