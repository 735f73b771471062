// A pass over the steps of a partition: small values that each thread computes for itself.
#pragma once

#include <tenon/lowered.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::cpu {

/// Moves small results of cheap ops that nothing outside the partition reads to each thread's own
/// memory (Place::Kind::scratch): every thread computes all of them, which takes less time than the
/// barriers around them. Returns the bytes of that memory.
///
/// `own` are the steps to change; see for_each_stretch.
std::int64_t keep_own_values(const Lowered& program, std::span<const Step> steps,
                             std::vector<Step>& own);

}  // namespace tenon::cpu
