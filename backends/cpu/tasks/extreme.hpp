// The greatest or smallest of many elements and where it stands, as argmax and argmin define it.
#pragma once

#include "../elementwise/elementwise.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace tenon::cpu {

/// The best element so far: of equal ones the first, and a NaN beats all. Runs of elements may be
/// added in any order, with the same result.
template <class T, bool greatest>
class Extreme {
 public:
  /// Where it stands; -1 before any element.
  std::int64_t index() const noexcept { return index_; }

  void add(const Extreme& other) noexcept {
    if (other.index_ >= 0 && is_beaten_by(other.value_, other.index_)) *this = other;
  }

  /// Elements of which the first is number `first`; of f32 by vectors.
  void add(const T* x, std::int64_t first, std::int64_t count) noexcept {
    if constexpr (std::is_same_v<T, float>) {
      if (count == 0) return;
      const float extreme = greatest ? max_row(x, count) : min_row(x, count);
      if (!is_beaten_by(extreme, first)) return;
      const auto* found = extreme == extreme
                              ? std::find(x, x + count, extreme)
                              : std::find_if(x, x + count, [](float v) { return v != v; });
      value_ = extreme;
      index_ = first + (found - x);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        if (!is_beaten_by(x[i], first + i)) continue;
        value_ = x[i];
        index_ = first + i;
      }
    }
  }

 private:
  bool is_beaten_by(T value, std::int64_t index) const noexcept {
    if (index_ < 0) return true;
    const bool is_nan = value != value, was_nan = value_ != value_;
    if (is_nan || was_nan) return is_nan && (!was_nan || index < index_);
    if (value == value_) return index < index_;
    return greatest ? value > value_ : value < value_;
  }

  T value_{};
  std::int64_t index_ = -1;
};

}  // namespace tenon::cpu
