#pragma once

// Linear layers of block types on int8 rows: y = x W^T by integer dot products, one per group of 32
// or 16 elements, scaled and summed in f32 in the order of k. Included after a simd_*.hpp.
//
// Few rows read the packed weights directly: each weight is used a handful of times and the work is
// to get it from memory. Many rows unpack a stretch of a panel once, into level-one cache, and go
// over it tile by tile. Both compute every sum in the same order, so rows do not depend on M.
// Neither does a neighbour's second digits matter to a row: its own are zeros there.
#include "panel_body.hpp"

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
  template <int j>
  TENON_INLINE static Int vector(const std::uint8_t* codes) {
    return Simd::load(codes + 64 * j);
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

/// Stretches of the panels of a tile.
struct Scratch {
  struct Panel {
    alignas(64) std::uint8_t codes[most_groups * 512];
    alignas(64) float scales[most_groups * 2 * 16];
    alignas(64) float mins[most_groups * 2 * 16];
  };
  Panel panels[Simd::tile_panels];
  alignas(64) float sums[max_block_rows * 16 * Simd::tile_panels];
};

/// Floats from a row's sums to the next row's where a tile covers so many panels.
constexpr std::int64_t sums_width(std::size_t panels) {
  return static_cast<std::int64_t>(16 * panels);
}

/// What a block's rows have to multiply with: entry by entry codes, scale and sums, `rows` of each.
template <class Panel, std::size_t rows>
struct RowStream {
  static constexpr int subs = 32 / Panel::group;
  static constexpr auto step = static_cast<std::int64_t>(rows);

  const std::int8_t* codes;
  const float* scales;
  const float* sums;
  const std::int32_t* negative_sums;

  TENON_INLINE RowStream(const LinearJob& job, const RowNumbers& numbers, std::int64_t row)
      : codes(numbers.codes + row * job.inputs), scales(numbers.scales + row * (job.inputs / 32)) {
    const std::int64_t at = row * (job.inputs / 32) * subs;
    sums = (subs == 1 ? numbers.sums : numbers.half_sums) + at;
    negative_sums = (subs == 1 ? numbers.negative_sums : numbers.negative_half_sums) + at;
  }

  /// y += entry `entry` times a group of W: the codes of each panel, and record index i of it.
  template <std::size_t panels>
  TENON_INLINE void add(std::int64_t entry, const std::uint8_t* const (&w_codes)[panels],
                        const typename Panel::Record (&record)[panels], int i,
                        Float (&y)[panels][rows]) const {
    constexpr int quads = Panel::group / 4;
    unroll<subs>([&]<int sub>() __attribute__((always_inline)) {
      const std::int64_t s = (entry * subs + sub) * step;
      Dot<Panel::bits, Panel::offset, quads> dot[panels][rows];
      for (std::size_t p = 0; p < panels; ++p) {
        for (std::size_t r = 0; r < rows; ++r) dot[p][r].start(negative_sums + s + r);
      }
      unroll<quads>([&]<int q>() __attribute__((always_inline)) {
        constexpr int j = sub * quads + q;
        Int w[panels];
        for (std::size_t p = 0; p < panels; ++p) w[p] = Panel::template vector<j>(w_codes[p]);
        const std::int8_t* const quad = codes + (8 * entry + j) * step * 4;
        for (std::size_t r = 0; r < rows; ++r) {
          const Int four = Simd::broadcast_quad(quad + 4 * r);
          for (std::size_t p = 0; p < panels; ++p) dot[p][r].template add<q>(w[p], four);
        }
      });
      for (std::size_t p = 0; p < panels; ++p) {
        const Float scale = record[p].scale(i * subs + sub);
        for (std::size_t r = 0; r < rows; ++r) {
          const Float factor = Simd::mul(scale, Simd::broadcast(scales + entry * step + r));
          y[p][r] = Simd::fma(Simd::to_float(dot[p][r].total()), factor, y[p][r]);
        }
        if constexpr (Panel::has_min) {
          const Float min = record[p].min(i * subs + sub);
          for (std::size_t r = 0; r < rows; ++r) {
            y[p][r] = Simd::fma(min, Simd::broadcast(sums + s + r), y[p][r]);
          }
        }
      }
    });
  }
};

/// sums[rows][16 panels], of each panel the lanes of its part, (+)= x W^T over groups [first,
/// last). The rows are a block of the prepared ones. Second digits come after the first of all
/// groups.
template <std::size_t rows, std::size_t panels, class Panel>
void tile(const LinearJob& job, const Panel (&panel)[panels], std::int64_t row, std::int64_t first,
          std::int64_t last, bool accumulate, float* sums) {
  const auto sums_of = [&](std::size_t p, std::size_t r) {
    return sums + sums_width(panels) * static_cast<std::int64_t>(r) + 16 * p;
  };
  Float y[panels][rows];
  for (std::size_t p = 0; p < panels; ++p) {
    for (std::size_t r = 0; r < rows; ++r) {
      y[p][r] = accumulate ? Simd::load_float(sums_of(p, r)) : Simd::zero_float();
    }
  }
  const std::uint8_t* codes[panels];
  typename Panel::Record record[panels];
  const RowStream<Panel, rows> stream(job, job.first, row);
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
  if (job.second_count[row] > 0) {
    const RowStream<Panel, rows> rest(job, job.second, row);
    const std::int32_t* const groups = job.second_groups + row * (job.inputs / 32);
    for (std::int64_t entry = 0; entry < job.second_count[row]; ++entry) {
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
    for (std::size_t r = 0; r < rows; ++r) Simd::store_float(sums_of(p, r), y[p][r]);
  }
}

template <class Packed>
void unpack(const Packed& packed, std::int64_t first, std::int64_t last, Scratch::Panel& out) {
  constexpr int subs = 32 / Packed::group;
  for (std::int64_t g = first; g < last; g += Packed::groups_per_record) {
    const auto record = packed.record(g);
    for (int i = 0; i < Packed::groups_per_record; ++i) {
      const std::uint8_t* codes = packed.codes(g + i);
      const std::int64_t at = g + i - first;
      std::uint8_t* bytes = out.codes + at * 512 + packed.part * (4 * Simd::lanes);
      unroll<8>([&]<int j>() __attribute__((always_inline)) {
        Simd::store(bytes + 64 * j, Packed::template vector<j>(codes));
      });
      for (int sub = 0; sub < subs; ++sub) {
        const std::int64_t lane = (at * subs + sub) * 16 + packed.part * Simd::lanes;
        Simd::store_float(out.scales + lane, record.scale(i * subs + sub));
        if constexpr (Packed::has_min) {
          Simd::store_float(out.mins + lane, record.min(i * subs + sub));
        }
      }
    }
  }
}

template <DType dtype>
void few_rows(const LinearJob& job, const LinearBlock& block) {
  alignas(64) float sums[direct_rows * 16];
  const std::int64_t groups = job.inputs / 32, stretch = stretch_of(groups);
  const std::int64_t rows = block.last_row - block.first_row;
  for (std::int64_t p = block.first_panel; p < block.last_panel; ++p) {
    const auto* start = reinterpret_cast<const std::uint8_t*>(job.panels) +
                        static_cast<std::size_t>(p) * job.panel_bytes;
    PackedPanel<dtype> panel[1] = {{start, start + job.scale_bytes, 0}};
    for (int part = 0; part < parts; ++part) {
      panel[0].part = part;
      float* out = sums + part * Simd::lanes;
      // By the stretches of many_rows, so that sums have one order.
      for (std::int64_t g = 0; g == 0 || g < groups; g += stretch) {
        const std::int64_t end = smaller(g + stretch, groups);
        switch (rows) {
          case 1:
            tile<1>(job, panel, block.first_row, g, end, g != 0, out);
            break;
          case 2:
            tile<2>(job, panel, block.first_row, g, end, g != 0, out);
            break;
          case 3:
            tile<3>(job, panel, block.first_row, g, end, g != 0, out);
            break;
          default:
            tile<4>(job, panel, block.first_row, g, end, g != 0, out);
            break;
        }
      }
    }
    write_rows(job, p, block.first_row, rows, sums, 16);
    activate(job, p, 1, block.first_row, rows);
  }
}

/// Asks for where results of so many rows go: a column of them lies in as many lines, which memory
/// takes longer to hand out one after the other than a tile takes to compute.
TENON_INLINE void prefetch_results(const LinearJob& job, std::int64_t first_column,
                                   std::int64_t columns, std::int64_t row, std::int64_t rows) {
  for (std::int64_t r = row; r < row + rows; ++r) {
    for (std::int64_t n = first_column; n < first_column + columns; n += 16) {
      __builtin_prefetch(job.y + r * job.y_stride + n, 1);
      if (job.residual != nullptr) __builtin_prefetch(job.residual + r * job.residual_stride + n);
    }
  }
}

/// `p` is the number of the first panel.
template <std::size_t panels, class Panel>
void all_tiles(const LinearJob& job, const Panel (&panel)[panels], const LinearBlock& block,
               std::int64_t p, std::int64_t first, std::int64_t last, float* sums) {
  const bool accumulate = first != 0;
  const bool is_last = 32 * last == job.inputs && panel[0].part == parts - 1;
  for (std::int64_t row = block.first_row; row < block.last_row;) {
    float* const out = sums + sums_width(panels) * (row - block.first_row);
    const auto run = [&]<std::size_t rows>() {
      if (is_last) prefetch_results(job, 16 * p, 16 * panels, row, rows);
      tile<rows>(job, panel, row, first, last, accumulate, out);
      row += static_cast<std::int64_t>(rows);
    };
    switch (rows_of_block(block.last_row - row, Simd::tile_rows)) {
      case 1:
        run.template operator()<1>();
        break;
      case 2:
        run.template operator()<2>();
        break;
      case 3:
        run.template operator()<3>();
        break;
      case 4:
        run.template operator()<4>();
        break;
      default:
        run.template operator()<Simd::tile_rows>();
        break;
    }
  }
}

/// All rows of the block by `panels` panels from the p-th on.
template <DType dtype, std::size_t panels>
void many_rows(const LinearJob& job, const LinearBlock& block, std::int64_t p, Scratch& scratch) {
  using Packed = PackedPanel<dtype>;
  using Unpacked = UnpackedPanel<Packed::bits, Packed::offset, Packed::group, Packed::has_min>;
  constexpr std::int64_t width = sums_width(panels);
  const std::int64_t groups = job.inputs / 32, stretch = stretch_of(groups);
  const std::int64_t rows = block.last_row - block.first_row;
  if (groups == 0) __builtin_memset(scratch.sums, 0, sizeof scratch.sums);
  for (std::int64_t g = 0; g < groups; g += stretch) {
    const std::int64_t end = smaller(g + stretch, groups);
    for (int part = 0; part < parts; ++part) {
      Unpacked unpacked[panels];
      for (std::size_t i = 0; i < panels; ++i) {
        const auto* start = reinterpret_cast<const std::uint8_t*>(job.panels) +
                            (static_cast<std::size_t>(p) + i) * job.panel_bytes;
        Scratch::Panel& to = scratch.panels[i];
        unpack(Packed{start, start + job.scale_bytes, part}, g, end, to);
        unpacked[i] = {to.codes, to.scales, to.mins, part, g};
      }
      all_tiles(job, unpacked, block, p, g, end, scratch.sums + part * Simd::lanes);
    }
  }
  for (std::size_t i = 0; i < panels; ++i) {
    write_rows(job, p + static_cast<std::int64_t>(i), block.first_row, rows, scratch.sums + 16 * i,
               width);
  }
  activate(job, p, panels, block.first_row, rows);
}

template <DType dtype>
void many_rows(const LinearJob& job, const LinearBlock& block) {
  Scratch scratch;
  constexpr std::int64_t at_once = Simd::tile_panels;
  std::int64_t p = block.first_panel;
  for (; p + at_once <= block.last_panel; p += at_once) {
    many_rows<dtype, at_once>(job, block, p, scratch);
  }
  for (; p < block.last_panel; ++p) many_rows<dtype, 1>(job, block, p, scratch);
}

template <DType dtype>
void run_blocks(const LinearJob& job, const LinearBlock& block) {
  if (block.last_row - block.first_row <= direct_rows) {
    few_rows<dtype>(job, block);
  } else {
    many_rows<dtype>(job, block);
  }
}

void run_blocks(const LinearJob& job, const LinearBlock& block) {
  switch (job.dtype) {
    case DType::q4_0:
      return run_blocks<DType::q4_0>(job, block);
    case DType::q4_1:
      return run_blocks<DType::q4_1>(job, block);
    case DType::q5_0:
      return run_blocks<DType::q5_0>(job, block);
    case DType::q5_1:
      return run_blocks<DType::q5_1>(job, block);
    case DType::q8_0:
      return run_blocks<DType::q8_0>(job, block);
    case DType::q2_k:
      return run_blocks<DType::q2_k>(job, block);
    case DType::q3_k:
      return run_blocks<DType::q3_k>(job, block);
    case DType::q4_k:
      return run_blocks<DType::q4_k>(job, block);
    case DType::q5_k:
      return run_blocks<DType::q5_k>(job, block);
    case DType::q6_k:
      return run_blocks<DType::q6_k>(job, block);
    case DType::iq4_nl:
      return run_blocks<DType::iq4_nl>(job, block);
    case DType::iq4_xs:
      return run_blocks<DType::iq4_xs>(job, block);
    default:
      return;
  }
}

}  // namespace
}  // namespace tenon::cpu
