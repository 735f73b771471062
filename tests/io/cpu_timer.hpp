#pragma once

#include <time.h>

namespace tenon::testing {

/// Seconds of this thread's own work: what else the machine does is not the reader's fault.
class CpuTimer {
 public:
  CpuTimer() : begin_(now()) {}
  double seconds() const { return now() - begin_; }

 private:
  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double begin_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TENON_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TENON_TEST_SANITIZED 1
#endif
#endif

/// How many times longer than a release build this one may take.
#if defined(TENON_TEST_SANITIZED) || !defined(NDEBUG)
inline constexpr double patience = 20;
#else
inline constexpr double patience = 1;
#endif

}  // namespace tenon::testing
