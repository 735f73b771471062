#pragma once

// Convolution of each channel by itself, a vector of channels at a time. Included after a
// header of simd/.
//
// The element type is a parameter, `Io`: its Job, how a vector of channels is read (`load`), where
// sums `start`, and how one is stored (`store`).
//
// A tile of adjacent pixels reads the columns that its windows share once. Outputs sum in the order
// of taps in every tile.
#include "convolution_kernels.hpp"
#include "window_taps.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

/// Pixels side by side: the rows of the usual networks' images are multiples of 7.
constexpr int depthwise_pixels = 7;

struct DepthwiseTile {
  std::int64_t row, column;
  Taps rows;    // inside the image
  bool inside;  // all columns of all taps
};

/// A kernel of `taps` columns without dilation. `inside`: all taps' columns are; `whole`: the
/// channels fill a vector.
template <class Io, int taps, int stride, int pixels, bool inside, bool whole>
void depthwise_tile(const typename Io::Job& job, const DepthwiseTile& tile, std::int64_t channel) {
  constexpr int width = (pixels - 1) * stride + taps;
  const std::int64_t count = whole ? Simd::lanes : job.channels - channel;
  Float sums[static_cast<std::size_t>(pixels)];
  const Float start = Io::start(job, channel);
#pragma GCC unroll 8
  for (int p = 0; p < pixels; ++p) sums[p] = start;
  const std::int64_t left = tile.column * stride - job.columns.before;
  const float* filter =
      job.filter + channel / 16 * 16 * job.rows.taps * job.columns.taps + channel % 16;
  for (std::int64_t r = tile.rows.begin; r < tile.rows.end; ++r) {
    const std::int64_t row = tile.row * job.rows.stride + r * job.rows.dilation - job.rows.before;
    const auto* x = job.x.at + row * job.x.row + left * job.x.column + channel;
    Float w[static_cast<std::size_t>(taps)];
#pragma GCC unroll 8
    for (int s = 0; s < taps; ++s) w[s] = Simd::load_float(filter + (r * taps + s) * 16);
#pragma GCC unroll 32
    for (int c = 0; c < width; ++c) {
      if (!inside && (left + c < 0 || left + c >= job.columns.inputs)) continue;
      const Float value = Io::load(job, x + c * job.x.column, count);
#pragma GCC unroll 8
      for (int s = 0; s < taps; ++s) {
        if ((c - s) % stride != 0 || c < s || (c - s) / stride >= pixels) continue;
        const int p = (c - s) / stride;
        sums[p] = Simd::fma(value, w[s], sums[p]);
      }
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < pixels; ++p) Io::store(job, tile, p, channel, sums[p]);
}

/// One pixel under any kernel.
template <class Io>
void depthwise_pixel(const typename Io::Job& job, const DepthwiseTile& tile, std::int64_t channel) {
  const WindowAxis& columns = job.columns;
  const std::int64_t count = job.channels - channel;
  const Taps taps = taps_inside(columns, tile.column);
  const float* filter =
      job.filter + channel / 16 * 16 * job.rows.taps * columns.taps + channel % 16;
  Float sum = Io::start(job, channel);
  for (std::int64_t r = tile.rows.begin; r < tile.rows.end; ++r) {
    const std::int64_t row = tile.row * job.rows.stride + r * job.rows.dilation - job.rows.before;
    for (std::int64_t s = taps.begin; s < taps.end; ++s) {
      const std::int64_t column =
          tile.column * columns.stride + s * columns.dilation - columns.before;
      const Float value =
          Io::load(job, job.x.at + row * job.x.row + column * job.x.column + channel, count);
      sum = Simd::fma(value, Simd::load_float(filter + (r * columns.taps + s) * 16), sum);
    }
  }
  Io::store(job, tile, 0, channel, sum);
}

template <class Io, int taps, int stride>
struct FixedWindow {
  template <int pixels>
  static void run(const typename Io::Job& job, const DepthwiseTile& tile, const Part& part) {
    std::int64_t channel = part.first_channel;
    const auto whole_vectors = [&]<bool inside>() {
      for (; channel + Simd::lanes <= part.last_channel; channel += Simd::lanes) {
        depthwise_tile<Io, taps, stride, pixels, inside, true>(job, tile, channel);
      }
    };
    if (tile.inside) {
      whole_vectors.template operator()<true>();
    } else {
      whole_vectors.template operator()<false>();
    }
    if (channel < part.last_channel) {
      depthwise_tile<Io, taps, stride, pixels, false, false>(job, tile, channel);
    }
  }
};

template <class Io>
struct AnyWindow {
  template <int pixels>
  static void run(const typename Io::Job& job, const DepthwiseTile& tile, const Part& part) {
    for (int p = 0; p < pixels; ++p) {
      const DepthwiseTile one{tile.row, tile.column + p, tile.rows, false};
      for (std::int64_t c = part.first_channel; c < part.last_channel; c += Simd::lanes) {
        depthwise_pixel<Io>(job, one, c);
      }
    }
  }
};

/// As many channels as let the lines under a row of outputs stay in L1 until the next row reads
/// them again.
template <class Job>
TENON_INLINE std::int64_t channels_at_once(const Job& job) {
  constexpr std::int64_t cached_floats = 6 << 10;
  const std::int64_t line = job.rows.taps * job.columns.inputs;
  const std::int64_t channels = cached_floats / (line > 0 ? line : 1) / 16 * 16;
  return channels < 16 ? 16 : channels;
}

template <class Window, class Job>
void depthwise_rows(const Job& job, const Part& part) {
  const WindowAxis& columns = job.columns;
  const std::int64_t reach = (columns.taps - 1) * columns.dilation;
  for (std::int64_t row = part.first_row; row < part.last_row; ++row) {
    const Taps rows = taps_inside(job.rows, row);
    std::int64_t column = part.first_column;
    const auto run = [&]<int pixels>() {
      for (; part.last_column - column >= pixels; column += pixels) {
        const std::int64_t left = column * columns.stride - columns.before;
        const bool inside =
            left >= 0 && left + (pixels - 1) * columns.stride + reach < columns.inputs;
        Window::template run<pixels>(job, {row, column, rows, inside}, part);
      }
    };
    run.template operator()<depthwise_pixels>();
    run.template operator()<3>();
    run.template operator()<1>();
  }
}

template <class Window, class Job>
void depthwise_part(const Job& job, const Part& part) {
  const std::int64_t step = channels_at_once(job);
  Part some = part;
  for (std::int64_t c = part.first_channel; c < part.last_channel; c += step) {
    some.first_channel = c;
    some.last_channel = c + step < part.last_channel ? c + step : part.last_channel;
    depthwise_rows<Window>(job, some);
  }
}

template <class Io>
void depthwise(const typename Io::Job& job, const Part& part) noexcept {
  const WindowAxis& columns = job.columns;
  if (columns.dilation == 1 && columns.stride == 1 && columns.taps == 3)
    return depthwise_part<FixedWindow<Io, 3, 1>>(job, part);
  if (columns.dilation == 1 && columns.stride == 2 && columns.taps == 3)
    return depthwise_part<FixedWindow<Io, 3, 2>>(job, part);
  if (columns.dilation == 1 && columns.stride == 1 && columns.taps == 5)
    return depthwise_part<FixedWindow<Io, 5, 1>>(job, part);
  if (columns.dilation == 1 && columns.stride == 2 && columns.taps == 5)
    return depthwise_part<FixedWindow<Io, 5, 2>>(job, part);
  depthwise_part<AnyWindow<Io>>(job, part);
}

}  // namespace
}  // namespace tenon::cpu
