#include "quantized_mean.hpp"

#include "../convolution/plan.hpp"
#include "../integer_math.hpp"
#include "../task.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

namespace tenon {

TENON_DEFINE_OP(quantized_mean, QuantizedMean);

Shape QuantizedMean::infer(std::span<const Shape> in) const { return mean.infer(in); }

namespace cpu {
namespace {

/// Channels that are summed side by side.
constexpr std::int64_t channels_at_once = 64;

struct ChannelSums {
  std::int64_t values[channels_at_once] = {};
};

/// Adds `count` <= 257 pixels of 64 channels side by side: so many codes fit into 16 bits.
void add_dense(const std::uint8_t* x, std::int64_t step, std::int64_t count,
               ChannelSums& sums) noexcept {
  std::uint16_t some[channels_at_once] = {};
  for (std::int64_t p = 0; p < count; ++p) {
    for (std::int64_t c = 0; c < channels_at_once; ++c) {
      some[c] = static_cast<std::uint16_t>(some[c] + x[p * step + c]);
    }
  }
  for (std::int64_t c = 0; c < channels_at_once; ++c) sums.values[c] += some[c];
}

class QuantizedMeanTask final : public PartwiseTask {
 public:
  explicit QuantizedMeanTask(const Step& step)
      : x_(step.inputs[0]), y_(step.output), codes_(step.op.as<QuantizedMean>()->x) {}

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t channels = x_.shape[1];
    const std::int64_t blocks = ceil_div(channels, channels_at_once);
    const ImageSteps steps = ImageSteps::of(x_);
    const auto* x = context.pointer<const std::uint8_t>(x_);
    auto* y = context.pointer<float>(y_);
    const Range items = context.share(x_.shape[0] * blocks);
    for (std::int64_t i = items.begin; i < items.end; ++i) {
      const std::int64_t image = i / blocks, first = i % blocks * channels_at_once;
      const std::int64_t count = std::min(channels_at_once, channels - first);
      const ChannelSums sums =
          sums_of(steps.at(x + image * steps.image + first * steps.channel), count);
      for (std::int64_t c = 0; c < count; ++c) {
        y[image * channels + first + c] = mean_of(sums.values[c]);
      }
    }
  }

 private:
  ChannelSums sums_of(const Image<const std::uint8_t>& x, std::int64_t count) const noexcept {
    constexpr std::int64_t max_pixels = 256;
    const bool is_dense = x.channel == 1 && count == channels_at_once;
    ChannelSums sums;
    for (std::int64_t row = 0; row < x_.shape[2]; ++row) {
      for (std::int64_t p = 0; p < x_.shape[3]; p += max_pixels) {
        const std::int64_t pixels = std::min(max_pixels, x_.shape[3] - p);
        const std::uint8_t* at = x.at + row * x.row + p * x.column;
        if (is_dense) {
          add_dense(at, x.column, pixels, sums);
          continue;
        }
        for (std::int64_t j = 0; j < pixels; ++j) {
          for (std::int64_t c = 0; c < count; ++c) {
            sums.values[c] += at[j * x.column + c * x.channel];
          }
        }
      }
    }
    return sums;
  }

  float mean_of(std::int64_t sum) const noexcept {
    const double mean = static_cast<double>(sum) / static_cast<double>(x_.shape[2] * x_.shape[3]);
    return static_cast<float>((mean - codes_.zero) * static_cast<double>(codes_.scale));
  }

  Operand x_, y_;
  Codes codes_;
};

std::unique_ptr<Task> make(const Step& step, Compiler&) {
  return std::make_unique<QuantizedMeanTask>(step);
}

}  // namespace

extern const Kernel quantized_mean_kernel;
constinit const Kernel quantized_mean_kernel{op_def<QuantizedMean>, takes_everything, make};

}  // namespace cpu
}  // namespace tenon
