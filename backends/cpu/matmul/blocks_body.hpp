#pragma once

// Linear layers of block types on int8 rows: y = x W^T by integer dot products, one per group of 32
// or 16 elements, scaled and summed in f32 in the order of k. Included after a simd_*.hpp.
//
// Few rows read the packed weights directly: each weight is used a handful of times and the work is
// to get it from memory. Many rows unpack a stretch of a panel once, into level-one cache, and go
// over it tile by tile. Both compute every sum in the same order, so rows do not depend on M.
#include "panel_body.hpp"

namespace tenon::cpu {
namespace {

/// Bytes ahead of the codes in use to ask for: enough for memory to answer in time. Hardware
/// prefetch alone stops at each page.
constexpr std::int64_t prefetch_distance = 1024;
constexpr std::int64_t direct_rows = 4;      // most rows that read packed weights
constexpr std::int64_t stretch_groups = 32;  // groups of 32 unpacked at once: 16 KiB of codes

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

struct Scratch {
  alignas(64) std::uint8_t codes[stretch_groups * 512];
  alignas(64) float scales[stretch_groups * 2 * 16];
  alignas(64) float mins[stretch_groups * 2 * 16];
  alignas(64) float sums[max_block_rows * 16];
};

/// sums[rows][lanes of the part] (+)= x W^T over groups [first, last).
template <int rows, class Panel>
void tile(const LinearJob& job, const Panel& panel, std::int64_t row, std::int64_t first,
          std::int64_t last, bool accumulate, float* sums) {
  constexpr auto count = static_cast<std::size_t>(rows);
  constexpr int subs = 32 / Panel::group;
  constexpr int quads = Panel::group / 4;
  const std::int64_t groups = job.inputs / 32;
  const std::int8_t* x = job.codes + row * job.inputs;
  const float* x_scales = job.scales + row * groups;
  const float* x_sums = (subs == 1 ? job.sums : job.half_sums) + row * groups * subs;
  const std::int32_t* x_negative =
      (subs == 1 ? job.negative_sums : job.negative_half_sums) + row * groups * subs;

  Float y[count];
  for (int r = 0; r < rows; ++r) {
    y[r] = accumulate ? Simd::load_float(sums + 16 * r) : Simd::zero_float();
  }
  for (std::int64_t g = first; g < last; g += Panel::groups_per_record) {
    const auto record = panel.record(g);
    for (int i = 0; i < Panel::groups_per_record; ++i) {
      const std::uint8_t* codes = panel.codes(g + i);
      if constexpr (Panel::streams) {
        for (int line = 0; line < Panel::code_bytes; line += 64) {
          __builtin_prefetch(codes + prefetch_distance + line);
        }
      }
      unroll<subs>([&]<int sub>() __attribute__((always_inline)) {
        const std::int64_t s = (g + i) * subs + sub;
        Dot<Panel::bits, Panel::offset, quads> dot[count];
        for (int r = 0; r < rows; ++r) dot[r].start(x_negative + r * groups * subs + s);
        unroll<quads>([&]<int q>() __attribute__((always_inline)) {
          constexpr int j = sub * quads + q;
          const Int w = Panel::template vector<j>(codes);
          for (int r = 0; r < rows; ++r) {
            dot[r].template add<q>(w, x + r * job.inputs + 32 * (g + i) + 4 * j);
          }
        });
        const Float scale = record.scale(i * subs + sub);
        for (int r = 0; r < rows; ++r) {
          const Float factor = Simd::mul(scale, Simd::broadcast(x_scales + r * groups + g + i));
          y[r] = Simd::fma(Simd::to_float(dot[r].total()), factor, y[r]);
        }
        if constexpr (Panel::has_min) {
          const Float min = record.min(i * subs + sub);
          for (int r = 0; r < rows; ++r) {
            y[r] = Simd::fma(min, Simd::broadcast(x_sums + r * groups * subs + s), y[r]);
          }
        }
      });
    }
  }
  for (int r = 0; r < rows; ++r) Simd::store_float(sums + 16 * r, y[r]);
}

/// What second digits add to a row's sums over groups [first, last).
template <class Panel>
void add_second_digits(const LinearJob& job, const Panel& panel, std::int64_t row,
                       std::int64_t first, std::int64_t last, float* sums) {
  constexpr int subs = 32 / Panel::group;
  constexpr int quads = Panel::group / 4;
  const SecondDigits* digits = job.second + row * job.second_capacity;
  const SecondDigits* const end = digits + job.second_count[row];
  while (digits != end && digits->group < first) ++digits;
  if (digits == end || digits->group >= last) return;
  Float y = Simd::load_float(sums);
  for (; digits != end && digits->group < last; ++digits) {
    const std::int64_t g = digits->group;
    const std::int64_t i = g % Panel::groups_per_record;
    const auto record = panel.record(g - i);
    const std::uint8_t* codes = panel.codes(g);
    unroll<subs>([&]<int sub>() __attribute__((always_inline)) {
      Dot<Panel::bits, Panel::offset, quads> dot;
      dot.start(subs == 1 ? &digits->negative_sum : digits->negative_half_sums + sub);
      unroll<quads>([&]<int q>() __attribute__((always_inline)) {
        constexpr int j = sub * quads + q;
        dot.template add<q>(Panel::template vector<j>(codes), digits->codes + 4 * j);
      });
      const int at = static_cast<int>(i) * subs + sub;
      const Float factor = Simd::mul(record.scale(at), Simd::broadcast(&digits->scale));
      y = Simd::fma(Simd::to_float(dot.total()), factor, y);
      if constexpr (Panel::has_min) {
        const float* sum = subs == 1 ? &digits->sum : digits->half_sums + sub;
        y = Simd::fma(record.min(at), Simd::broadcast(sum), y);
      }
    });
  }
  Simd::store_float(sums, y);
}

template <class Packed>
void unpack(const Packed& packed, std::int64_t first, std::int64_t last, Scratch& out) {
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
  const std::int64_t groups = job.inputs / 32;
  const std::int64_t rows = block.last_row - block.first_row;
  for (std::int64_t p = block.first_panel; p < block.last_panel; ++p) {
    const auto* start = reinterpret_cast<const std::uint8_t*>(job.panels) +
                        static_cast<std::size_t>(p) * job.panel_bytes;
    PackedPanel<dtype> panel{start, start + job.scale_bytes, 0};
    for (int part = 0; part < parts; ++part) {
      panel.part = part;
      float* out = sums + part * Simd::lanes;
      // By the stretches of many_rows, so that sums have one order.
      for (std::int64_t g = 0; g == 0 || g < groups; g += stretch_groups) {
        const std::int64_t end = smaller(g + stretch_groups, groups);
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
        for (std::int64_t r = 0; r < rows; ++r) {
          add_second_digits(job, panel, block.first_row + r, g, end, out + 16 * r);
        }
      }
    }
    write_rows(job, p, block.first_row, rows, sums, 16);
  }
}

template <class Panel>
void all_tiles(const LinearJob& job, const Panel& panel, const LinearBlock& block,
               std::int64_t first, std::int64_t last, float* sums) {
  const std::int64_t rows = block.last_row - block.first_row;
  const bool accumulate = first != 0;
  std::int64_t r = 0;
  const auto run = [&]<int count>() {
    for (; rows - r >= count; r += count) {
      tile<count>(job, panel, block.first_row + r, first, last, accumulate, sums + 16 * r);
    }
  };
  run.template operator()<Simd::tile_rows>();
  if constexpr (Simd::tile_rows > 4) run.template operator()<4>();
  run.template operator()<2>();
  run.template operator()<1>();
}

template <DType dtype>
void many_rows(const LinearJob& job, const LinearBlock& block) {
  using Packed = PackedPanel<dtype>;
  using Unpacked = UnpackedPanel<Packed::bits, Packed::offset, Packed::group, Packed::has_min>;
  Scratch scratch;
  const std::int64_t groups = job.inputs / 32;
  for (std::int64_t p = block.first_panel; p < block.last_panel; ++p) {
    const auto* start = reinterpret_cast<const std::uint8_t*>(job.panels) +
                        static_cast<std::size_t>(p) * job.panel_bytes;
    if (groups == 0) __builtin_memset(scratch.sums, 0, sizeof scratch.sums);
    for (std::int64_t g = 0; g < groups; g += stretch_groups) {
      const std::int64_t end = smaller(g + stretch_groups, groups);
      for (int part = 0; part < parts; ++part) {
        unpack(Packed{start, start + job.scale_bytes, part}, g, end, scratch);
        const Unpacked panel{scratch.codes, scratch.scales, scratch.mins, part, g};
        float* const sums = scratch.sums + part * Simd::lanes;
        all_tiles(job, panel, block, g, end, sums);
        for (std::int64_t row = block.first_row; row < block.last_row; ++row) {
          add_second_digits(job, panel, row, g, end, sums + 16 * (row - block.first_row));
        }
      }
    }
    write_rows(job, p, block.first_row, block.last_row - block.first_row, scratch.sums, 16);
  }
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
