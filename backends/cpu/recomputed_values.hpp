// A pass over the steps of a partition: small values are recomputed per thread.
#pragma once

#include <tenon/lowered.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::cpu {

/// Of a value: they take about half a microsecond to compute, as long as a barrier.
inline constexpr std::int64_t max_recomputed_elements = 4096;

/// Moves small results of cheap ops that nothing outside the partition reads to memory of each
/// thread (Place::Kind::scratch): every thread computes all of them, which takes less time than the
/// barriers that sharing the work would need. Returns the bytes of that memory per thread.
///
/// `own` are the steps to change; see for_each_body.
std::int64_t recompute_small_values(const Lowered& program, std::span<const Step> steps,
                                    std::vector<Step>& own);

}  // namespace tenon::cpu
