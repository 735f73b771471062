#pragma once

// Linear layers of block types on int8 rows: y = x W^T by integer dot products, one per group of 32
// or 16 elements, scaled and summed in f32 in the order of k. Included after a header of simd/.
//
// Few rows read the packed weights directly: each weight is used a handful of times, and memory
// bandwidth is the limit. Many rows unpack a range of a panel once, into L1, and go over it tile by
// tile; for types whose codes are used as stored this becomes profitable with more rows. Every sum
// is computed in one order, so the result of a row does not depend on M. Nor does it depend on the
// outlier residuals of other rows: its own entries there are zeros.
#include "block_tile.hpp"

namespace tenon::cpu {
namespace {

/// Unpacked ranges of the panels of a tile, and the initial values of the dot products with a block
/// of rows.
struct Scratch {
  struct Panel {
    alignas(64) std::uint8_t codes[2 * max_groups * 512];  // two copies where Dot needs them
    alignas(64) float scales[max_groups * 2 * 16];
    alignas(64) float shifts[max_groups * 2 * 16];
    alignas(64) float mins[max_groups * 2 * 16];
    alignas(64) std::int32_t factors[max_groups * 3 * 16];
  };
  Panel panels[Simd::tile_panels];
  alignas(64) std::int32_t starts[max_block_rows * max_groups * 2];
  alignas(64) float sums[max_block_rows * 16 * Simd::tile_panels];
};

template <class Packed>
void unpack(const Packed& packed, std::int64_t first, std::int64_t last, Scratch::Panel& out) {
  using Weights = typename Dot<Packed::bits, FromBase<0>, 1>::Weights;
  constexpr int subs = 32 / Packed::group;
  for (std::int64_t g = first; g < last; g += Packed::groups_per_record) {
    const auto record = packed.record(g);
    const int groups = groups_of_record<Packed>(g, last);
    for (int i = 0; i < groups; ++i) {
      const std::uint8_t* codes = packed.codes(g, i);
      const std::int64_t at = g + i - first;
      std::uint8_t* bytes = out.codes + at * 512 + packed.part * (4 * Simd::lanes);
      unroll<8>([&]<int j>() __attribute__((always_inline)) {
        Weights::of(Packed::template vector<j>(codes, packed.book))
            .store(bytes + 64 * j, max_groups * 512);
      });
      for (int sub = 0; sub < subs; ++sub) {
        const std::int64_t lane = (at * subs + sub) * 16 + packed.part * Simd::lanes;
        const Scaling w = record.scaling(i * subs + sub);
        Simd::store_float(out.scales + lane, w.scale);
        Simd::store_float(out.shifts + lane, w.shift);
        if constexpr (Packed::has_min) {
          Simd::store_float(out.mins + lane, record.min(i * subs + sub));
        }
      }
    }
  }
}

/// Codes of UnpackedRecords from those of a panel. Where codes have an offset, code times scale
/// reaches 128 but not -128: such panels store both the codes and the record's scale negated.
template <class Packed>
struct ScaledCodes {
  static constexpr bool negates = !Simd::makes_bytes_signed && Packed::offset != 0;
  Words factor;
  Int zero;

