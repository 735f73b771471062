#pragma once

// The f32 GEMM: linear layers on f32 rows with weights of any type, and strided matrices. Included
// after a header of simd/.
//
// Each output is one chain of multiply-adds in the order of k, stored to memory between ranges of
// k, so its bits depend neither on its tile nor on M.
#include "../integer_math.hpp"
#include "dense_block.hpp"
#include "few_rows_body.hpp"
#include "panel_body.hpp"

#include <utility>

namespace tenon::cpu {
namespace {

/// The range [first, last) of k of a block type's panel as f32 [k][16], bit-equal to
/// dequantisation: scale times code is exact or rounded once.
template <DType dtype>
void dequantize_panel(const DenseJob& job, const std::byte* bytes, std::int64_t first,
                      std::int64_t last, float* out) {
  using Packed = PackedPanel<dtype>;
  constexpr int subs = 32 / Packed::group;
  const auto* start = reinterpret_cast<const std::uint8_t*>(bytes);
  const float offset_value = static_cast<float>(Packed::offset);
  const Float offset = Simd::broadcast(&offset_value);
  for (int part = 0; part < parts; ++part) {
    const Packed packed = Packed::at(start, job, part);
    for (std::int64_t g = first / 32; g < last / 32; g += Packed::groups_per_record) {
      const auto record = packed.record(g);
      const int groups = groups_of_record<Packed>(g, last / 32);
      for (int i = 0; i < groups; ++i) {
        const std::uint8_t* codes = packed.codes(g, i);
        float* group = out + ((g + i) * 32 - first) * 16 + part * Simd::lanes;
        unroll<8>([&]<int j>() __attribute__((always_inline)) {
          const Int v = Packed::template vector<j>(codes, packed.book);
          const int sub = i * subs + j * subs / 8;
          const Float scale = record.scale(sub);
          unroll<4>([&]<int b>() __attribute__((always_inline)) {
            const Float code = Simd::template byte_to_float<b>(v);
            Float w;
            if constexpr (Packed::has_min) {
              w = Simd::fma(code, scale, record.min(sub));
            } else {
              w = Simd::mul(Simd::sub(code, offset), scale);
            }
            Simd::store_float(group + 16 * (4 * j + b), w);
          });
        });
      }
    }
  }
}

void dequantize_panel(const DenseJob& job, const std::byte* panel, std::int64_t first,
                      std::int64_t last, float* out) {
  with_block_kernel(job.dtype,
                    [&]<DType dtype>() { dequantize_panel<dtype>(job, panel, first, last, out); });
}

/// Elements [first, last) of k of a plain type's panel as f32; `first` starts an element of the
/// panel, and so may what follows `last` be written.
template <class Weights>
void widen_panel(const std::byte* panel, std::int64_t first, std::int64_t last, float* out) {
  constexpr int depth = Weights::depth;
  const auto* in = reinterpret_cast<const typename Weights::Element*>(panel) + 16 * (first / depth);
  for (std::int64_t k = first; k < last; k += depth, in += 16, out += 16 * depth) {
    for (int part = 0; part < 16; part += Simd::lanes) {
      unroll<depth>([&]<int i>() __attribute__((always_inline)) {
        Simd::store_float(out + 16 * i + part, Weights::template load<i>(in + part));
      });
    }
  }
}

/// Panels [panel, panel + panels), elements [first, last) of k.
struct PanelRange {
  std::int64_t panel, panels;
  std::int64_t first, last;
};

/// Panels as f32: in place, or widened to scratch memory.
struct DensePanels {
  const float* at;
  std::int64_t step;
};

DensePanels panels_at(const DenseJob& job, const PanelRange& range) {
  const std::byte* start = job.panels + static_cast<std::size_t>(range.panel) * job.panel_bytes;
  if (job.dtype == DType::f32) {
    return {reinterpret_cast<const float*>(start) + 16 * range.first,
            static_cast<std::int64_t>(job.panel_bytes / sizeof(float))};
  }
  for (std::int64_t p = 0; p < range.panels; ++p) {
    const std::byte* from = start + static_cast<std::size_t>(p) * job.panel_bytes;
    float* to = job.scratch.weights + p * max_depth * 16;
    if (job.dtype == DType::f16) {
      widen_panel<F16Weights>(from, range.first, range.last, to);
    } else if (job.dtype == DType::bf16) {
      widen_panel<Bf16Weights>(from, range.first, range.last, to);
    } else {
      dequantize_panel(job, from, range.first, range.last, to);
    }
  }
  return {job.scratch.weights, max_depth * 16};
}

/// y = sums + bias + residual where the last panel is not full.
void write_edge(const DenseJob& job, std::int64_t column, std::int64_t first_row, std::int64_t rows,
                const float* sums) {
  const std::int64_t columns = job.outputs - column;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t row = first_row + r;
    for (std::int64_t i = 0; i < columns; ++i) {
      float v = sums[r * dense_width + i];
      if (job.bias != nullptr) v += job.bias[column + i];
      if (job.residual != nullptr) v += job.residual[row * job.residual_stride + column + i];
      job.y[row * job.y_stride + column + i] = v;
    }
  }
}

/// The lines that a tile of these rows and columns reads or writes, for the tile before it to
/// prefetch.
void prefetch_later(const DenseJob& job, std::int64_t row, std::int64_t rows, std::int64_t column,
                    BlockTile& tile) {
  tile.later_y = {job.y + row * job.y_stride + column, job.y_stride, rows};
  if (job.residual != nullptr && job.residual != job.y) {
    tile.later_residual = {job.residual + row * job.residual_stride + column, job.residual_stride,
                           rows};
  }
}

/// Multiplies a block's rows, copied for this range of k, by its panels. The sums of earlier ranges
/// are at `sums`; the new ones go there or, at the end of k, with bias and residual to y. Meanwhile
/// `ahead`, if it has panels, is prefetched.
void multiply_panels(const DenseJob& job, const LinearBlock& block, const PanelRange& now,
                     const float* copy, float* sums, const PanelRange& ahead) {
  const std::int64_t rows = block.last_row - block.first_row;
  const std::int64_t tiles = ceil_div(rows, block_tile_rows);
  const std::int64_t column = 16 * now.panel;
  const DensePanels w = panels_at(job, now);
  const DensePanels next = ahead.panels > 0 ? panels_at(job, ahead) : w;
  // Divided evenly among the tiles.
  const std::int64_t lines = ahead.panels == 0           ? 0
                             : tiles >= 4 * ahead.panels ? 1
                             : tiles >= 2 * ahead.panels ? 2
                                                         : 4;
  const bool done = now.last == job.inputs;
  const bool direct = done && column + 16 * now.panels <= job.outputs;
  const bool goes_on =
      ahead.panels == now.panels && 16 * (ahead.panel + ahead.panels) <= job.outputs;
  BlockTile tile{};
  tile.w = w.at;
  tile.w_step = w.step;
  tile.count = now.last - now.first;
  if (direct && job.bias != nullptr) tile.bias = job.bias + column;
  for (std::int64_t t = 0, r = 0; t < tiles; ++t) {
    const std::int64_t end = rows * (t + 1) / tiles;
    const std::int64_t row = block.first_row + r;
    tile.x = copy + r * copy_step;
    const std::int64_t fetched = t * tile.count / 4 * lines;  // lines of the panels ahead
    const std::int64_t panel = fetched > 0 ? fetched / tile.count : 0;
    tile.next_lines = panel < ahead.panels ? lines : 0;
    tile.next_w = next.at + panel * next.step + (fetched - panel * tile.count) * 16;
    tile.from = now.first == 0 ? nullptr : sums + r * dense_width;
    tile.from_step = dense_width;
    if (direct) {
      tile.to = job.y + row * job.y_stride + column;
      tile.to_step = job.y_stride;
      if (job.residual != nullptr) {
        tile.residual = job.residual + row * job.residual_stride + column;
        tile.residual_step = job.residual_stride;
      }
    } else {
      tile.to = sums + r * dense_width;
      tile.to_step = dense_width;
    }
    const bool prefetches = prefetches_later_rows && direct;
    if (prefetches && t + 1 < tiles) {
      prefetch_later(job, row + end - r, rows * (t + 2) / tiles - end, column, tile);
    } else if (prefetches && goes_on) {
      prefetch_later(job, block.first_row, rows / tiles, 16 * ahead.panel, tile);
    } else {
      tile.later_y = tile.later_residual = {};
    }
    run_tile(tile, end - r, now.panels);
    if (direct) activate(job, now.panel, now.panels, row, end - r);
    r = end;
  }
  if (done && !direct) {
    write_edge(job, column, block.first_row, rows, sums);
    activate(job, now.panel, now.panels, block.first_row, rows);
  }
}

/// Copies a block's rows from element `first` of k on, unless that is what was copied last.
void copy_block(const DenseJob& job, const LinearBlock& block, std::int64_t first,
                std::int64_t last) {
  if (job.copy != nullptr) {
    RowCopy& copy = *job.copy;
    if (copy.first_row == block.first_row && copy.last_row == block.last_row &&
        copy.first == first) {
      return;
    }
    copy.first_row = block.first_row;
    copy.last_row = block.last_row;
    copy.first = first;
  }
  const std::int64_t depth = job.blocking.depth;
  float* to = job.scratch.rows;
  for (std::int64_t k = first; k < last; k += depth, to += job.blocking.rows * copy_step) {
    const Left x{job.x + block.first_row * job.x_stride + k * job.x_column, job.x_stride,
                 job.x_column};
    copy_rows(x, block.last_row - block.first_row, smaller(depth, last - k), to);
  }
}

/// All of `copied` elements from `first` on by panels [begin, end).
void run_copied(const DenseJob& job, const LinearBlock& block, std::int64_t begin, std::int64_t end,
                std::int64_t first) {
  const std::int64_t depth = job.blocking.depth;
  const std::int64_t last = smaller(first + job.blocking.copied, job.inputs);
  const bool waits = job.inputs > job.blocking.copied;
  copy_block(job, block, first, last);
  for (std::int64_t p = begin; p < end; p += dense_panels) {
    const std::int64_t panels = end - p < dense_panels ? 1 : dense_panels;
    float* sums = job.scratch.sums + (waits ? (p - begin) * job.blocking.rows * 16 : 0);
    const float* copy = job.scratch.rows;
    std::int64_t k = first;
    do {
      const std::int64_t stop = smaller(k + depth, last);
      // To prefetch: the next range of k of these panels, or the next panels.
      PanelRange ahead{};
      if (job.dtype == DType::f32 && stop < last) {
        ahead = {p, panels, stop, smaller(stop + depth, last)};
      } else if (job.dtype == DType::f32 && p + dense_panels < end) {
        const std::int64_t next = p + dense_panels;
        ahead = {next, end - next < dense_panels ? 1 : dense_panels, first,
                 smaller(first + depth, last)};
      }
      multiply_panels(job, block, {p, panels, k, stop}, copy, sums, ahead);
      copy += job.blocking.rows * copy_step;
      k = stop;
    } while (k < last);
  }
}

void run_blocks(const DenseJob& job, const LinearBlock& block) {
  const bool waits = job.inputs > job.blocking.copied;
  const std::int64_t step = waits ? job.blocking.panels : block.last_panel - block.first_panel;
  for (std::int64_t p = block.first_panel; p < block.last_panel; p += step) {
    const std::int64_t end = smaller(p + step, block.last_panel);
    for (std::int64_t k = 0; k == 0 || k < job.inputs; k += job.blocking.copied) {
      run_copied(job, block, p, end, k);
    }
  }
}

constexpr int few_dense_rows = Simd::dense_rows < 8 ? Simd::dense_rows : 8;

/// A tile of rows in place: for so few rows that weights are read once and copying rows is not
/// profitable.
template <int rows, int panels, class Weights, bool prefetches = true>
void few_rows(const DenseJob& job, std::int64_t row, std::int64_t panel) {
  const std::byte* start = job.panels + static_cast<std::size_t>(panel) * job.panel_bytes;
  const auto* w = reinterpret_cast<const typename Weights::Element*>(start);
  const auto step = static_cast<std::int64_t>(job.panel_bytes / sizeof(*w));
  StridedRows<rows> x({job.x + row * job.x_stride, job.x_stride, job.x_column});
  TileSums<rows, panels> tile;
  tile.clear();
  // Weights come from memory, and hardware prefetchers stop at the end of a 4 KiB page.
  constexpr std::int64_t ahead = 2048 / static_cast<std::int64_t>(sizeof(*w));
  std::int64_t k = 0;
  for (; k + Weights::depth <= job.inputs; k += Weights::depth, w += 16) {
    if constexpr (prefetches) {
      for (int p = 0; p < panels; ++p) __builtin_prefetch(w + p * step + ahead);
    }
    unroll<Weights::depth>([&]<int i>() __attribute__((always_inline)) {
      tile.template multiply_add<Weights, i>(x, w, step);
      x.advance();
    });
  }
  if (k < job.inputs) tile.template multiply_add<Weights>(x, w, step);
  const std::int64_t column = 16 * panel;
  if (column + 16 * panels <= job.outputs) {
    if (job.bias != nullptr) tile.add_to_columns(job.bias + column);
    if (job.residual != nullptr) {
      tile.add(job.residual + row * job.residual_stride + column, job.residual_stride);
    }
    tile.store(job.y + row * job.y_stride + column, job.y_stride);
  } else {
    alignas(64) float sums[static_cast<std::size_t>(rows * dense_width)];
    tile.store(sums, dense_width);
    write_edge(job, column, row, rows, sums);
  }
  activate(job, panel, panels, row, rows);
}

template <int panels, class Weights, class Rows = std::make_integer_sequence<int, few_dense_rows>>
struct FewRows;
template <int panels, class Weights, int... r>
struct FewRows<panels, Weights, std::integer_sequence<int, r...>> {
  static constexpr void (*of_rows[])(const DenseJob&, std::int64_t,
                                     std::int64_t) = {few_rows<r + 1, panels, Weights>...};
};

/// All rows are multiplied by a panel before the next one is read from memory: two tiles of rows at
/// most. One row, where hardware prefetches best by itself, reads the panels one after the other.
template <class Weights>
void run_few_rows(const DenseJob& job, const LinearBlock& block) {
  const std::int64_t rows = block.last_row - block.first_row;
  if (rows == 1 && !job.prefetches) {
    for (std::int64_t p = block.first_panel; p < block.last_panel; ++p) {
      few_rows<1, 1, Weights, false>(job, block.first_row, p);
    }
    return;
  }
  const std::int64_t first_rows = rows <= few_dense_rows ? rows : ceil_div(rows, 2);
  for (std::int64_t p = block.first_panel; p < block.last_panel;) {
    const bool wide = p + dense_panels <= block.last_panel;
    const auto& of_rows =
        wide ? FewRows<dense_panels, Weights>::of_rows : FewRows<1, Weights>::of_rows;
    of_rows[static_cast<std::size_t>(first_rows - 1)](job, block.first_row, p);
    if (rows > first_rows) {
      of_rows[static_cast<std::size_t>(rows - first_rows - 1)](job, block.first_row + first_rows,
                                                               p);
    }
    p += wide ? dense_panels : 1;
  }
}

void run_dense(const DenseJob& job, const LinearBlock& block) {
  const std::int64_t rows = block.last_row - block.first_row;
  if (rows <= 2 * few_dense_rows) {
    if (job.dtype == DType::f32) return run_few_rows<F32Weights>(job, block);
    if (job.dtype == DType::f16) return run_few_rows<F16Weights>(job, block);
    if (job.dtype == DType::bf16) return run_few_rows<Bf16Weights>(job, block);
  }
  run_blocks(job, block);
}

/// Columns of b, from `column` on, as panels that are `step` floats apart. The last panel's missing
/// columns are zero.
void gather_panels(const StridedColumns& b, std::int64_t count, std::int64_t column,
                   std::int64_t columns, std::int64_t step, float* out) {
  const float* from = b.at + column * b.column;
  const std::int64_t whole = b.column == 1 ? columns / 16 : 0;
  // Row by row of b; later rows are prefetched, since each may be in another page.
  constexpr std::int64_t ahead = 4;
  for (std::int64_t k = 0; whole > 0 && k < count; ++k) {
    const float* row = from + k * b.row;
    const float* later = k + ahead < count ? row + ahead * b.row : row;
    for (std::int64_t p = 0; p < whole; ++p) {
      __builtin_prefetch(later + 16 * p);
      for (int part = 0; part < parts; ++part) {
        const int at = part * Simd::lanes;
        Simd::store_float(out + p * step + 16 * k + at, Simd::load_float(row + 16 * p + at));
      }
    }
  }
  std::int64_t done = 16 * whole;
  // Columns of b that are contiguous are read by lines: lines of 16 of them may lie in one set of the cache, which holds
  // fewer, and would be gone before their next elements are read.
  for (; b.row == 1 && done + 16 <= columns; done += 16) {
    float* const panel = out + done / 16 * step;
    std::int64_t k = 0;
    for (; k + 16 <= count; k += 16) {
      for (int part = 0; part < parts; ++part) {
        const std::int64_t at = part * Simd::lanes;
        for (std::int64_t i = k; i < k + 16; i += Simd::lanes) {
          Float square[Simd::lanes];
          for (std::int64_t l = 0; l < Simd::lanes; ++l) {
            square[l] = Simd::load_float(from + (done + at + l) * b.column + i);
          }
          Simd::transpose(square);
          for (std::int64_t l = 0; l < Simd::lanes; ++l) {
            Simd::store_float(panel + 16 * (i + l) + at, square[l]);
          }
        }
      }
    }
    for (; k < count; ++k) {
      for (std::int64_t c = 0; c < 16; ++c) panel[16 * k + c] = from[(done + c) * b.column + k];
    }
  }
  for (std::int64_t c = done; c < columns; ++c) {
    float* to = out + c / 16 * step + c % 16;
    for (std::int64_t k = 0; k < count; ++k) to[16 * k] = from[k * b.row + c * b.column];
  }
  for (std::int64_t c = columns; c % 16 != 0; ++c) {
    float* to = out + c / 16 * step + c % 16;
    for (std::int64_t k = 0; k < count; ++k) to[16 * k] = 0.0f;
  }
}

/// Columns are gathered into panels first, some panels at a time.
void run_strided(const DenseJob& job, const StridedColumns& b, const LinearBlock& block) {
  if (reads_directly(b, block)) return run_directly(job, b, block);
  // A line more than the panel, so that panels do not share cache sets.
  const std::int64_t step = (job.inputs + 1) * 16;
  DenseJob part = job;
  part.panels = reinterpret_cast<const std::byte*>(job.scratch.columns);
  part.panel_bytes = static_cast<std::size_t>(step) * sizeof(float);
  for (std::int64_t p = block.first_panel; p < block.last_panel; p += job.blocking.gathered) {
    const std::int64_t panels = smaller(job.blocking.gathered, block.last_panel - p);
    const std::int64_t column = 16 * p;
    part.outputs = smaller(16 * panels, job.outputs - column);
    part.y = job.y + column;
    // Half a page of a row of b at a time, so that few pages are written at the same time.
    constexpr std::int64_t at_once = 512;
    for (std::int64_t c = 0; c < part.outputs; c += at_once) {
      gather_panels(b, job.inputs, column + c, smaller(at_once, part.outputs - c), step,
                    job.scratch.columns + c / 16 * step);
    }
    for (std::int64_t r = block.first_row; r < block.last_row; r += job.blocking.rows) {
      if (is_due(job.stop)) return;
      run_dense(part, {0, panels, r, smaller(r + job.blocking.rows, block.last_row)});
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
