#pragma once

#include "thread_pool.hpp"

#include <tenon/backend.hpp>
#include <tenon/calibration.hpp>

#include <memory>
#include <span>

namespace tenon::cpu {

struct PartitionOptions {
  std::shared_ptr<ThreadPool> pool;
  bool exact = false;
  /// Runs that do less, in operations and elements that they touch, stay on their caller's thread: they
  /// end before another one has woken up.
  double min_shared_work = 0;
};

/// The smallest work that threads share, unless the environment variable TENON_CPU_MIN_SHARED_WORK
/// says otherwise (0: any). On a 2-core EPYC (AVX-512) `add`, `exp` and `softmax` of 32,000 elements
/// took 1.1 to 1.3 times as long on two threads as on one, of 4,000 elements 1.7 to 1.9 times.
/// Errc::bad_argument where the variable is no number.
double min_shared_work();

/// Compiles steps that every kernel accepts. `program` outlives the partition. `int8`: ranges of
/// values for convolutions of integers, or null.
std::unique_ptr<Partition> compile_partition(const Lowered& program, std::span<const Step> steps,
                                             const PartitionOptions& options,
                                             const quant::CalibrationTable* int8);

}  // namespace tenon::cpu
