#pragma once

// Depthwise convolution of f32 images. Included after a header of simd/.
#include "convolution_kernels.hpp"
#include "depthwise_3x3.hpp"
#include "depthwise_body.hpp"
#include "window_taps.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

struct DepthwiseF32 {
  using Job = DepthwiseJob;

  TENON_INLINE static Float load(const Job&, const float* x, std::int64_t count) {
    return load_channels(x, count);
  }
  TENON_INLINE static void store(const DepthwiseJob& job, const DepthwiseTile& tile, int pixel,
                                 std::int64_t channel, Float sum) {
    const std::int64_t count = job.channels - channel;
    const auto place = [&](const auto& image) {
      return tile.row * image.row + (tile.column + pixel) * image.column + channel * image.channel;
    };
    const Image<const float>& residual = job.finish.residual;
    const Float low = Simd::broadcast(&job.finish.low), high = Simd::broadcast(&job.finish.high);
    if (job.y.channel == 1 && (residual.at == nullptr || residual.channel == 1)) {
      if (residual.at != nullptr) sum = sum + load_channels(residual.at + place(residual), count);
      store_channels(job.y.at + place(job.y), limited(sum, low, high), count);
      return;
    }
    for (std::int64_t c = 0; c < Simd::lanes && c < count; ++c) {
      float value = sum[c];
      if (residual.at != nullptr) value += residual.at[place(residual) + c * residual.channel];
      value = value < job.finish.low ? job.finish.low : value;
      job.y.at[place(job.y) + c * job.y.channel] =
          value > job.finish.high ? job.finish.high : value;
    }
  }

  TENON_INLINE static Float start(const DepthwiseJob& job, std::int64_t channel) {
    return job.finish.bias == nullptr
               ? Simd::zero_float()
               : load_channels(job.finish.bias + channel, job.channels - channel);
  }
};

void run_depthwise(const DepthwiseJob& job, const Part& part) noexcept {
  if (is_3x3(job)) {
    return job.columns.stride == 1 ? depthwise_3x3<1>(job, part) : depthwise_3x3<2>(job, part);
  }
  depthwise<DepthwiseF32>(job, part);
}

}  // namespace
}  // namespace tenon::cpu
