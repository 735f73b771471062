#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace tenon::bench {

/// The shortest of enough runs to fill `least` seconds, in seconds.
template <class F>
double shortest(const F& run, double least = 0.2) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30, total = 0.0;
  for (int i = 0; i < 3 || total < least; ++i) {
    const auto begin = Clock::now();
    run();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

/// The same in processor time of the calling thread: for single-threaded work on a machine with
/// noisy neighbours.
template <class F>
double shortest_alone(const F& run, double least = 0.2) {
  const auto now = [] {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  double best = 1e30, total = 0.0;
  for (int i = 0; i < 3 || total < least; ++i) {
    const double begin = now();
    run();
    const double seconds = now() - begin;
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

}  // namespace tenon::bench
