#pragma once

#include "thread_pool.hpp"

#include <tenon/backend.hpp>
#include <tenon/calibration.hpp>

#include <memory>
#include <span>

namespace tenon::cpu {

/// Compiles steps that every kernel accepts. `program` and the pool outlive the partition. `int8`:
/// ranges of values for convolutions of integers, or null.
std::unique_ptr<Partition> compile_partition(const Lowered& program, std::span<const Step> steps,
                                             std::shared_ptr<ThreadPool> pool, bool exact,
                                             const quant::CalibrationTable* int8);

}  // namespace tenon::cpu
