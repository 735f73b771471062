#pragma once

// From sums of products to results, with the same bits on every instruction set. Included after
// int8_simd.hpp.
#include "../convolution/window_taps.hpp"
#include "int8_kernels.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// Whether `dot` needs narrow weights.
constexpr bool is_narrow = Int8Simd::weight_limit < 127;

/// Keeps a product from being fused with the addition that follows, which would not round it.
TENON_INLINE Float rounded(Float product) {
#if defined(__AVX512F__)
  asm("" : "+v"(product));
#else
  asm("" : "+x"(product));
#endif
  return product;
}

/// The numbers of a vector of outputs.
struct SumsVector {
  Sum offset;
  Float factor, added[SumsJob::max_stages];
  Float scale, low, high, zero;

  TENON_INLINE SumsVector(const SumsJob& job, std::int64_t channel) {
    offset = Int8Simd::load_sum(job.offset + channel);
    factor = Simd::load_float(job.factor + channel);
    for (int s = 0; s < job.stage_count; ++s) {
      if (job.stages[s].numbers != nullptr) {
        added[s] = Simd::load_float(job.stages[s].numbers + channel);
      }
    }
    if (job.scale == nullptr) return;
    scale = Simd::load_float(job.scale + channel);
    low = Simd::load_float(job.low + channel);
    high = Simd::load_float(job.high + channel);
    zero = Simd::load_float(job.zero + channel);
  }

  TENON_INLINE Float finished(const SumsJob& job, const std::int32_t* sums) const {
    const Sum sum = Int8Simd::add_sums(Int8Simd::load_sum(sums), offset);
    Float v = rounded(Simd::mul(Int8Simd::to_float(sum), factor));
    for (int s = 0; s < job.stage_count; ++s) {
      const SumsJob::Stage& stage = job.stages[s];
      v = stage.numbers != nullptr
              ? Simd::add(v, added[s])
              : limited(v, Simd::broadcast(&stage.low), Simd::broadcast(&stage.high));
    }
    return v;
  }

  /// From 0 to 255, a whole number. A NaN becomes the lowest.
  TENON_INLINE Float code(const SumsJob& job, Float v) const {
    constexpr float rounding = 12582912.0f;  // 3 * 2^22: behind it the last bit is worth 1
    const Float shift = Simd::broadcast(&rounding);
    if (job.divides) v = Simd::div(v, scale);
    const Float q = Simd::min(Simd::max(v, low), high);
    return Simd::add(Simd::sub(Simd::add(q, shift), shift), zero);
  }
};

inline void finish_as_integers(const SumsJob& job) {
  for (std::int64_t p = 0; p < job.pixels; ++p) {
    const std::int32_t* sums = job.sums + p * job.count;
    auto* to = reinterpret_cast<std::int32_t*>(job.to + p * job.step);
    for (std::int64_t c = 0; c < job.count; ++c) {
      to[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[c]) +
                                        static_cast<std::uint32_t>(job.offset[c]));
    }
  }
}

/// Codes as they were stored become signed ones.
inline void flip_signs(const SumsJob& job) {
  for (std::int64_t p = 0; p < job.pixels; ++p) {
    auto* codes = reinterpret_cast<std::uint8_t*>(job.to + p * job.step);
    for (std::int64_t c = 0; c < job.count; ++c) codes[c] ^= 0x80;
  }
}

void finish_sums(const SumsJob& job) noexcept {
  if (job.factor == nullptr) return finish_as_integers(job);
  for (std::int64_t c = 0; c < job.count; c += Simd::lanes) {
    const SumsVector numbers(job, c);
    const std::int64_t count = job.count - c;
    for (std::int64_t p = 0; p < job.pixels; ++p) {
      const Float v = numbers.finished(job, job.sums + p * job.count + c);
      std::byte* to = job.to + p * job.step;
      if (job.scale == nullptr) {
        store_channels(reinterpret_cast<float*>(to) + c, v, count);
      } else {
        Int8Simd::store_codes(reinterpret_cast<std::uint8_t*>(to) + c, numbers.code(job, v), count);
      }
    }
  }
  if (job.scale != nullptr && job.is_signed) flip_signs(job);
}

}  // namespace
}  // namespace tenon::cpu
