#pragma once

#include <cstddef>
#include <span>

namespace tenon::quant {

/// Consecutive elements, and how much the square of each one's error counts; null: all alike.
struct Elements {
  std::span<const float> x;
  const float* importance = nullptr;

  Elements part(std::size_t first, std::size_t count) const noexcept {
    return {x.subspan(first, count), importance == nullptr ? nullptr : importance + first};
  }
  double weight(std::size_t i) const noexcept {
    return importance == nullptr ? 1.0 : static_cast<double>(importance[i]);
  }
};

}  // namespace tenon::quant
