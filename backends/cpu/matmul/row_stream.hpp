#pragma once

// Multiplies a few int8 rows with a group of a panel: integer dot products, scaled and summed.
// Included after a header of simd/.
#include "panel_body.hpp"

#include <type_traits>

namespace tenon::cpu {
namespace {

/// Initial values of the integer dot products: a base.
template <std::int32_t base>
struct FromBase {
  static constexpr bool is_zero = base == 0;
  TENON_INLINE static Words load(const std::int32_t*) { return Simd::set_words(base); }
};
/// The base less `offset` times the sum of the row's codes, since weight codes are `offset` above
/// their values.
template <int offset, std::int32_t base>
struct FromNegativeSum {
  static constexpr bool is_zero = false;
  TENON_INLINE static Words load(const std::int32_t* p) {
    const Words product = Simd::broadcast_times<offset>(p);
    return base == 0 ? product : Simd::add_words(product, Simd::set_words(base));
  }
};
/// The same, computed beforehand.
struct FromProduct {
  static constexpr bool is_zero = false;
  TENON_INLINE static Words load(const std::int32_t* p) { return Simd::broadcast_times<1>(p); }
};

/// Whether dot products take the type's codes with their offset.
template <class Panel>
constexpr bool codes_have_offset =
    Panel::offset != 0 && !(Panel::bits == 8 && Simd::makes_bytes_signed);

/// Sums that are scaled in f32 directly start from the base that Simd::scaled subtracts.
template <class Panel>
constexpr std::int32_t base_of = Panel::integer_scales ? 0 : Simd::sum_base;

template <class Panel>
using DirectStart =
    std::conditional_t<codes_have_offset<Panel>, FromNegativeSum<Panel::offset, base_of<Panel>>,
                       FromBase<base_of<Panel>>>;

/// Computing them beforehand is profitable for many rows only.
template <class Panel>
using StartOf = std::conditional_t<!Panel::streams && codes_have_offset<Panel>, FromProduct,
                                   DirectStart<Panel>>;

/// Two numbers of 16 bits in one of 32.
TENON_INLINE std::int32_t pair_of(std::int32_t low, std::int32_t high) {
  return (low & 0xFFFF) | static_cast<std::int32_t>(static_cast<std::uint32_t>(high) << 16);
}

/// The operands of `rows` rows of a block: for each entry codes, scale and sums.
template <class Panel, class Start, std::size_t rows>
struct RowStream {
  static constexpr int subs = 32 / Panel::group;
  static constexpr int quads = Panel::group / 4;
  static constexpr int mins = 32 / Panel::min_group;
  using PanelDot = Dot<Panel::bits, Start, quads>;
  template <std::size_t panels>
  using Codes = const std::uint8_t* const (&)[panels];

  const std::int8_t* codes;
  const float* scales;
  const Codebook* book;
  const float* sums;
  const std::int32_t* starts;
  std::int64_t step;             ///< rows of the block: from a part of an entry to the next one
  std::int64_t first_start = 0;  ///< entry that `starts` begins with

  /// Rows from the `first`-th on of the block of `block_rows` rows that begins at `row`.
  TENON_INLINE RowStream(const LinearJob& job, const RowNumbers& numbers, std::int64_t row,
                         std::int64_t block_rows = rows, std::int64_t first = 0)
      : codes(numbers.codes + row * job.inputs + 4 * first),
        scales(numbers.scales + row * (job.inputs / 32) + first),
        book(Panel::book_of(job)),
        step(block_rows) {
    const std::int64_t at = row * (job.inputs / 32);
    sums = (mins == 1 ? numbers.sums : numbers.half_sums) + at * mins + first;
    starts = (subs == 1 ? numbers.negative_sums : numbers.negative_half_sums) + at * subs + first;
  }

  /// Dot products of the sub-th part of entry `entry` with the codes of each panel.
  template <int sub, std::size_t panels>
  TENON_INLINE void multiply(std::int64_t entry, Codes<panels> w_codes,
                             PanelDot (&dot)[panels][rows]) const {
    const std::int32_t* const start = starts + ((entry - first_start) * subs + sub) * step;
#pragma GCC unroll 16
    for (auto& of_panel : dot) {
#pragma GCC unroll 16
      for (std::size_t r = 0; r < rows; ++r) of_panel[r].start(start + r);
    }
    unroll<quads>([&]<int q>() __attribute__((always_inline)) {
      constexpr int j = sub * quads + q;
      typename PanelDot::Weights w[panels];
#pragma GCC unroll 16
      for (std::size_t p = 0; p < panels; ++p) {
        w[p] = Panel::template weights<j, typename PanelDot::Weights>(w_codes[p], book);
      }
      const std::int8_t* const quad = codes + (8 * entry + j) * step * 4;
#pragma GCC unroll 16
      for (std::size_t r = 0; r < rows; ++r) {
        const Int four = Simd::broadcast_quad(quad + 4 * r);
#pragma GCC unroll 16
        for (std::size_t p = 0; p < panels; ++p) dot[p][r].template add<q>(w[p], four);
      }
    });
  }

