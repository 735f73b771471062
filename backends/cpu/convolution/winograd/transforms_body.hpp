#pragma once

// The transforms of F(4x4, 3x3) and of its gradient, a vector of channels at a time: first along
// the columns of a tile, then along its rows. Included after a header of simd/.
#include "../store_planes.hpp"
#include "../window_taps.hpp"
#include "winograd.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

namespace wg = winograd;

struct Six {
  Float at[6];
};
struct Four {
  Float at[4];
};
struct Three {
  Float at[3];
};

TENON_INLINE Float constant(const float& value) { return Simd::broadcast(&value); }

/// B'd along one axis.
TENON_INLINE Six input_line(const Six& d) {
  static constexpr float a = wg::point_a, b = wg::point_b, minus_a = -a, minus_b = -b;
  static constexpr float minus_a2 = -a * a, minus_b2 = -b * b;
  static constexpr float sum = -(a * a + b * b), product = a * a * b * b;
  const auto times = [](const float& k, Float x, Float plus) {
    return Simd::fma(constant(k), x, plus);
  };
  const Float even_a = times(minus_b2, d.at[2], d.at[4]), odd_a = times(minus_b2, d.at[1], d.at[3]);
  const Float even_b = times(minus_a2, d.at[2], d.at[4]), odd_b = times(minus_a2, d.at[1], d.at[3]);
  return {{times(product, d.at[0], times(sum, d.at[2], d.at[4])), times(a, odd_a, even_a),
           times(minus_a, odd_a, even_a), times(b, odd_b, even_b), times(minus_b, odd_b, even_b),
           times(product, d.at[1], times(sum, d.at[3], d.at[5]))}};
}

/// A'm along one axis.
TENON_INLINE Four output_line(const Six& m) {
  static constexpr float a = wg::point_a, b = wg::point_b, a2 = a * a, b2 = b * b, a3 = a * a * a,
                         b3 = b * b * b;
  const Float even_a = Simd::add(m.at[1], m.at[2]), odd_a = Simd::sub(m.at[1], m.at[2]);
  const Float even_b = Simd::add(m.at[3], m.at[4]), odd_b = Simd::sub(m.at[3], m.at[4]);
  const auto both = [](const float& k, Float x, const float& l, Float y) {
    return Simd::fma(constant(k), x, Simd::mul(constant(l), y));
  };
  return {{Simd::add(m.at[0], Simd::add(even_a, even_b)), both(a, odd_a, b, odd_b),
           both(a2, even_a, b2, even_b),
           Simd::fma(constant(a3), odd_a, Simd::fma(constant(b3), odd_b, m.at[5]))}};
}

/// A u along one axis.
TENON_INLINE Six upstream_line(const Four& u) {
  static constexpr float a = wg::point_a, b = wg::point_b, a2 = a * a, b2 = b * b, a3 = a * a * a,
                         b3 = b * b * b;
  const auto even = [&](const float& square) {
    return Simd::fma(constant(square), u.at[2], u.at[0]);
  };
  const auto odd = [&](const float& point, const float& cube) {
    return Simd::fma(constant(cube), u.at[3], Simd::mul(constant(point), u.at[1]));
  };
  const Float even_a = even(a2), odd_a = odd(a, a3), even_b = even(b2), odd_b = odd(b, b3);
  return {{u.at[0], Simd::add(even_a, odd_a), Simd::sub(even_a, odd_a), Simd::add(even_b, odd_b),
           Simd::sub(even_b, odd_b), u.at[3]}};
}

/// G'm along one axis.
TENON_INLINE Three taps_line(const Six& m) {
  constexpr double a = wg::point_a, b = wg::point_b, a2 = a * a, b2 = b * b;
  constexpr double of_a = 1 / (2 * a2 * (a2 - b2)), of_b = 1 / (2 * b2 * (b2 - a2));
  static constexpr float zero = static_cast<float>(1 / (a2 * b2));
  static constexpr float a_0 = static_cast<float>(of_a), b_0 = static_cast<float>(of_b);
  static constexpr float a_1 = static_cast<float>(a * of_a), b_1 = static_cast<float>(b * of_b);
  static constexpr float a_2 = static_cast<float>(a2 * of_a), b_2 = static_cast<float>(b2 * of_b);
  const Float even_a = Simd::add(m.at[1], m.at[2]), odd_a = Simd::sub(m.at[1], m.at[2]);
  const Float even_b = Simd::add(m.at[3], m.at[4]), odd_b = Simd::sub(m.at[3], m.at[4]);
  const auto both = [](const float& k, Float x, const float& l, Float y) {
    return Simd::fma(constant(k), x, Simd::mul(constant(l), y));
  };
  return {{Simd::fma(constant(zero), m.at[0], both(a_0, even_a, b_0, even_b)),
           both(a_1, odd_a, b_1, odd_b), Simd::add(both(a_2, even_a, b_2, even_b), m.at[5])}};
}

