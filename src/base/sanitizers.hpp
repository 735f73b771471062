// Whether this is compiled for a sanitizer.
#pragma once

namespace tenon {

#if defined(__has_feature)
#define TENON_HAS_FEATURE(name) __has_feature(name)
#else
#define TENON_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || TENON_HAS_FEATURE(address_sanitizer)
inline constexpr bool has_address_sanitizer = true;
#else
inline constexpr bool has_address_sanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__) || TENON_HAS_FEATURE(thread_sanitizer)
inline constexpr bool has_thread_sanitizer = true;
#else
inline constexpr bool has_thread_sanitizer = false;
#endif
#undef TENON_HAS_FEATURE

}  // namespace tenon