  /// y += the sub-th min of group i of the record times the sum of entry `entry` that it is for.
  template <int sub, std::size_t panels>
  TENON_INLINE void add_mins(std::int64_t entry, const typename Panel::Record (&record)[panels],
                             int i, Float (&y)[panels][rows]) const {
    const float* const sum = sums + (entry * mins + sub) * step;
#pragma GCC unroll 16
    for (std::size_t p = 0; p < panels; ++p) {
      const Float min = record[p].min(i * mins + sub);
#pragma GCC unroll 16
      for (std::size_t r = 0; r < rows; ++r) {
        y[p][r] = Simd::fma(min, Simd::broadcast(sum + r), y[p][r]);
      }
    }
  }

  /// y += entry `entry` times a group of W: the codes of each panel, and record index i of it.
  template <std::size_t panels>
  TENON_INLINE void add(std::int64_t entry, Codes<panels> w_codes,
                        const typename Panel::Record (&record)[panels], int i,
                        Float (&y)[panels][rows]) const {
    unroll<subs>([&]<int sub>() __attribute__((always_inline)) {
      PanelDot dot[panels][rows];
      multiply<sub, panels>(entry, w_codes, dot);
#pragma GCC unroll 16
      for (std::size_t p = 0; p < panels; ++p) {
        const Scaling w = record[p].scaling(i * subs + sub);
#pragma GCC unroll 16
        for (std::size_t r = 0; r < rows; ++r) {
          const Float product = Simd::scaled(dot[p][r].total(), w.scale, w.shift);
          y[p][r] = Simd::fma(product, Simd::broadcast(scales + entry * step + r), y[p][r]);
        }
      }
      if constexpr (Panel::has_min) add_mins<sub, panels>(entry, record, i, y);
    });
  }

  /// The same but for the record's scale and mins, where scales of its groups are integers.
  template <std::size_t panels>
  TENON_INLINE void add_integers(std::int64_t entry, Codes<panels> w_codes,
                                 const typename Panel::Record (&record)[panels], int i,
                                 Float (&y)[panels][rows]) const {
    Words total[panels][rows];
    if constexpr (scales_pairs) {
      add_pairs<panels>(entry, w_codes, record, i, total);
    } else {
      add_dots<panels>(entry, w_codes, record, i, total);
    }
#pragma GCC unroll 16
    for (std::size_t p = 0; p < panels; ++p) {
#pragma GCC unroll 16
      for (std::size_t r = 0; r < rows; ++r) {
        const Float scale = Simd::broadcast(scales + entry * step + r);
        y[p][r] = Simd::fma(Simd::to_float(total[p][r]), scale, y[p][r]);
      }
    }
  }

 private:
  /// Where dot products are sums of pairs in 16 bits, widening them multiplies as well.
  static constexpr bool scales_pairs = Simd::makes_bytes_signed;

  template <std::size_t panels>
  TENON_INLINE void add_dots(std::int64_t entry, Codes<panels> w_codes,
                             const typename Panel::Record (&record)[panels], int i,
                             Words (&total)[panels][rows]) const {
    unroll<subs>([&]<int sub>() __attribute__((always_inline)) {
      PanelDot dot[panels][rows];
      multiply<sub, panels>(entry, w_codes, dot);
#pragma GCC unroll 16
      for (std::size_t p = 0; p < panels; ++p) {
#pragma GCC unroll 16
        for (std::size_t r = 0; r < rows; ++r) {
          if constexpr (subs == 1) {
            total[p][r] = dot[p][r].total();
          } else {
            total[p][r] = Simd::add_product(dot[p][r].total(), record[p].factor(i * subs + sub),
                                            sub == 0 ? Simd::zero_words() : total[p][r]);
          }
        }
      }
    });
  }

  template <std::size_t panels>
  TENON_INLINE void add_pairs(std::int64_t entry, Codes<panels> w_codes,
                              const typename Panel::Record (&record)[panels], int i,
                              Words (&total)[panels][rows]) const {
    static_assert(subs == 2);
#pragma GCC unroll 16
    for (std::size_t p = 0; p < panels; ++p) {
#pragma GCC unroll 16
      for (std::size_t r = 0; r < rows; ++r) {
        if constexpr (Panel::offset == 0) {
          total[p][r] = Simd::zero_words();
        } else {
          total[p][r] = Simd::sum_products(start_pair(entry, r), record[p].both_factors(i));
        }
      }
    }
    unroll<subs>([&]<int sub>() __attribute__((always_inline)) {
      PanelDot dot[panels][rows];
      multiply<sub, panels>(entry, w_codes, dot);
#pragma GCC unroll 16
      for (std::size_t p = 0; p < panels; ++p) {
        const Words factor = record[p].factor_twice(i * subs + sub);
#pragma GCC unroll 16
        for (std::size_t r = 0; r < rows; ++r) {
          total[p][r] = Simd::add_words(total[p][r], dot[p][r].scaled(factor));
        }
      }
    });
  }

  /// The initial values of a row's two dot products, in the halves of every lane.
  TENON_INLINE auto start_pair(std::int64_t entry, std::size_t r) const {
    if constexpr (std::is_same_v<Start, FromProduct>) {
      return FromProduct::load(starts + (entry - first_start) * step + r);
    } else {
      const std::int32_t* const sum = starts + entry * 2 * step + r;
      const std::int32_t pair = pair_of(Panel::offset * sum[0], Panel::offset * sum[step]);
      return FromProduct::load(&pair);
    }
  }
};

}  // namespace
}  // namespace tenon::cpu
