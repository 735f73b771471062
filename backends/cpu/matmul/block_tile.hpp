#pragma once

// The register tile of the int8 GEMM: a few rows by one or two panels over a range of k. Included
// after a header of simd/.
#include "row_stream.hpp"
#include "unpacked_panel.hpp"

#include <type_traits>

namespace tenon::cpu {
namespace {

/// Prefetch distance in bytes: enough to hide the latency of memory, and less than a page, so that
/// the hardware prefetcher, which works within pages, sees accesses in order.
constexpr std::int64_t prefetch_distance = 3328;

/// Floats from one row's sums to the next row's, for a tile of `panels` panels.
constexpr std::int64_t sums_width(std::size_t panels) {
  return static_cast<std::int64_t>(16 * panels);
}

/// Rows of a tile: a block of prepared rows from `row` on, the initial values of their dot products
/// with unpacked weights, and the memory of their sums between two ranges of k.
struct TileRows {
  std::int64_t row;
  const std::int32_t* starts;  ///< of the range's first group
  float* sums;
};

/// Where the sums of row r with panel p are in memory.
template <std::size_t panels>
TENON_INLINE float* sums_of(const TileRows& x, std::size_t p, std::size_t r) {
  return x.sums + 16 * (panels * r + p);
}

template <std::size_t panels, std::size_t rows>
TENON_INLINE void clear(Float (&y)[panels][rows]) {
#pragma GCC unroll 16
  for (auto& of_panel : y) {
#pragma GCC unroll 16
    for (Float& sum : of_panel) sum = Simd::zero_float();
  }
}

/// For groups from `first` on.
template <std::size_t panels, std::size_t rows>
TENON_INLINE void load_sums(const TileRows& x, std::int64_t first, Float (&y)[panels][rows]) {
#pragma GCC unroll 16
  for (std::size_t p = 0; p < panels; ++p) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r) {
      y[p][r] = first != 0 ? Simd::load_float(sums_of<panels>(x, p, r)) : Simd::zero_float();
    }
  }
}

template <std::size_t panels, std::size_t rows>
TENON_INLINE void store_sums(const TileRows& x, const Float (&y)[panels][rows]) {
#pragma GCC unroll 16
  for (std::size_t p = 0; p < panels; ++p) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r) {
      Simd::store_float(sums_of<panels>(x, p, r), y[p][r]);
    }
  }
}

/// The stream of the rows' codes for groups from `first` on, without outlier residuals.
template <std::size_t rows, class Panel>
TENON_INLINE RowStream<Panel, StartOf<Panel>, rows> row_codes(const LinearJob& job,
                                                              const TileRows& x,
                                                              std::int64_t first) {
  RowStream<Panel, StartOf<Panel>, rows> stream(job, job.numbers, x.row);
  if constexpr (std::is_same_v<StartOf<Panel>, FromProduct>) {
    stream.starts = x.starts;
    stream.first_start = first;
  }
  return stream;
}

/// Prefetches what lies prefetch_distance behind a group, as many bytes as it has, to the cache that `locality` names: 2 is L2.
template <int bytes, int locality>
TENON_INLINE void prefetch_group(const std::uint8_t* group) {
  for (int line = 0; line < bytes; line += 64) {
    __builtin_prefetch(group + prefetch_distance + line, 0, locality);
  }
}

enum class Prefetch : std::uint8_t { none, to_l1, to_l2 };

/// L2 can have more lines in flight than L1. CPUs that follow a stream by themselves read fastest without prefetches for one or
/// two rows, and with prefetches to L1 for three and four: measured on Zen 4, docs/kernels.md.
template <std::size_t rows>
TENON_INLINE Prefetch prefetch_for(const LinearJob& job) {
  if (job.prefetches) return Prefetch::to_l2;
  return rows > 2 ? Prefetch::to_l1 : Prefetch::none;
}

/// Calls add(g, i, codes, record) for groups [first, last), the i-th of their record, and
/// end_record(g, record) after the last of a record that starts with group g.
template <std::size_t panels, class Panel, class Add, class EndRecord>
TENON_INLINE void for_groups(Prefetch prefetch, const Panel (&panel)[panels], std::int64_t first,
                             std::int64_t last, const Add& add, const EndRecord& end_record) {
  const std::uint8_t* codes[panels];
  typename Panel::Record record[panels];
  for (std::int64_t g = first; g < last; g += Panel::groups_per_record) {
    for (std::size_t p = 0; p < panels; ++p) record[p] = panel[p].record(g);
    const int groups = groups_of_record<Panel>(g, last);
    for (int i = 0; i < groups; ++i) {
      for (std::size_t p = 0; p < panels; ++p) {
        codes[p] = panel[p].codes(g, i);
        if constexpr (Panel::streams) {
          const std::uint8_t* group = panel[p].evenly(g + i);
          if (prefetch == Prefetch::to_l2) prefetch_group<Panel::even_bytes, 2>(group);
          if (prefetch == Prefetch::to_l1) prefetch_group<Panel::even_bytes, 3>(group);
        }
      }
      add(g + i, i, codes, record);
    }
    end_record(g, record);
  }
}

/// y += part times the record's scale; clears part.
template <std::size_t panels, std::size_t rows, class Record>
TENON_INLINE void add_part(const Record (&record)[panels], Float (&part)[panels][rows],
                           Float (&y)[panels][rows]) {
#pragma GCC unroll 16
  for (std::size_t p = 0; p < panels; ++p) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r) {
      y[p][r] = Simd::fma(part[p][r], record[p].whole(), y[p][r]);
      part[p][r] = Simd::zero_float();
    }
  }
}

