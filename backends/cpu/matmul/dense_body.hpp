#pragma once

// f32 products: linear layers on f32 rows with weights of any type, and strided matrix products.
// Included after a simd_*.hpp.
//
// Tiles go over stretches of k that keep the weights in level-one cache. Each output is one chain
// of multiply-adds in the order of k, carried through memory between stretches, so its bits depend
// on neither the tile it falls into nor M.
#include "dense_tile.hpp"
#include "panel_body.hpp"

#include <type_traits>

namespace tenon::cpu {
namespace {

constexpr std::int64_t stretch = 256;  // elements of k

struct DenseScratch {
  alignas(64) float weights[dense_panels * stretch * 16];
  alignas(64) float sums[max_block_rows * dense_width];
};

/// A stretch [first, last) of k of a block type's panel as f32 [k][16], the very bits of
/// dequantisation: a product of scale and code is exact or rounded once.
template <DType dtype>
void dequantize_panel(const LinearJob& job, const std::byte* bytes, std::int64_t first,
                      std::int64_t last, float* out) {
  using Packed = PackedPanel<dtype>;
  constexpr int subs = 32 / Packed::group;
  const auto* start = reinterpret_cast<const std::uint8_t*>(bytes);
  const float offset_value = static_cast<float>(Packed::offset);
  const Float offset = Simd::broadcast(&offset_value);
  for (int part = 0; part < parts; ++part) {
    const Packed packed{start, start + job.scale_bytes, part};
    for (std::int64_t g = first / 32; g < last / 32; g += Packed::groups_per_record) {
      const auto record = packed.record(g);
      for (int i = 0; i < Packed::groups_per_record; ++i) {
        const std::uint8_t* codes = packed.codes(g + i);
        float* group = out + ((g + i) * 32 - first) * 16 + part * Simd::lanes;
        unroll<8>([&]<int j>() __attribute__((always_inline)) {
          const Int v = Packed::template vector<j>(codes);
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

void dequantize_panel(const LinearJob& job, const std::byte* panel, std::int64_t first,
                      std::int64_t last, float* out) {
  switch (job.dtype) {
    case DType::q4_0:
      return dequantize_panel<DType::q4_0>(job, panel, first, last, out);
    case DType::q4_1:
      return dequantize_panel<DType::q4_1>(job, panel, first, last, out);
    case DType::q5_0:
      return dequantize_panel<DType::q5_0>(job, panel, first, last, out);
    case DType::q5_1:
      return dequantize_panel<DType::q5_1>(job, panel, first, last, out);
    case DType::q8_0:
      return dequantize_panel<DType::q8_0>(job, panel, first, last, out);
    case DType::q2_k:
      return dequantize_panel<DType::q2_k>(job, panel, first, last, out);
    case DType::q3_k:
      return dequantize_panel<DType::q3_k>(job, panel, first, last, out);
    case DType::q4_k:
      return dequantize_panel<DType::q4_k>(job, panel, first, last, out);
    case DType::q5_k:
      return dequantize_panel<DType::q5_k>(job, panel, first, last, out);
    case DType::q6_k:
      return dequantize_panel<DType::q6_k>(job, panel, first, last, out);
    case DType::iq4_nl:
      return dequantize_panel<DType::iq4_nl>(job, panel, first, last, out);
    case DType::iq4_xs:
      return dequantize_panel<DType::iq4_xs>(job, panel, first, last, out);
    default:
      return;
  }
}

enum class Source { f32, f16, bf16, blocks };

/// One or dense_panels panels at a time, so that the weights of a stretch stay in cache.
template <int panels, Source source>
void dense_columns(const LinearJob& job, const LinearBlock& block, std::int64_t panel,
                   DenseScratch& scratch) {
  const std::int64_t rows = block.last_row - block.first_row;
  const std::byte* start = job.panels + static_cast<std::size_t>(panel) * job.panel_bytes;
  for (std::int64_t k = 0; k == 0 || k < job.inputs; k += stretch) {
    const std::int64_t last = smaller(k + stretch, job.inputs);
    const Left x{job.x + block.first_row * job.x_stride + k, job.x_stride, 1};
    if constexpr (source == Source::blocks) {
      for (int p = 0; p < panels; ++p) {
        dequantize_panel(job, start + static_cast<std::size_t>(p) * job.panel_bytes, k, last,
                         scratch.weights + p * stretch * 16);
      }
      dense_tiles<panels, F32Weights>(x, rows, scratch.weights, stretch * 16, last - k, k != 0,
                                      scratch.sums);
    } else if constexpr (source == Source::f32) {
      const auto step = static_cast<std::int64_t>(job.panel_bytes / sizeof(float));
      dense_tiles<panels, F32Weights>(x, rows, reinterpret_cast<const float*>(start) + 16 * k, step,
                                      last - k, k != 0, scratch.sums);
    } else {
      using Weights = std::conditional_t<source == Source::f16, F16Weights, Bf16Weights>;
      const auto step = static_cast<std::int64_t>(job.panel_bytes / sizeof(std::uint16_t));
      dense_tiles<panels, Weights>(x, rows, reinterpret_cast<const std::uint16_t*>(start) + 16 * k,
                                   step, last - k, k != 0, scratch.sums);
    }
  }
  for (int p = 0; p < panels; ++p) {
    write_rows(job, panel + p, block.first_row, rows, scratch.sums + 16 * p, dense_width);
  }
}

template <Source source>
void run_dense(const LinearJob& job, const LinearBlock& block) {
  DenseScratch scratch;
  std::int64_t p = block.first_panel;
  for (; p + dense_panels <= block.last_panel; p += dense_panels) {
    dense_columns<dense_panels, source>(job, block, p, scratch);
  }
  if constexpr (dense_panels > 1) {
    for (; p < block.last_panel; ++p) dense_columns<1, source>(job, block, p, scratch);
  }
}

void run_dense(const LinearJob& job, const LinearBlock& block) {
  switch (job.dtype) {
    case DType::f32:
      return run_dense<Source::f32>(job, block);
    case DType::f16:
      return run_dense<Source::f16>(job, block);
    case DType::bf16:
      return run_dense<Source::bf16>(job, block);
    default:
      return run_dense<Source::blocks>(job, block);
  }
}

/// b[k][columns] as [k][16] for up to 16 columns, the rest zero.
TENON_INLINE void gather_panel(const MatmulJob& job, std::int64_t k, std::int64_t count,
                               std::int64_t column, std::int64_t columns, float* out) {
  const float* b = job.b + k * job.b_row + column * job.b_column;
  if (columns == 16 && job.b_column == 1) {
    for (std::int64_t i = 0; i < count; ++i) {
      __builtin_memcpy(out + 16 * i, b + i * job.b_row, 16 * sizeof(float));
    }
    return;
  }
  // Along the rows of b where those are contiguous, so that a line of b is read once.
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[16 * i + c] = b[i * job.b_row + c * job.b_column];
    }
  }
  for (std::int64_t c = columns; c < 16; ++c) {
    for (std::int64_t i = 0; i < count; ++i) out[16 * i + c] = 0.0f;
  }
}

void run_matmul(const MatmulJob& job, std::int64_t first_column, std::int64_t last_column,
                std::int64_t first_row, std::int64_t last_row) {
  DenseScratch scratch;
  const std::int64_t rows = last_row - first_row;
  for (std::int64_t n = first_column; n < last_column; n += dense_width) {
    const std::int64_t width = smaller(dense_width, last_column - n);
    for (std::int64_t k = 0; k == 0 || k < job.k; k += stretch) {
      const std::int64_t count = smaller(stretch, job.k - k);
      for (int p = 0; p < dense_panels; ++p) {
        const std::int64_t left = width - 16 * p;
        gather_panel(job, k, count, n + 16 * p, left < 0 ? 0 : smaller(16, left),
                     scratch.weights + p * stretch * 16);
      }
      const Left x{job.a + first_row * job.a_row + k * job.a_column, job.a_row, job.a_column};
      dense_tiles<dense_panels, F32Weights>(x, rows, scratch.weights, stretch * 16, count, k != 0,
                                            scratch.sums);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      __builtin_memcpy(job.c + (first_row + r) * job.c_row + n, scratch.sums + r * dense_width,
                       static_cast<std::size_t>(width) * sizeof(float));
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