  TENON_INLINE explicit ScaledCodes(Words scale) : factor(scale), zero(Simd::set1(0)) {
    if constexpr (negates) {
      alignas(64) static constexpr std::int32_t minus_one[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                                 -1, -1, -1, -1, -1, -1, -1, -1};
      zero = Simd::add_bytes(Simd::set1(128), Simd::mul_bytes(Simd::set1(Packed::offset), factor));
      factor = Simd::add_product(factor, Simd::load_words(minus_one), Simd::zero_words());
    }
  }
  TENON_INLINE Int of(Int codes) const {
    if constexpr (Simd::makes_bytes_signed) return codes;
    return Simd::add_bytes(Simd::mul_bytes(codes, factor), zero);
  }
  TENON_INLINE static Float record_scale(Float d) {
    return negates ? Simd::sub(Simd::zero_float(), d) : d;
  }
};

/// The same to UnpackedRecords.
template <class Packed>
  requires Packed::integer_scales
void unpack(const Packed& packed, std::int64_t first, std::int64_t last, Scratch::Panel& out) {
  constexpr int subs = 32 / Packed::group;
  const std::int64_t lane = packed.part * Simd::lanes;
  for (std::int64_t g = first; g < last; g += Packed::groups_per_record) {
    const auto record = packed.record(g);
    Simd::store_float(out.scales + (g - first) / Packed::groups_per_record * 16 + lane,
                      ScaledCodes<Packed>::record_scale(record.whole()));
    for (int i = 0; i < Packed::groups_per_record; ++i) {
      const std::uint8_t* const codes = packed.codes(g, i);
      const std::int64_t at = g + i - first;
      std::uint8_t* const bytes = out.codes + at * 512 + 4 * lane;
      unroll<subs>([&]<int sub>() __attribute__((always_inline)) {
        constexpr int vectors = 8 / subs;
        const Words factor = record.factor(i * subs + sub);
        const ScaledCodes<Packed> scaled(factor);
        unroll<vectors>([&]<int q>() __attribute__((always_inline)) {
          constexpr int j = sub * vectors + q;
          Simd::store(bytes + 64 * j, scaled.of(Packed::template vector<j>(codes, packed.book)));
        });
        if constexpr (Packed::has_min) {
          Simd::store_float(out.mins + (at * subs + sub) * 16 + lane, record.min(i * subs + sub));
        }
      });
      if constexpr (Simd::makes_bytes_signed) {
        std::int32_t* const factors = out.factors + at * (3 * 16) + lane;
        Simd::store_words(factors, record.factor_twice(2 * i));
        Simd::store_words(factors + 16, record.factor_twice(2 * i + 1));
        Simd::store_words(factors + 32, record.both_factors(i));
      }
    }
  }
}

template <DType dtype>
void few_rows(const LinearJob& job, const LinearBlock& block) {
  alignas(64) float sums[direct_rows * 16];
  const std::int64_t groups = job.inputs / 32, at_once = groups_at_once(groups);
  const std::int64_t rows = block.last_row - block.first_row;
  for (std::int64_t p = block.first_panel; p < block.last_panel; ++p) {
    const auto* start = reinterpret_cast<const std::uint8_t*>(job.panels) +
                        static_cast<std::size_t>(p) * job.panel_bytes;
    PackedPanel<dtype> panel[1] = {PackedPanel<dtype>::at(start, job, 0)};
    for (int part = 0; part < parts; ++part) {
      panel[0].part = part;
      // In the ranges of many_rows, so that sums are in the same order.
      for (std::int64_t g = 0; g == 0 || g < groups; g += at_once) {
        const std::int64_t end = smaller(g + at_once, groups);
        for (std::int64_t r = 0; r < rows; r += direct_block_rows) {
          const TileRows x{block.first_row + r, nullptr, sums + 16 * r + part * Simd::lanes};
          switch (smaller(rows - r, direct_block_rows)) {
            case 1:
              tile<1>(job, panel, 16 * p, x, g, end);
              break;
            case 2:
              tile<2>(job, panel, 16 * p, x, g, end);
              break;
            case 3:
              tile<3>(job, panel, 16 * p, x, g, end);
              break;
            default:
              tile<4>(job, panel, 16 * p, x, g, end);
              break;
          }
        }
      }
    }
    if (16 * p + 16 > job.outputs) write_rows(job, p, block.first_row, rows, sums, 16);
    activate(job, p, 1, block.first_row, rows);
  }
}

/// Prefetches the lines of y that the results of `rows` rows go to: one line per row, which takes
/// longer to fetch one after the other than a tile takes to compute.
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
               std::int64_t p, std::int64_t first, std::int64_t last, Scratch& scratch) {
  const int part = panel[0].part;
  const bool is_last = 32 * last == job.inputs && part == parts - 1;
  for (std::int64_t row = block.first_row; row < block.last_row;) {
    const std::int64_t at = row - block.first_row;
    const TileRows x{row, scratch.starts + at * (last - first) * Panel::starts,
                     scratch.sums + sums_width(panels) * at + part * Simd::lanes};
    const auto run = [&]<std::size_t rows>() {
      if (is_last) prefetch_results(job, 16 * p, sums_width(panels), row, rows);
      tile<rows>(job, panel, 16 * p, x, first, last);
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

/// The initial values of dot products of the block's rows with groups [first, last), in row blocks
/// like the sums of prepared rows. Those of the two halves of a group are stored as pairs where a
/// panel takes one initial value for both.
template <class Panel>
void make_starts(const LinearJob& job, const LinearBlock& block, std::int64_t first,
                 std::int64_t last, std::int32_t* starts) {
  constexpr int subs = 32 / Panel::group;
  const std::int32_t* sums = subs == 1 ? job.numbers.negative_sums : job.numbers.negative_half_sums;
  for (std::int64_t row = block.first_row; row < block.last_row;) {
    const std::int64_t rows = rows_of_block(block.last_row - row, Simd::tile_rows);
    const std::int32_t* from = sums + (row * (job.inputs / 32) + first * rows) * subs;
    if constexpr (Panel::starts == subs) {
      for (std::int64_t i = 0; i < (last - first) * rows * subs; ++i) {
        *starts++ = base_of<Panel> + Panel::offset * from[i];
      }
    } else {
      for (std::int64_t g = first; g < last; ++g, from += 2 * rows) {
        for (std::int64_t r = 0; r < rows; ++r) {
          *starts++ = pair_of(Panel::offset * from[r], Panel::offset * from[rows + r]);
        }
      }
    }
    row += rows;
  }
}

/// All rows of the block by `panels` panels from the p-th on.
template <DType dtype, std::size_t panels>
void many_rows(const LinearJob& job, const LinearBlock& block, std::int64_t p, Scratch& scratch) {
  using Packed = PackedPanel<dtype>;
  using Unpacked = UnpackedOf<Packed>;
  constexpr auto count = static_cast<std::int64_t>(panels);
  const std::int64_t groups = job.inputs / 32, at_once = groups_at_once(groups);
  const auto packed = [&](std::size_t i, int part) {
    const auto* start = reinterpret_cast<const std::uint8_t*>(job.panels) +
                        (static_cast<std::size_t>(p) + i) * job.panel_bytes;
    return Packed::at(start, job, part);
  };
  for (std::int64_t g = 0; g == 0 || g < groups; g += at_once) {
    const std::int64_t end = smaller(g + at_once, groups);
    if constexpr (codes_have_offset<Unpacked>) {
      make_starts<Unpacked>(job, block, g, end, scratch.starts);
    }
    for (int part = 0; part < parts; ++part) {
      Unpacked unpacked[panels];
      for (std::size_t i = 0; i < panels; ++i) {
        Scratch::Panel& to = scratch.panels[i];
        unpack(packed(i, part), g, end, to);
        if constexpr (Packed::integer_scales) {
          unpacked[i] = {{to.codes, part, g}, to.scales, to.factors, to.mins};
        } else {
          unpacked[i] = {{to.codes, part, g}, to.scales, to.shifts, to.mins};
        }
      }
      all_tiles(job, unpacked, block, p, g, end, scratch);
    }
  }
  const std::int64_t rows = block.last_row - block.first_row, end = p + count;
  if (16 * end > job.outputs) {
    write_rows(job, end - 1, block.first_row, rows, scratch.sums + 16 * (count - 1), 16 * count);
  }
  activate(job, p, count, block.first_row, rows);
}

template <DType dtype>
void many_rows(const LinearJob& job, const LinearBlock& block) {
  Scratch scratch;
  constexpr int at_once = Simd::tile_panels;
  std::int64_t p = block.first_panel;
  for (; p + at_once <= block.last_panel; p += at_once) {
    many_rows<dtype, at_once>(job, block, p, scratch);
  }
  for (; p < block.last_panel; ++p) many_rows<dtype, 1>(job, block, p, scratch);
}

template <DType dtype>
void run_blocks(const LinearJob& job, const LinearBlock& block) {
  if (job.rows <= direct_rows || block.last_row - block.first_row <= direct_block_rows) {
    few_rows<dtype>(job, block);
  } else {
    many_rows<dtype>(job, block);
  }
}

void run_blocks(const LinearJob& job, const LinearBlock& block) {
  with_block_kernel(job.dtype, [&]<DType dtype>() { run_blocks<dtype>(job, block); });
}

}  // namespace
}  // namespace tenon::cpu
