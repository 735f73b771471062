#pragma once

// The f32 micro-kernel: a tile of outer products held in registers. Included after a simd_*.hpp, by
// the sources of one instruction set each.
#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

using Float = Simd::Float;

constexpr int parts = 16 / Simd::lanes;  // vectors that hold one value of every row of a panel
constexpr int dense_panels = Simd::dense_panels;
constexpr int dense_width = 16 * dense_panels;

struct F32Weights {
  using Element = float;
  TENON_INLINE static Float load(const float* p) { return Simd::load_float(p); }
};
struct F16Weights {
  using Element = std::uint16_t;
  TENON_INLINE static Float load(const std::uint16_t* p) { return Simd::load_f16(p); }
};
struct Bf16Weights {
  using Element = std::uint16_t;
  TENON_INLINE static Float load(const std::uint16_t* p) { return Simd::load_bf16(p); }
};

/// Rows of the left operand.
struct Left {
  const float* at;
  std::int64_t row;
  std::int64_t column;
};

/// sums[rows][dense_width] (+)= x w over `count` elements of k. Sixteen columns of w make a panel;
/// panels are `panel_step` elements apart, and k is `k_step` apart in one. Rows go by threes: x86
/// addresses base, base + s and base + 2 s from two registers.
template <int rows, int panels, class Weights, int k_step>
void dense_tile(const Left& x, const typename Weights::Element* w, std::int64_t panel_step,
                std::int64_t count, bool accumulate, float* sums) {
  constexpr auto vectors = static_cast<std::size_t>(panels * parts);
  constexpr auto row_count = static_cast<std::size_t>(rows);
  constexpr auto bases = static_cast<std::size_t>((rows + 2) / 3);
  Float y[row_count][vectors];
  for (std::size_t r = 0; r < row_count; ++r) {
    for (std::size_t v = 0; v < vectors; ++v) {
      y[r][v] = accumulate ? Simd::load_float(sums + r * dense_width + v * Simd::lanes)
                           : Simd::zero_float();
    }
  }
  const float* base[bases];
  for (std::size_t b = 0; b < bases; ++b) base[b] = x.at + static_cast<std::int64_t>(3 * b) * x.row;
  for (std::int64_t k = 0; k < count; ++k) {
    Float wv[vectors];
    for (int p = 0; p < panels; ++p) {
      for (int part = 0; part < parts; ++part) {
        wv[static_cast<std::size_t>(p * parts + part)] =
            Weights::load(w + p * panel_step + k_step * k + part * Simd::lanes);
      }
    }
    for (std::size_t r = 0; r < row_count; ++r) {
      const Float xv = Simd::broadcast(base[r / 3] + static_cast<std::int64_t>(r % 3) * x.row);
      for (std::size_t v = 0; v < vectors; ++v) y[r][v] = Simd::fma(xv, wv[v], y[r][v]);
    }
    for (std::size_t b = 0; b < bases; ++b) base[b] += x.column;
  }
  for (std::size_t r = 0; r < row_count; ++r) {
    for (std::size_t v = 0; v < vectors; ++v) {
      Simd::store_float(sums + r * dense_width + v * Simd::lanes, y[r][v]);
    }
  }
}

template <int panels, class Weights, int k_step = 16>
void dense_tiles(Left x, std::int64_t rows, const typename Weights::Element* w,
                 std::int64_t panel_step, std::int64_t count, bool accumulate, float* sums) {
  std::int64_t r = 0;
  const auto run = [&]<int tile_rows>() {
    for (; rows - r >= tile_rows; r += tile_rows) {
      dense_tile<tile_rows, panels, Weights, k_step>({x.at + r * x.row, x.row, x.column}, w,
                                                     panel_step, count, accumulate,
                                                     sums + r * dense_width);
    }
  };
  run.template operator()<Simd::dense_rows>();
  if constexpr (Simd::dense_rows > 6) run.template operator()<6>();
  if constexpr (Simd::dense_rows > 4) run.template operator()<4>();
  run.template operator()<2>();
  run.template operator()<1>();
}

}  // namespace
}  // namespace tenon::cpu
