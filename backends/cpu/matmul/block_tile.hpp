#pragma once

// The tile of int8 products: a few rows by one or two panels over a stretch of k, sums in
// registers. Included after a simd_*.hpp.
#include "panel_body.hpp"

#include <type_traits>

namespace tenon::cpu {
namespace {

/// Bytes ahead of the codes in use to ask for: enough for memory to answer in time. Hardware
/// prefetch alone stops at each page.
constexpr std::int64_t prefetch_distance = 4096;
constexpr std::int64_t direct_rows = 4;   // most rows that read packed weights
constexpr std::int64_t most_groups = 24;  // of 32 unpacked at once: 12 KiB of a panel's codes

/// Groups of 32 that are unpacked at once: few stretches, of about equal size, of whole records.
TENON_INLINE std::int64_t stretch_of(std::int64_t groups) {
  if (groups <= most_groups) return groups < 1 ? 1 : groups;  // a step, even where there is nothing
  const std::int64_t stretches = (groups + most_groups - 1) / most_groups;
  return ((groups + stretches - 1) / stretches + 7) / 8 * 8;
}

/// A stretch of a panel with codes at a byte each and scales in f32.
template <int bits_, int offset_, int group_, bool has_min_>
struct UnpackedPanel {
  static constexpr int bits = bits_;
  static constexpr int offset = offset_;
  static constexpr int group = group_;
  static constexpr bool has_min = has_min_;
  static constexpr int groups_per_record = 1;
  static constexpr bool streams = false;  // it is in cache
  static constexpr int code_bytes = 512;
  static constexpr int subs = 32 / group;

  const std::uint8_t* code_section;
  const float* scales;
  const float* mins;
  int part;
  std::int64_t first_group;

  TENON_INLINE const std::uint8_t* codes(std::int64_t g) const {
    return code_section + (g - first_group) * 512 + part * (4 * Simd::lanes);
  }
  template <int j, class Weights>
  TENON_INLINE static Weights weights(const std::uint8_t* codes) {
    return Weights::load(codes + 64 * j, most_groups * 512);
  }
  struct Record {
    const float* scales;
    const float* mins;
    TENON_INLINE Float scale(int i) const { return Simd::load_float(scales + 16 * i); }
    TENON_INLINE Float min(int i) const { return Simd::load_float(mins + 16 * i); }
  };
  TENON_INLINE Record record(std::int64_t g) const {
    const std::int64_t at = (g - first_group) * (16 * subs) + part * Simd::lanes;
    return {scales + at, mins + at};
  }
};

/// Floats from a row's sums to the next row's where a tile covers so many panels.
constexpr std::int64_t sums_width(std::size_t panels) {
  return static_cast<std::int64_t>(16 * panels);
}

/// Calls f.template operator()<a, b>() for a < first, b < second.
template <int first, int second, class F>
TENON_INLINE void unroll_both(F&& f) {
  unroll<first * second>([&]<int i>() __attribute__((always_inline)) {
    f.template operator()<i / second, i % second>();
  });
}

/// What integer dot products of rows start from, because codes are `offset` above their values.
struct FromZero {
  static constexpr bool is_zero = true;
  TENON_INLINE static Int load(const std::int32_t*) { return Simd::broadcast_times<0>(nullptr); }
};
/// From minus the sum of the row's codes.
template <int offset>
struct FromNegativeSum {
  static constexpr bool is_zero = false;
  TENON_INLINE static Int load(const std::int32_t* p) { return Simd::broadcast_times<offset>(p); }
};
/// From that product, computed beforehand.
struct FromProduct {
  static constexpr bool is_zero = false;
  TENON_INLINE static Int load(const std::int32_t* p) { return Simd::broadcast_times<1>(p); }
};

/// Whether dot products take the type's codes with their offset.
template <class Panel>
constexpr bool codes_have_offset =
    Panel::offset != 0 && !(Panel::bits == 8 && Simd::makes_bytes_signed);

template <class Panel>
using DirectStart =
    std::conditional_t<codes_have_offset<Panel>, FromNegativeSum<Panel::offset>, FromZero>;

/// Only many rows repay products computed beforehand.
template <class Panel>
using StartOf = std::conditional_t<!Panel::streams && codes_have_offset<Panel>, FromProduct,
                                   DirectStart<Panel>>;

/// What a block's rows have to multiply with: entry by entry codes, scale and sums, `rows` of each.
template <class Panel, class Start, std::size_t rows>
struct RowStream {
  static constexpr int subs = 32 / Panel::group;
  static constexpr auto step = static_cast<std::int64_t>(rows);

  const std::int8_t* codes;
  const float* scales;
  const float* sums;
  const std::int32_t* starts;
  std::int64_t first_start = 0;  ///< entry that `starts` begins with

  TENON_INLINE RowStream(const LinearJob& job, const RowNumbers& numbers, std::int64_t row)
      : codes(numbers.codes + row * job.inputs), scales(numbers.scales + row * (job.inputs / 32)) {
    const std::int64_t at = row * (job.inputs / 32) * subs;
    sums = (subs == 1 ? numbers.sums : numbers.half_sums) + at;
    starts = (subs == 1 ? numbers.negative_sums : numbers.negative_half_sums) + at;
  }

