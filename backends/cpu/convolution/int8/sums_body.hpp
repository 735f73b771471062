#pragma once

// From sums of products to results, in arithmetic that is the same on every instruction set: loops
// that the compiler vectorises, each rounding in a loop of its own so that none is fused away.
#include "kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// Whether `dot` needs narrow weights.
constexpr bool is_narrow = Int8Simd::weight_limit < 127;

/// Outputs at once.
constexpr std::int64_t sums_block = 256;

inline void apply_stage(const SumsJob::Stage& stage, std::int64_t first, std::int64_t count,
                        float* values) {
  if (stage.numbers != nullptr) {
    for (std::int64_t i = 0; i < count; ++i) values[i] += stage.numbers[first + i];
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float limited = values[i] < stage.low ? stage.low : values[i];
    values[i] = limited > stage.high ? stage.high : limited;
  }
}

inline void round_to_codes(const SumsJob& job, std::int64_t first, std::int64_t count,
                           const float* values, std::uint8_t* to) {
  constexpr float rounding = 12582912.0f;  // 3 * 2^22: behind it the last bit is worth 1
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t c = first + i;
    float q = values[i] / job.scale[c];
    q = q > job.low[c] ? q : job.low[c];  // a NaN becomes the lowest
    q = q < job.high[c] ? q : job.high[c];
    const auto rounded = static_cast<std::int32_t>((q + rounding) - rounding);
    to[i] = static_cast<std::uint8_t>(rounded + job.zero[c]);
  }
}

/// Outputs [first, first + count) of one pixel; count <= sums_block.
inline void finish_block(const SumsJob& job, const std::int32_t* sums, std::int64_t first,
                         std::int64_t count, std::byte* to) {
  std::int32_t integers[sums_block];
  for (std::int64_t i = 0; i < count; ++i) {
    integers[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[first + i]) +
                                            static_cast<std::uint32_t>(job.offset[first + i]));
  }
  if (job.factor == nullptr) {
    __builtin_memcpy(to + first * 4, integers, static_cast<std::size_t>(count) * 4);
    return;
  }
  float values[sums_block];
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(integers[i]) * job.factor[first + i];
  }
  for (int s = 0; s < job.stage_count; ++s) apply_stage(job.stages[s], first, count, values);
  if (job.scale == nullptr) {
    __builtin_memcpy(to + first * 4, values, static_cast<std::size_t>(count) * 4);
    return;
  }
  round_to_codes(job, first, count, values, reinterpret_cast<std::uint8_t*>(to) + first);
}

void finish_sums(const SumsJob& job) noexcept {
  for (std::int64_t p = 0; p < job.pixels; ++p) {
    for (std::int64_t first = 0; first < job.count; first += sums_block) {
      const std::int64_t left = job.count - first;
      finish_block(job, job.sums + p * job.count, first, left < sums_block ? left : sums_block,
                   job.to + p * job.step);
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
