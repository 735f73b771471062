// Values with what they belong to, in order.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tenon::nn {

/// The largest value first, of equal ones the lower number first; `entries` are in the order of their numbers, without NaN.
void sort_descending(std::vector<std::pair<float, std::int32_t>>& entries);

}  // namespace tenon::nn
