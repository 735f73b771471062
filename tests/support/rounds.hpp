// How many rounds tests run.
#pragma once

#include "../../src/base/sanitizers.hpp"

namespace tenon::testing {

inline constexpr bool seeks_races = has_thread_sanitizer;
inline constexpr bool seeks_bad_accesses = has_address_sanitizer;

/// Of how many rounds one is run: all in the builds that compare values, where a round takes a tenth
/// of the time; fewer under sanitizers, which find what they look for in nearly every round.
inline constexpr int round_stride = seeks_races || seeks_bad_accesses ? 6 : 1;

constexpr int rounds(int count) { return (count + round_stride - 1) / round_stride; }

}  // namespace tenon::testing
