// How many rounds tests run.
#pragma once

#include "../../src/base/sanitizers.hpp"

#include <random>

namespace tenon::testing {

inline constexpr bool seeks_races = has_thread_sanitizer;
inline constexpr bool seeks_bad_accesses = has_address_sanitizer;

/// Of how many rounds one is run: all in the builds that compare values, where a round takes a tenth
/// of the time; fewer under sanitizers, which find what they look for in nearly every round.
inline constexpr int round_stride = seeks_races || seeks_bad_accesses ? 6 : 1;

constexpr int rounds(int count) { return (count + round_stride - 1) / round_stride; }

/// Of things that are much alike, such as models, all in the builds that compare values; every third
/// under sanitizers, from one on that differs from process to process.
class EveryThird {
 public:
  bool skips() {
    if (round_stride == 1) return false;
    return number_++ % 3 != 0;
  }

 private:
  unsigned number_ = std::random_device{}() % 3;
};

}  // namespace tenon::testing
