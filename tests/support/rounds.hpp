// How many rounds random tests run.
#pragma once

namespace tenon::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool seeks_races = true;
#elif defined(__has_feature)
inline constexpr bool seeks_races = __has_feature(thread_sanitizer);
#else
inline constexpr bool seeks_races = false;
#endif

/// `count`; a sixth of it under the thread sanitizer, which looks for races: these are in every
/// round, and a round takes ten times as long. The other builds compare the values.
constexpr int rounds(int count) { return seeks_races ? (count + 5) / 6 : count; }

}  // namespace tenon::testing
