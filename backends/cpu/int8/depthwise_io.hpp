#pragma once

// Depthwise convolution of codes: sums of few small integers are exact in f32, so the body for f32
// images is used. Included after int8_simd.hpp.
#include "../convolution/depthwise_body.hpp"
#include "depthwise_quads.hpp"
#include "finish.hpp"
#include "int8_kernels.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

struct DepthwiseInt8 {
  using Job = Int8DepthwiseJob;

  /// Codes less their zero, so that nothing is added for taps outside the image.
  TENON_INLINE static Float load(const Job& job, const std::uint8_t* x, std::int64_t count) {
    return Simd::sub(Int8Simd::load_codes(x, count), Simd::broadcast(&job.finish.zero));
  }
  TENON_INLINE static Float start(const Job&, std::int64_t) { return Simd::zero_float(); }
  TENON_INLINE static void store(const Job& job, const DepthwiseTile& tile, int pixel,
                                 std::int64_t channel, Float sum) {
    const std::int64_t count = job.channels - channel;
    const Scaling scaling = scaling_of<false>(job.finish, channel, count);
    store_sum(job.finish, tile.row, tile.column + pixel, channel,
              Simd::fma(sum, scaling.factor, scaling.offset), count);
  }
};

void run_int8_depthwise(const Int8DepthwiseJob& job, const Part& part) noexcept {
#if defined(__AVX512F__) || defined(__AVX2__)
  if (takes_quads(job))
    return job.columns.stride == 1 ? quads_part<1>(job, part) : quads_part<2>(job, part);
#endif
  depthwise<DepthwiseInt8>(job, part);
}

}  // namespace
}  // namespace tenon::cpu