/// `inside`: the tile reads no padding.
template <bool inside>
TENON_INLINE void input_tile(const wg::InputJob& job, std::int64_t row, std::int64_t column,
                             float* to) {
  const auto is_inside = [](const WindowAxis& axis, std::int64_t at) {
    return inside || (at >= 0 && at < axis.inputs);
  };
  const float* const from = job.x.at + row * job.x.row + column * job.x.column;
  for (std::int64_t channel = 0; channel < job.channels; channel += Simd::lanes) {
    const std::int64_t count = job.channels - channel;
    Six lines[wg::side];  // by row, along the columns
#pragma GCC unroll 6
    for (int j = 0; j < wg::side; ++j) {
      Six d;
#pragma GCC unroll 6
      for (int i = 0; i < wg::side; ++i) {
        const bool is_read = is_inside(job.rows, row + i) && is_inside(job.columns, column + j);
        d.at[i] = is_read ? load_channels(from + i * job.x.row + j * job.x.column + channel, count)
                          : Simd::zero_float();
      }
      const Six v = input_line(d);
#pragma GCC unroll 6
      for (int i = 0; i < wg::side; ++i) lines[i].at[j] = v.at[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < wg::side; ++i) {
      const Six v = input_line(lines[i]);
#pragma GCC unroll 6
      for (int j = 0; j < wg::side; ++j) {
        Simd::store_float(to + (i * wg::side + j) * job.number + channel, v.at[j]);
      }
    }
  }
}

void winograd_input(const wg::InputJob& job, const wg::TileRun& run) noexcept {
  const std::int64_t row = run.row - job.rows.before;
  for (std::int64_t t = 0; t < run.count; ++t) {
    const std::int64_t column = run.column + t * wg::tile - job.columns.before;
    const bool inside = row >= 0 && row + wg::side <= job.rows.inputs && column >= 0 &&
                        column + wg::side <= job.columns.inputs;
    float* to = job.numbers + t * job.tile;
    inside ? input_tile<true>(job, row, column, to) : input_tile<false>(job, row, column, to);
  }
}

void winograd_upstream(const wg::InputJob& job, const wg::TileRun& run) noexcept {
  for (std::int64_t t = 0; t < run.count; ++t) {
    const std::int64_t column = run.column + t * wg::tile;
    const float* const from = job.x.at + run.row * job.x.row + column * job.x.column;
    const std::int64_t rows = job.rows.inputs - run.row, columns = job.columns.inputs - column;
    for (std::int64_t channel = 0; channel < job.channels; channel += Simd::lanes) {
      const std::int64_t count = job.channels - channel;
      float* const to = job.numbers + t * job.tile + channel;
      Four lines[wg::side];  // by row, along the columns
#pragma GCC unroll 4
      for (int j = 0; j < wg::tile; ++j) {
        Four u;
#pragma GCC unroll 4
        for (int i = 0; i < wg::tile; ++i) {
          u.at[i] = i < rows && j < columns
                        ? load_channels(from + i * job.x.row + j * job.x.column + channel, count)
                        : Simd::zero_float();
        }
        const Six v = upstream_line(u);
#pragma GCC unroll 6
        for (int i = 0; i < wg::side; ++i) lines[i].at[j] = v.at[i];
      }
#pragma GCC unroll 6
      for (int i = 0; i < wg::side; ++i) {
        const Six v = upstream_line(lines[i]);
#pragma GCC unroll 6
        for (int j = 0; j < wg::side; ++j) {
          Simd::store_float(to + (i * wg::side + j) * job.number, v.at[j]);
        }
      }
    }
  }
}

void winograd_taps(const wg::TapsJob& job) noexcept {
  for (std::int64_t channel = 0; channel < job.channels; channel += Simd::lanes) {
    Six lines[3];  // by row, along the columns
#pragma GCC unroll 6
    for (int j = 0; j < wg::side; ++j) {
      Six m;
#pragma GCC unroll 6
      for (int i = 0; i < wg::side; ++i) {
        m.at[i] = Simd::load_float(job.numbers + (i * wg::side + j) * job.number + channel);
      }
      const Three taps = taps_line(m);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) lines[i].at[j] = taps.at[i];
    }
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      const Three taps = taps_line(lines[i]);
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        Simd::store_float(job.taps + (i * 3 + j) * job.tap + channel, taps.at[j]);
      }
    }
  }
}

/// A pixel's channels, where they are not adjacent.
void store_apart(const wg::OutputJob& job, std::int64_t y, std::int64_t residual, Float sum,
                 std::int64_t count) {
  float values[Simd::lanes];
  Simd::store_float(values, sum);
  const Finish& finish = job.finish;
  for (std::int64_t c = 0; c < Simd::lanes && c < count; ++c) {
    float value = values[c];
    if (finish.residual.at != nullptr) {
      value += finish.residual.at[residual + c * finish.residual.channel];
    }
    value = value < finish.low ? finish.low : value;
    job.y.at[y + c * job.y.channel] = value > finish.high ? finish.high : value;
  }
}

