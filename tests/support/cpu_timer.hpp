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

/// Seconds of work after which what should take little, such as reading a file, counts as endless: hundreds of times what the slowest
/// takes under a sanitizer, so that no busy machine fails and an algorithm that is quadratic does.
inline constexpr double endless_seconds = 60;

}  // namespace tenon::testing
