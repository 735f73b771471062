#pragma once

// c += factor a b of f64, the product that factorisations spend their time in. Included after a header
// of simd/, by the sources of one instruction set each.
#include "factor_kernels.hpp"

#include <cstdint>

namespace tenon::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int factor_bytes = 64, tile_height = 8, tile_vectors = 3;
#elif defined(__AVX2__)
constexpr int factor_bytes = 32, tile_height = 4, tile_vectors = 3;
#else
constexpr int factor_bytes = 16, tile_height = 4, tile_vectors = 2;
#endif
using FactorLanes = double __attribute__((vector_size(factor_bytes)));
constexpr int factor_lanes = factor_bytes / 8;
constexpr int tile_width = tile_vectors * factor_lanes;

/// Blocks of a and b that caches hold: 98 and 246 KB.
constexpr std::int64_t block_depth = 128, block_height = 96, block_width = 240;
static_assert(block_height % tile_height == 0 && block_width % tile_width == 0);

TENON_INLINE FactorLanes load_lanes(const double* from) {
  FactorLanes v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
TENON_INLINE void store_lanes(double* to, const FactorLanes& v) {
  __builtin_memcpy(to, &v, sizeof v);
}
TENON_INLINE FactorLanes every_lane(double a) { return a - FactorLanes{}; }
TENON_INLINE FactorLanes multiply_add(FactorLanes a, FactorLanes b, FactorLanes c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

TENON_INLINE std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
TENON_INLINE std::int64_t most(std::int64_t a, std::int64_t b) { return a < b ? b : a; }
TENON_INLINE std::int64_t rounded_up(std::int64_t a, std::int64_t to) {
  return (a + to - 1) / to * to;
}

/// a_ij = at[i * down + j * across].
struct Spread {
  const double* at;
  std::int64_t down, across;
  TENON_INLINE Spread from(std::int64_t i, std::int64_t j) const {
    return {at + i * down + j * across, down, across};
  }
};
TENON_INLINE Spread spread(MatrixRows a) { return {a.at, a.step, 1}; }
TENON_INLINE Spread transposed(MatrixRows a) { return {a.at, 1, a.step}; }
TENON_INLINE MatrixRows part(MatrixRows a, std::int64_t i, std::int64_t j) {
  return {a.at + i * a.step + j, a.step};
}

/// From strip to strip of packed numbers: with a cache line more than they fill, since lines a power
/// of two apart would evict each other.
TENON_INLINE std::int64_t strip_step(std::int64_t width, std::int64_t depth) {
  return width * depth + 8;
}

/// Strips of `width` of the `count` lines of x, element by element of a line side by side; zeros where
/// lines are missing. `line` and `along`: steps from line to line and along one. x is read by cache
/// lines, in either order.
template <int width>
void pack_strips(const double* x, std::int64_t line, std::int64_t along, std::int64_t count,
                 std::int64_t depth, double* to) {
  constexpr std::int64_t run = 8;
  const std::int64_t step = strip_step(width, depth), whole = count / width * width;
  if (line == 1) {
    for (std::int64_t p = 0; p < depth; ++p) {
      double* at = to + p * width;
      for (std::int64_t i = 0; i < whole; i += width, at += step) {
        __builtin_memcpy(at, x + p * along + i, width * sizeof(double));
      }
    }
  }
  for (std::int64_t i = line == 1 ? whole : 0; i < count; i += width) {
    const std::int64_t there = least(width, count - i);
    const double* const from = x + i * line;
    double* const strip = to + i / width * step;
    for (std::int64_t p = 0; p < depth; p += run) {
      const std::int64_t some = least(run, depth - p);
      for (std::int64_t w = 0; w < there; ++w) {
        const double* const element = from + w * line + p * along;
        double* const at = strip + p * width + w;
        if (some == run) {
          for (std::int64_t r = 0; r < run; ++r) at[r * width] = element[r * along];
        } else {
          for (std::int64_t r = 0; r < some; ++r) at[r * width] = element[r * along];
        }
      }
      for (std::int64_t w = there; w < width; ++w) {
        for (std::int64_t r = 0; r < some; ++r) strip[(p + r) * width + w] = 0;
      }
    }
  }
}

/// c += factor a b of one tile, of which `height` rows and `width` columns are there.
void add_tile(std::int64_t depth, const double* a, const double* b, double factor, MatrixRows c,
              std::int64_t height, std::int64_t width) {
  for (std::int64_t i = 0; i < height; ++i) {
    for (int v = 0; v < tile_vectors; ++v) {
      __builtin_prefetch(c.at + i * c.step + least(v * factor_lanes, width - 1), 1);
    }
  }
  FactorLanes sums[tile_height][tile_vectors] = {};
  for (std::int64_t p = 0; p < depth; ++p, a += tile_height, b += tile_width) {
    FactorLanes right[tile_vectors];
#pragma GCC unroll 3
    for (int v = 0; v < tile_vectors; ++v) right[v] = load_lanes(b + v * factor_lanes);
#pragma GCC unroll 8
    for (int i = 0; i < tile_height; ++i) {
      const FactorLanes left = every_lane(a[i]);
#pragma GCC unroll 3
      for (int v = 0; v < tile_vectors; ++v) {
        sums[i][v] = multiply_add(left, right[v], sums[i][v]);
      }
    }
  }
  const FactorLanes by = every_lane(factor);
  if (height == tile_height && width == tile_width) {
#pragma GCC unroll 8
    for (int i = 0; i < tile_height; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < tile_vectors; ++v) {
        double* const to = c.at + i * c.step + v * factor_lanes;
        store_lanes(to, multiply_add(by, sums[i][v], load_lanes(to)));
      }
    }
    return;
  }
  double rows[tile_height][tile_width];
  __builtin_memcpy(rows, sums, sizeof rows);
  for (std::int64_t i = 0; i < height; ++i) {
    for (std::int64_t j = 0; j < width; ++j) c.at[i * c.step + j] += factor * rows[i][j];
  }
}

std::int64_t product_room(std::int64_t size) {
  const std::int64_t height = least(block_height, rounded_up(size, tile_height));
  const std::int64_t width = least(block_width, rounded_up(size, tile_width));
  const std::int64_t depth = least(block_depth, size);
  return height / tile_height * strip_step(tile_height, depth) +
         width / tile_width * strip_step(tile_width, depth);
}

/// c += factor a b, c of m rows and n columns, `depth` columns of a. With `upper` tiles that lie below
/// c's diagonal are left out. No size is above that of product_room.
void add_product(std::int64_t m, std::int64_t n, std::int64_t depth, double factor, Spread a,
                 Spread b, MatrixRows c, bool upper, const FactorRoom& room) {
  for (std::int64_t p = 0; p < depth; p += block_depth) {
    const std::int64_t some = least(block_depth, depth - p);
    for (std::int64_t j = 0; j < n; j += block_width) {
      const std::int64_t width = least(block_width, n - j);
      if (is_due(room.stop)) return;
      double* const right = room.numbers;
      const std::int64_t left_step = strip_step(tile_height, some);
      const std::int64_t right_step = strip_step(tile_width, some);
      double* const left = right + rounded_up(width, tile_width) / tile_width * right_step;
      const Spread from = b.from(p, j);
      pack_strips<tile_width>(from.at, from.across, from.down, width, some, right);
      const std::int64_t last = upper ? least(m, j + width) : m;
      for (std::int64_t i = 0; i < last; i += block_height) {
        const std::int64_t height = least(block_height, last - i);
        const Spread rows = a.from(i, p);
        pack_strips<tile_height>(rows.at, rows.down, rows.across, height, some, left);
        for (std::int64_t s = 0; s < width; s += tile_width) {
          for (std::int64_t r = 0; r < height; r += tile_height) {
            if (upper && i + r >= j + s + tile_width) break;
            add_tile(some, left + r / tile_height * left_step, right + s / tile_width * right_step,
                     factor, part(c, i + r, j + s), least(tile_height, height - r),
                     least(tile_width, width - s));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tenon::cpu