  /// y += entry `entry` times a group of W: the codes of each panel, and record index i of it.
  template <std::size_t panels>
  TENON_INLINE void add(std::int64_t entry, const std::uint8_t* const (&w_codes)[panels],
                        const typename Panel::Record (&record)[panels], int i,
                        Float (&y)[panels][rows]) const {
    constexpr int quads = Panel::group / 4;
    unroll<subs>([&]<int sub>() __attribute__((always_inline)) {
      const std::int64_t s = (entry * subs + sub) * step;
      const std::int32_t* const start = starts + (s - first_start * subs * step);
      using PanelDot = Dot<Panel::bits, Start, quads>;
      PanelDot dot[panels][rows];
      unroll_both<int{panels}, int{rows}>([&]<std::size_t p, std::size_t r>() __attribute__((
                                              always_inline)) { dot[p][r].start(start + r); });
      unroll<quads>([&]<int q>() __attribute__((always_inline)) {
        constexpr int j = sub * quads + q;
        typename PanelDot::Weights w[panels];
        unroll<int{panels}>([&]<std::size_t p>() __attribute__((always_inline)) {
          w[p] = Panel::template weights<j, typename PanelDot::Weights>(w_codes[p]);
        });
        const std::int8_t* const quad = codes + (8 * entry + j) * step * 4;
        unroll<int{rows}>([&]<std::size_t r>() __attribute__((always_inline)) {
          const Int four = Simd::broadcast_quad(quad + 4 * r);
          unroll<int{panels}>([&]<std::size_t p>() __attribute__((always_inline)) {
            dot[p][r].template add<q>(w[p], four);
          });
        });
      });
      unroll<int{panels}>([&]<std::size_t p>() __attribute__((always_inline)) {
        const Float scale = record[p].scale(i * subs + sub);
        unroll<int{rows}>([&]<std::size_t r>() __attribute__((always_inline)) {
          const Float factor = Simd::mul(scale, Simd::broadcast(scales + entry * step + r));
          y[p][r] = Simd::fma(Simd::to_float(dot[p][r].total()), factor, y[p][r]);
        });
        if constexpr (Panel::has_min) {
          const Float min = record[p].min(i * subs + sub);
          unroll<int{rows}>([&]<std::size_t r>() __attribute__((always_inline)) {
            y[p][r] = Simd::fma(min, Simd::broadcast(sums + s + r), y[p][r]);
          });
        }
      });
    });
  }
};

/// Rows of a tile: a block of the prepared ones from `row` on, what their dot products with a
/// stretch of unpacked weights start from, and where their sums are between two stretches.
struct TileRows {
  std::int64_t row;
  const std::int32_t* starts;  ///< of the stretch's first group
  float* sums;
};

/// The product of a block of rows with panels from column `column` on, of each the lanes of its
/// part, over groups [first, last) of k. Sums go to memory at `x.sums`, [rows][16 panels], but
/// those of whole panels after the last group to y, with bias and residual. Second digits come
/// after the first of all groups.
template <std::size_t rows, std::size_t panels, class Panel>
void tile(const LinearJob& job, const Panel (&panel)[panels], std::int64_t column,
          const TileRows& x, std::int64_t first, std::int64_t last) {
  const auto sums_of = [&](std::size_t p, std::size_t r) { return x.sums + 16 * (panels * r + p); };
  Float y[panels][rows];
  unroll_both<int{panels}, int{rows}>(
      [&]<std::size_t p, std::size_t r>() __attribute__((always_inline)) {
        y[p][r] = first != 0 ? Simd::load_float(sums_of(p, r)) : Simd::zero_float();
      });
  const std::uint8_t* codes[panels];
  typename Panel::Record record[panels];
  RowStream<Panel, StartOf<Panel>, rows> stream(job, job.first, x.row);
  if constexpr (std::is_same_v<StartOf<Panel>, FromProduct>) {
    stream.starts = x.starts;
    stream.first_start = first;
  }
  for (std::int64_t g = first; g < last; g += Panel::groups_per_record) {
    for (std::size_t p = 0; p < panels; ++p) record[p] = panel[p].record(g);
    for (int i = 0; i < Panel::groups_per_record; ++i) {
      for (std::size_t p = 0; p < panels; ++p) {
        codes[p] = panel[p].codes(g + i);
        if constexpr (Panel::streams) {
          for (int line = 0; line < Panel::code_bytes; line += 64) {
            __builtin_prefetch(codes[p] + prefetch_distance + line);
          }
        }
      }
      stream.add(g + i, codes, record, i, y);
    }
  }
  if (job.second_count[x.row] > 0) {
    const RowStream<Panel, DirectStart<Panel>, rows> rest(job, job.second, x.row);
    const std::int32_t* const groups = job.second_groups + x.row * (job.inputs / 32);
    for (std::int64_t entry = 0; entry < job.second_count[x.row]; ++entry) {
      const std::int64_t g = groups[entry];
      if (g < first) continue;
      if (g >= last) break;
      const auto i = static_cast<int>(g % Panel::groups_per_record);
      for (std::size_t p = 0; p < panels; ++p) {
        record[p] = panel[p].record(g - i);
        codes[p] = panel[p].codes(g);
      }
      rest.add(entry, codes, record, i, y);
    }
  }
  for (std::size_t p = 0; p < panels; ++p) {
    const std::int64_t n = column + 16 * static_cast<std::int64_t>(p);
    const bool write = 32 * last == job.inputs && n + 16 <= job.outputs;
    for (std::size_t r = 0; r < rows; ++r) {
      if (write) {
        write_vector(job, x.row + static_cast<std::int64_t>(r), n + panel[p].part * Simd::lanes,
                     y[p][r]);
      } else {
        Simd::store_float(sums_of(p, r), y[p][r]);
      }
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
