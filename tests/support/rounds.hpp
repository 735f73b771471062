// How many rounds tests run.
#pragma once

namespace tenon::testing {

#if defined(__has_feature)
#define TENON_HAS_FEATURE(name) __has_feature(name)
#else
#define TENON_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || TENON_HAS_FEATURE(thread_sanitizer)
inline constexpr bool seeks_races = true;
#else
inline constexpr bool seeks_races = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || TENON_HAS_FEATURE(address_sanitizer)
inline constexpr bool seeks_bad_accesses = true;
#else
inline constexpr bool seeks_bad_accesses = false;
#endif
#undef TENON_HAS_FEATURE

/// Of how many rounds one is run: all in the builds that compare values, where a round takes a tenth
/// of the time; fewer under sanitizers, which find what they look for in nearly every round.
inline constexpr int round_stride = seeks_races ? 6 : seeks_bad_accesses ? 3 : 1;

constexpr int rounds(int count) { return (count + round_stride - 1) / round_stride; }

}  // namespace tenon::testing
