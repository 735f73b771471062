#pragma once

// The f32 micro-kernel: sums of outer products held in registers. Included after a header of simd/, by
// the sources of one instruction set each.
#include "../integer_math.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

using Float = Simd::Float;

constexpr int parts = 16 / Simd::lanes;  // vectors that hold one value of every row of a panel
constexpr int dense_panels = Simd::dense_panels;
constexpr int dense_width = 16 * dense_panels;

/// Keeps GCC from reading a vector again for each of its uses, as operands of instructions.
TENON_INLINE Float in_register(Float v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__AVX__)
  asm("" : "+x"(v));
#endif
  return v;
}

// How panels hold a column's numbers: an element has `depth` of them that follow one another in k,
// of which load<i> reads number i.
struct F32Weights {
  using Element = float;
  static constexpr int depth = 1;
  template <int>
  TENON_INLINE static Float load(const float* p) {
    return Simd::load_float(p);
  }
};
struct F16Weights {
  using Element = std::uint16_t;
  static constexpr int depth = 1;
  template <int>
  TENON_INLINE static Float load(const std::uint16_t* p) {
    return Simd::load_f16(p);
  }
};
struct Bf16Weights {
  using Element = std::uint32_t;
  static constexpr int depth = 2;
  template <int i>
  TENON_INLINE static Float load(const std::uint32_t* p) {
    return i == 0 ? Simd::load_even_bf16(p) : Simd::load_odd_bf16(p);
  }
};

/// Rows of the left operand.
struct Left {
  const float* at;
  std::int64_t row;
  std::int64_t column;
};

/// Walks along k over `rows` rows of the left operand at any distance. Rows are addressed in
/// threes: x86 addresses base, base + s and base + 2 s from two registers.
template <int rows>
struct StridedRows {
  static constexpr std::size_t bases = ceil_div(rows, 3);
  const float* base[bases];
  std::int64_t row, column;

  TENON_INLINE explicit StridedRows(const Left& x) : row(x.row), column(x.column) {
    for (std::size_t b = 0; b < bases; ++b) base[b] = x.at + static_cast<std::int64_t>(3 * b) * row;
  }
  TENON_INLINE Float operator[](std::size_t r) const {
    return Simd::broadcast(base[r / 3] + static_cast<std::int64_t>(r % 3) * row);
  }
  TENON_INLINE void advance() {
    for (std::size_t b = 0; b < bases; ++b) base[b] += column;
  }
};

/// The sums of `rows` rows by `panels` panels of 16 columns, in registers. GCC needs every loop
/// over them unrolled early, or it spills them to the stack every few k.
template <int rows, int panels>
struct TileSums {
  static constexpr auto vectors = static_cast<std::size_t>(panels * parts);
  static constexpr auto row_count = static_cast<std::size_t>(rows);
  Float y[row_count][vectors];

  TENON_INLINE void clear() {
#pragma GCC unroll 16
    for (auto& row : y) {
#pragma GCC unroll 16
      for (Float& v : row) v = Simd::zero_float();
    }
  }
  TENON_INLINE void load(const float* sums, std::int64_t step) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < row_count; ++r) {
#pragma GCC unroll 16
      for (std::size_t v = 0; v < vectors; ++v) {
        y[r][v] = Simd::load_float(sums + static_cast<std::int64_t>(r) * step + v * Simd::lanes);
      }
    }
  }
  TENON_INLINE void store(float* sums, std::int64_t step) const {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < row_count; ++r) {
#pragma GCC unroll 16
      for (std::size_t v = 0; v < vectors; ++v) {
        Simd::store_float(sums + static_cast<std::int64_t>(r) * step + v * Simd::lanes, y[r][v]);
      }
    }
  }

  TENON_INLINE void add_to_columns(const float* bias) {
#pragma GCC unroll 16
    for (std::size_t v = 0; v < vectors; ++v) {
      const Float b = Simd::load_float(bias + v * Simd::lanes);
#pragma GCC unroll 16
      for (auto& row : y) row[v] = Simd::add(row[v], b);
    }
  }
  TENON_INLINE void add(const float* values, std::int64_t step) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < row_count; ++r) {
#pragma GCC unroll 16
      for (std::size_t v = 0; v < vectors; ++v) {
        const float* p = values + static_cast<std::int64_t>(r) * step + v * Simd::lanes;
        y[r][v] = Simd::add(y[r][v], Simd::load_float(p));
      }
    }
  }

  /// Adds x[k] w[k] for one k: number i of the elements at w. Panels are `panel_step` elements
  /// apart.
  template <class Weights, int i = 0, class Rows>
  TENON_INLINE void multiply_add(const Rows& x, const typename Weights::Element* w,
                                 std::int64_t panel_step) {
    Float wv[vectors];
#pragma GCC unroll 16
    for (int p = 0; p < panels; ++p) {
#pragma GCC unroll 16
      for (int part = 0; part < parts; ++part) {
        const Float v = Weights::template load<i>(w + p * panel_step + part * Simd::lanes);
        wv[static_cast<std::size_t>(p * parts + part)] = rows > 1 ? in_register(v) : v;
      }
    }
#pragma GCC unroll 16
    for (std::size_t r = 0; r < row_count; ++r) {
      const Float xv = x[r];
#pragma GCC unroll 16
      for (std::size_t v = 0; v < vectors; ++v) y[r][v] = Simd::fma(xv, wv[v], y[r][v]);
    }
  }
};

}  // namespace
}  // namespace tenon::cpu
