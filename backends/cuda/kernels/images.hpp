// Windows over images [N, C, H, W]: a thread per element of the result.
#pragma once

#include "kernels/pointwise.hpp"

#include <cstdint>

namespace tenon::cuda {

/// The taps [begin, end) of a window that lie on x.
struct TapRange {
  std::int64_t begin, end;
};
TENON_DEVICE TapRange taps_inside(const WindowSide& side, std::uint32_t i) {
  const std::int64_t first = std::int64_t{i} * side.stride - side.before;
  std::int64_t begin = 0, end = side.taps;
  if (first < 0) begin = (-first + side.dilation - 1) / side.dilation;
  const std::int64_t room = side.size - first;  // elements from the window's first on
  const std::int64_t most = room <= 0 ? 0 : (room + side.dilation - 1) / side.dilation;
  if (most < end) end = most;
  return {begin, end};
}
TENON_DEVICE std::int64_t place_of_tap(const WindowSide& side, std::uint32_t i, std::int64_t tap) {
  return std::int64_t{i} * side.stride + tap * side.dilation - side.before;
}

TENON_DEVICE void convolve(const Thread& thread, const ConvolutionArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const std::uint32_t output = at.at[1];
    const std::int64_t first = output / args.group_outputs * args.channels;
    const TapRange down = taps_inside(args.rows, at.at[2]),
                   across = taps_inside(args.columns, at.at[3]);
    float sum =
        args.bias.data == 0 ? 0.0f : load_as(0.0f, args.bias, output * args.bias.steps.bytes[0]);
    for (std::int64_t c = 0; c < args.channels; ++c) {
      const std::int64_t plane =
          at.at[0] * args.x.steps.bytes[0] + (first + c) * args.x.steps.bytes[1];
      const std::int64_t filter = output * args.w.steps.bytes[0] + c * args.w.steps.bytes[1];
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        const std::int64_t line =
            plane + place_of_tap(args.rows, at.at[2], r) * args.x.steps.bytes[2];
        for (std::int64_t s = across.begin; s < across.end; ++s) {
          const std::int64_t column = place_of_tap(args.columns, at.at[3], s);
          sum +=
              load_as(0.0f, args.x, line + column * args.x.steps.bytes[3]) *
              load_as(0.0f, args.w, filter + r * args.w.steps.bytes[2] + s * args.w.steps.bytes[3]);
        }
      }
    }
    store_as(sum, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

TENON_DEVICE void pool_windows(const Thread& thread, const PoolArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const TapRange down = taps_inside(args.rows, at.at[2]),
                   across = taps_inside(args.columns, at.at[3]);
    const std::int64_t plane = at.at[0] * args.x.steps.bytes[0] + at.at[1] * args.x.steps.bytes[1];
    float peak = -infinity(), sum = 0, inside = 0;
    for (std::int64_t r = down.begin; r < down.end; ++r) {
      const std::int64_t line =
          plane + place_of_tap(args.rows, at.at[2], r) * args.x.steps.bytes[2];
      for (std::int64_t s = across.begin; s < across.end; ++s) {
        const std::int64_t column = place_of_tap(args.columns, at.at[3], s);
        const float value = load_as(0.0f, args.x, line + column * args.x.steps.bytes[3]);
        if (value > peak || value != value) peak = value;  // no later value replaces a NaN
        sum += value;
        inside += 1;
      }
    }
    const float count = args.divisor != 0 ? args.divisor : inside;
    store_as(args.takes_max ? peak : sum / count, args.y,
             offset_of(at, args.y.steps, args.axes.rank));
  }
}

/// Axis 1 has the channels.
TENON_DEVICE void normalise_channels(const Thread& thread, const ChannelNormArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const auto of_channel = [&](const Array& row, float absent) {
      return row.data == 0 ? absent : load_as(0.0f, row, at.at[1] * row.steps.bytes[0]);
    };
    const float scale = of_channel(args.weight, 1) / sqrtf(of_channel(args.variance, 1) + args.eps);
    const float x = load_as(0.0f, args.x, offset_of(at, args.x.steps, args.axes.rank));
    const float y = (x - of_channel(args.mean, 0)) * scale + of_channel(args.bias, 0);
    store_as(y, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

}  // namespace tenon::cuda