/// The sums of a tile's outputs, with their bias, for a vector of channels: store(row, column, sum).
template <class Store>
TENON_INLINE void output_sums(const wg::OutputJob& job, std::int64_t channel, const float* from,
                              const Store& store) {
  Six lines[wg::tile];
#pragma GCC unroll 6
  for (int j = 0; j < wg::side; ++j) {
    Six m;
#pragma GCC unroll 6
    for (int i = 0; i < wg::side; ++i) {
      m.at[i] = Simd::load_float(from + (i * wg::side + j) * job.number + channel);
    }
    const Four sums = output_line(m);
#pragma GCC unroll 4
    for (int i = 0; i < wg::tile; ++i) lines[i].at[j] = sums.at[i];
  }
  const float* bias = job.finish.bias;
  const Float start =
      bias == nullptr ? Simd::zero_float() : load_channels(bias + channel, job.channels - channel);
#pragma GCC unroll 4
  for (int i = 0; i < wg::tile; ++i) {
    const Four sums = output_line(lines[i]);
#pragma GCC unroll 4
    for (int j = 0; j < wg::tile; ++j) store(i, j, Simd::add(sums.at[j], start));
  }
}

/// `whole`: all 4 by 4 outputs are in the image.
template <bool whole>
TENON_INLINE void output_tile(const wg::OutputJob& job, std::int64_t row, std::int64_t column,
                              const float* from) {
  const Finish& finish = job.finish;
  const Image<const float>& residual = finish.residual;
  const bool is_last = job.y.channel == 1 && (residual.at == nullptr || residual.channel == 1);
  const Float low = Simd::broadcast(&finish.low), high = Simd::broadcast(&finish.high);
  for (std::int64_t channel = 0; channel < job.channels; channel += Simd::lanes) {
    const std::int64_t count = job.channels - channel;
    output_sums(job, channel, from, [&](int i, int j, Float sum) __attribute__((always_inline)) {
      if (!whole && (row + i >= job.rows || column + j >= job.columns)) return;
      const auto place = [&](const auto& image) {
        return (row + i) * image.row + (column + j) * image.column + channel * image.channel;
      };
      if (!is_last) return store_apart(job, place(job.y), place(residual), sum, count);
      if (residual.at != nullptr) {
        sum = Simd::add(sum, load_channels(residual.at + place(residual), count));
      }
      store_channels(job.y.at + place(job.y), limited(sum, low, high), count);
    });
  }
}

constexpr std::int64_t tiles_across = Simd::lanes / wg::tile;  // in a vector of columns

/// Up to `tiles_across` adjacent tiles of an image whose columns are adjacent.
void output_planes(const wg::OutputJob& job, std::int64_t row, std::int64_t column,
                   const float* from, std::int64_t tiles) {
  const std::int64_t inside = job.columns - column;
  const std::int64_t pixels = inside < tiles * wg::tile ? inside : tiles * wg::tile;
  const Image<const float>& residual = job.finish.residual;
  alignas(64) float sums[wg::tile][Simd::lanes][Simd::lanes] = {};  // row, column, channel
  for (std::int64_t channel = 0; channel < job.channels; channel += Simd::lanes) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      output_sums(job, channel, from + t * job.tile,
                  [&](int i, int j, Float sum) __attribute__((always_inline)) {
                    Simd::store_float(sums[i][t * wg::tile + j], sum);
                  });
    }
    for (int i = 0; i < wg::tile && row + i < job.rows; ++i) {
      const auto place = [&](const auto& image) {
        return image.at + (row + i) * image.row + column + channel * image.channel;
      };
      Float lines[Simd::lanes];
#pragma GCC unroll 16
      for (int p = 0; p < Simd::lanes; ++p) lines[p] = Simd::load_float(sums[i][p]);
      store_planes(job.finish, lines, pixels, job.channels - channel, place(job.y), job.y.channel,
                   residual.at == nullptr ? nullptr : place(residual));
    }
  }
}

void winograd_output(const wg::OutputJob& job, const wg::TileRun& run) noexcept {
  const bool is_planar = job.y.channel != 1 && has_planes(job.y, job.finish);
  const std::int64_t step = is_planar ? tiles_across : 1;
  for (std::int64_t t = 0; t < run.count; t += step) {
    const std::int64_t column = run.column + t * wg::tile;
    const float* from = job.numbers + t * job.tile;
    if (is_planar) {
      output_planes(job, run.row, column, from, run.count - t < step ? run.count - t : step);
      continue;
    }
    const bool whole = run.row + wg::tile <= job.rows && column + wg::tile <= job.columns;
    whole ? output_tile<true>(job, run.row, column, from)
          : output_tile<false>(job, run.row, column, from);
  }
}

}  // namespace
}  // namespace tenon::cpu
