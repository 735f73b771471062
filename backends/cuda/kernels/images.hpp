// Windows over images [N, C, H, W]: a thread per element of the result, which gathers what belongs
// to it in a fixed order.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/reduce.hpp"

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

/// The window whose tap `tap` lies on element i, or -1.
TENON_DEVICE std::int64_t window_of_tap(const WindowSide& side, std::uint32_t i, std::int64_t tap) {
  const std::int64_t first = std::int64_t{i} + side.before - tap * side.dilation;
  if (first < 0 || first % side.stride != 0) return -1;
  return first / side.stride < side.windows ? first / side.stride : -1;
}

/// The byte of element [a, b, c, d].
TENON_DEVICE std::int64_t byte_at(const Array& x, std::int64_t a, std::int64_t b, std::int64_t c,
                                  std::int64_t d) {
  const std::int64_t(&steps)[max_axes] = x.steps.bytes;
  return a * steps[0] + b * steps[1] + c * steps[2] + d * steps[3];
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
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        const std::int64_t line =
            byte_at(args.x, at.at[0], first + c, place_of_tap(args.rows, at.at[2], r), 0);
        const std::int64_t taps = byte_at(args.w, output, c, r, 0);
        for (std::int64_t s = across.begin; s < across.end; ++s) {
          const std::int64_t column = place_of_tap(args.columns, at.at[3], s);
          const float x = load_as(0.0f, args.x, line + column * args.x.steps.bytes[3]);
          const float w = load_as(0.0f, args.w, taps + s * args.w.steps.bytes[3]);
          sum += x * w;
        }
      }
    }
    store_as(sum, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

/// Of codes, whose sums are integers modulo 2^32: a thread per `code_tile` outputs of a group and as
/// many columns.
TENON_DEVICE void convolve_codes(const Thread& thread, const ConvolutionArgs& args) {
  const std::uint32_t(&sizes)[max_axes] = args.axes.sizes;
  const std::uint32_t outputs = args.group_outputs, groups = sizes[1] / outputs;
  const std::uint32_t output_tiles = (outputs + code_tile - 1) / code_tile;
  const std::uint32_t column_tiles = (sizes[3] + code_tile - 1) / code_tile;
  const std::uint32_t count = sizes[0] * groups * output_tiles * sizes[2] * column_tiles;
  const auto x_zero = static_cast<std::uint32_t>(zero_point(args.x_zero, 0));
  for (std::uint32_t i = first_of(thread); i < count; i += stride_of(thread)) {
    const std::uint32_t column = i % column_tiles * code_tile;
    const std::uint32_t row = i / column_tiles % sizes[2];
    const std::uint32_t tile = i / column_tiles / sizes[2];
    const std::uint32_t in_group = tile % output_tiles * code_tile;
    const std::uint32_t group = tile / output_tiles % groups;
    const std::uint32_t image = tile / output_tiles / groups;
    const std::uint32_t output = group * outputs + in_group;
    const std::uint32_t own_outputs =
        outputs - in_group < code_tile ? outputs - in_group : code_tile;
    const std::uint32_t own_columns = sizes[3] - column < code_tile ? sizes[3] - column : code_tile;

    std::uint32_t w_zeros[code_tile] = {}, sums[code_tile][code_tile] = {};
    for (std::uint32_t o = 0; o < own_outputs; ++o) {
      w_zeros[o] = static_cast<std::uint32_t>(
          zero_point(args.w_zero, (output + o) * args.w_zero.steps.bytes[0]));
    }
    const TapRange down = taps_inside(args.rows, row);
    for (std::int64_t c = 0; c < args.channels; ++c) {
      for (std::int64_t r = down.begin; r < down.end; ++r) {
        const std::int64_t line =
            byte_at(args.x, image, group * args.channels + c, place_of_tap(args.rows, row, r), 0);
        for (std::int64_t s = 0; s < args.columns.taps; ++s) {
          std::uint32_t x[code_tile] = {};
          TENON_UNROLL for (std::uint32_t j = 0; j < code_tile; ++j) {
            const std::int64_t place = place_of_tap(args.columns, column + j, s);
            if (j >= own_columns || place < 0 || place >= args.columns.size) continue;
            x[j] = static_cast<std::uint32_t>(
                       load_as(std::int64_t(), args.x, line + place * args.x.steps.bytes[3])) -
                   x_zero;
          }
          TENON_UNROLL for (std::uint32_t o = 0; o < code_tile; ++o) {
            if (o >= own_outputs) continue;
            const std::int64_t at = byte_at(args.w, output + o, c, r, s);
            const std::uint32_t w =
                static_cast<std::uint32_t>(load_as(std::int64_t(), args.w, at)) - w_zeros[o];
            TENON_UNROLL for (std::uint32_t j = 0; j < code_tile; ++j) sums[o][j] += x[j] * w;
          }
        }
      }
    }
    TENON_UNROLL for (std::uint32_t o = 0; o < code_tile; ++o) {
      TENON_UNROLL for (std::uint32_t j = 0; j < code_tile; ++j) {
        if (o >= own_outputs || j >= own_columns) continue;
        store_as(std::int64_t{sums[o][j]}, args.y,
                 byte_at(args.y, image, output + o, row, column + j));
      }
    }
  }
}

/// Each element of y gathers what its windows' taps bring.
TENON_DEVICE void convolve_transposed(const Thread& thread, const ConvolutionArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const std::uint32_t output = at.at[1];
    const std::int64_t first = output / args.group_outputs * args.channels;
    float sum =
        args.bias.data == 0 ? 0.0f : load_as(0.0f, args.bias, output * args.bias.steps.bytes[0]);
    for (std::int64_t c = first; c < first + args.channels; ++c) {
      for (std::int64_t r = 0; r < args.rows.taps; ++r) {
        const std::int64_t row = window_of_tap(args.rows, at.at[2], r);
        for (std::int64_t s = 0; s < args.columns.taps && row >= 0; ++s) {
          const std::int64_t column = window_of_tap(args.columns, at.at[3], s);
          if (column < 0) continue;
          sum += load_as(0.0f, args.x, byte_at(args.x, at.at[0], c, row, column)) *
                 load_as(0.0f, args.w, byte_at(args.w, c, output % args.group_outputs, r, s));
        }
      }
    }
    store_as(sum, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

/// A block per element of the filter. Outside of the image there are zeros, as factors.
TENON_DEVICE void convolve_gradient(const Thread& thread, const FilterGradientArgs& args) {
  const WindowSide &rows = args.rows, &columns = args.columns;
  const std::int64_t places = rows.windows * columns.windows, count = args.images * places;
  for (std::uint32_t i = thread.block(); i < args.axes.count; i += thread.blocks()) {
    const Index at = index_of(args.axes, i);
    const std::int64_t channel = at.at[0] / args.group_outputs * args.axes.sizes[1] + at.at[1];
    float sum = 0;
    for (std::int64_t j = thread.index(); j < count; j += thread.count()) {
      const std::int64_t n = j / places, p = j % places / columns.windows, q = j % columns.windows;
      const std::int64_t row = p * rows.stride + at.at[2] * rows.dilation - rows.before;
      const std::int64_t column = q * columns.stride + at.at[3] * columns.dilation - columns.before;
      const bool is_inside = row >= 0 && row < rows.size && column >= 0 && column < columns.size;
      const float x =
          is_inside ? load_as(0.0f, args.x, byte_at(args.x, n, channel, row, column)) : 0.0f;
      sum += load_as(0.0f, args.upstream, byte_at(args.upstream, n, at.at[0], p, q)) * x;
    }
    sum = reduced_by_block(thread, Reduction::sum, sum);
    if (thread.index() == 0) store_as(sum, args.y, offset_of(at, args.y.steps, args.axes.rank));
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

/// Which element of its plane each window takes: the first of the largest, or the last NaN.
TENON_DEVICE void pick_winners(const Thread& thread, const PoolGradientArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const TapRange down = taps_inside(args.rows, at.at[2]),
                   across = taps_inside(args.columns, at.at[3]);
    float peak = -infinity();
    std::int64_t winner = -1;
    for (std::int64_t r = down.begin; r < down.end; ++r) {
      for (std::int64_t s = across.begin; s < across.end; ++s) {
        const std::int64_t row = place_of_tap(args.rows, at.at[2], r);
        const std::int64_t column = place_of_tap(args.columns, at.at[3], s);
        const float x = load_as(0.0f, args.x, byte_at(args.x, at.at[0], at.at[1], row, column));
        if (winner >= 0 && !(x > peak) && x == x) continue;
        peak = x;
        winner = row * args.columns.size + column;
      }
    }
    global<std::int32_t>(args.winners)[i] = static_cast<std::int32_t>(winner);
  }
}

/// Each element of x gathers from the windows that it is in.
TENON_DEVICE void pool_gradient(const Thread& thread, const PoolGradientArgs& args) {
  const WindowSide &rows = args.rows, &columns = args.columns;
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const std::int64_t plane =
        (std::int64_t{at.at[0]} * args.axes.sizes[1] + at.at[1]) * rows.windows * columns.windows;
    const std::int64_t place = at.at[2] * columns.size + at.at[3];
    float sum = 0;
    // From the last tap to the first, so that windows come in their order.
    for (std::int64_t r = rows.taps - 1; r >= 0; --r) {
      const std::int64_t p = window_of_tap(rows, at.at[2], r);
      for (std::int64_t s = columns.taps - 1; s >= 0 && p >= 0; --s) {
        const std::int64_t q = window_of_tap(columns, at.at[3], s);
        if (q < 0) continue;
        if (args.winners != 0 &&
            global<const std::int32_t>(args.winners)[plane + p * columns.windows + q] != place) {
          continue;
        }
        float count = args.divisor;
        if (args.winners == 0 && count == 0) {
          const TapRange down = taps_inside(rows, static_cast<std::uint32_t>(p)),
                         across = taps_inside(columns, static_cast<std::uint32_t>(q));
          count = static_cast<float>((down.end - down.begin) * (across.end - across.begin));
        }
        sum +=
            load_as(0.0f, args.upstream, byte_at(args.upstream, at.at[0], at.at[1], p, q)) / count;
      }
    }
    store_as(sum, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

TENON_DEVICE void unfold(const Thread& thread, const FoldArgs& args) {
  const std::int64_t taps = args.rows.taps * args.columns.taps;
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const std::int64_t tap = at.at[1] % taps, window = at.at[2];
    const std::int64_t row =
        place_of_tap(args.rows, static_cast<std::uint32_t>(window / args.columns.windows),
                     tap / args.columns.taps);
    const std::int64_t column =
        place_of_tap(args.columns, static_cast<std::uint32_t>(window % args.columns.windows),
                     tap % args.columns.taps);
    const bool is_inside =
        row >= 0 && row < args.rows.size && column >= 0 && column < args.columns.size;
    const float x =
        is_inside ? load_as(0.0f, args.x, byte_at(args.x, at.at[0], at.at[1] / taps, row, column))
                  : 0.0f;
    store_as(x, args.y, offset_of(at, args.y.steps, args.axes.rank));
  }
}

TENON_DEVICE void fold(const Thread& thread, const FoldArgs& args) {
  const std::int64_t taps = args.rows.taps * args.columns.taps;
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    float sum = 0;
    for (std::int64_t r = args.rows.taps - 1; r >= 0; --r) {
      const std::int64_t p = window_of_tap(args.rows, at.at[2], r);
      for (std::int64_t s = args.columns.taps - 1; s >= 0 && p >= 0; --s) {
        const std::int64_t q = window_of_tap(args.columns, at.at[3], s);
        if (q < 0) continue;
        const std::int64_t row = at.at[1] * taps + r * args.columns.taps + s;
        sum +=
            load_as(0.0f, args.x, byte_at(args.x, at.at[0], row, p * args.columns.windows + q, 0));
      }
    }
    store_as(sum, args.y, offset_of(at, args.y.steps, args.axes.rank));
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
