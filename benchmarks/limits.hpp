#pragma once

#include "backends/cpu/cpu_features.hpp"
#include "backends/cpu/thread_pool.hpp"

namespace tenon::bench {

/// Measured ceilings of this machine with all threads of a pool at work, per second.
/// A multiply-add counts as two operations; 0 where the machine lacks the instructions.
struct Limits {
  double f32_ops = 0.0;
  double int8_ops = 0.0;    ///< unsigned by signed bytes, sums of 32 bits
  double bf16_ops = 0.0;    ///< AMX tiles
  double read_bytes = 0.0;  ///< summing an array far larger than a core's own cache
};

/// Runs each loop for about `seconds` on every thread of the pool and keeps the best stretch.
Limits measure_limits(cpu::ThreadPool& pool, double seconds);

}  // namespace tenon::bench