/// Adds the outlier residuals of groups [first, last) to the sums in memory of a block of `rows` rows.
/// They are few: row by row, so that there is one such function for blocks of any size.
template <std::size_t panels, class Panel>
__attribute__((noinline)) void add_outlier_residuals(const LinearJob& job,
                                                     const Panel (&panel)[panels],
                                                     const TileRows& x, std::int64_t rows,
                                                     std::int64_t first, std::int64_t last) {
  const std::uint8_t* codes[panels];
  typename Panel::Record record[panels];
  const std::int32_t* const groups = job.outlier_groups + x.row * (job.inputs / 32);
  for (std::int64_t r = 0; r < rows; ++r) {
    const RowStream<Panel, DirectStart<Panel>, 1> rest(job, job.outliers, x.row, rows, r);
    const TileRows own{x.row, x.starts, sums_of<panels>(x, 0, static_cast<std::size_t>(r))};
    Float y[panels][1];
    load_sums(own, 1, y);
    for (std::int64_t entry = 0; entry < job.outlier_count[x.row]; ++entry) {
      const std::int64_t g = groups[entry];
      if (g < first) continue;
      if (g >= last) break;
      const auto i = static_cast<int>(g % Panel::groups_per_record);
      for (std::size_t p = 0; p < panels; ++p) {
        record[p] = panel[p].record(g - i);
        codes[p] = panel[p].codes(g - i, i);
      }
      if constexpr (Panel::integer_scales) {
        Float part[panels][1];
        clear(part);
        rest.template add_integers<panels>(entry, codes, record, i, part);
        add_part(record, part, y);
        if constexpr (Panel::has_min) {
          unroll<32 / Panel::min_group>([&]<int sub>() __attribute__((always_inline)) {
            rest.template add_mins<sub, panels>(entry, record, i, y);
          });
        }
      } else {
        rest.template add<panels>(entry, codes, record, i, y);
      }
    }
    store_sums(own, y);
  }
}

/// Writes the sums of a whole row block by one panel: to y at the end of k, else to memory.
template <std::size_t rows, std::size_t panels, class Panel>
TENON_INLINE void leave(const LinearJob& job, const Panel (&panel)[panels], std::int64_t column,
                        const TileRows& x, std::int64_t last, const Float (&y)[panels][rows]) {
  for (std::size_t p = 0; p < panels; ++p) {
    const std::int64_t n = column + 16 * static_cast<std::int64_t>(p);
    const bool write = 32 * last == job.inputs && n + 16 <= job.outputs;
    for (std::size_t r = 0; r < rows; ++r) {
      if (write) {
        write_vector(job, x.row + static_cast<std::int64_t>(r), n + panel[p].part * Simd::lanes,
                     y[p][r]);
      } else {
        Simd::store_float(sums_of<panels>(x, p, r), y[p][r]);
      }
    }
  }
}

/// Multiplies a block of rows with panels from column `column` on (of each the lanes of its part)
/// over groups [first, last) of k. Sums go to memory at `x.sums`, [rows][16 panels]; those of whole
/// panels after the last group go to y, with bias and residual. The codes of all groups come first,
/// then the outlier residuals.
template <std::size_t rows, std::size_t panels, class Panel>
void tile(const LinearJob& job, const Panel (&panel)[panels], std::int64_t column,
          const TileRows& x, std::int64_t first, std::int64_t last) {
  using Record = typename Panel::Record;
  const auto stream = row_codes<rows, Panel>(job, x, first);
  Float y[panels][rows];
  load_sums(x, first, y);
  for_groups(
      prefetch_for<rows>(job), panel, first, last,
      [&](std::int64_t g, int i, const std::uint8_t* const(&codes)[panels],
          const Record(&record)[panels])
          __attribute__((always_inline)) { stream.template add<panels>(g, codes, record, i, y); },
      [](std::int64_t, const Record(&)[panels]) __attribute__((always_inline)) {});
  if (job.outlier_count[x.row] > 0) {
    store_sums(x, y);
    add_outlier_residuals(job, panel, x, rows, first, last);
    load_sums(x, 1, y);
  }
  leave<rows>(job, panel, column, x, last, y);
}

/// The same for types with integer scales. Registers hold the sums of one record without its scale;
/// the sums of earlier records are in memory meanwhile.
template <std::size_t rows, std::size_t panels, class Panel>
  requires Panel::integer_scales
void tile(const LinearJob& job, const Panel (&panel)[panels], std::int64_t column,
          const TileRows& x, std::int64_t first, std::int64_t last) {
  using Record = typename Panel::Record;
  constexpr int mins = 32 / Panel::min_group;
  Float part[panels][rows], y[panels][rows];
  load_sums(x, first, y);
  store_sums(x, y);
  clear(part);
  const auto stream = row_codes<rows, Panel>(job, x, first);
  for_groups(
      prefetch_for<rows>(job), panel, first, last,
      [&](std::int64_t g, int i, const std::uint8_t* const(&codes)[panels],
          const Record(&record)[panels]) __attribute__((always_inline)) {
        stream.template add_integers<panels>(g, codes, record, i, part);
      },
      [&](std::int64_t g, const Record(&record)[panels]) __attribute__((always_inline)) {
        load_sums(x, 1, y);
        add_part(record, part, y);
        if constexpr (Panel::has_min) {
          for (int i = 0; i < Panel::groups_per_record; ++i) {
            unroll<mins>([&]<int sub>() __attribute__((always_inline)) {
              stream.template add_mins<sub, panels>(g + i, record, i, y);
            });
          }
        }
        store_sums(x, y);
      });
  if (job.outlier_count[x.row] > 0) add_outlier_residuals(job, panel, x, rows, first, last);
  load_sums(x, 1, y);
  leave<rows>(job, panel, column, x, last, y);
}

}  // namespace
}  // namespace tenon::cpu
