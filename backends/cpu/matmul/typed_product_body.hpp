#pragma once

// The tiles of typed_product.hpp. Included after a header of simd/, by the sources of one
// instruction set each.
#include "typed_product.hpp"

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int product_bytes = 64;
#elif defined(__AVX2__)
constexpr int product_bytes = 32;
#else
constexpr int product_bytes = 16;
#endif

using DoubleLanes = double __attribute__((vector_size(product_bytes)));
using WordLanes = std::uint32_t __attribute__((vector_size(product_bytes)));
using LongLanes = std::uint64_t __attribute__((vector_size(product_bytes)));

TENON_INLINE DoubleLanes multiply_add(double a, DoubleLanes b, DoubleLanes c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(_mm512_set1_pd(a), b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_pd(_mm256_set1_pd(a), b, c);
#else
  return a * b + c;
#endif
}
TENON_INLINE WordLanes multiply_add(std::uint32_t a, WordLanes b, WordLanes c) { return a * b + c; }
TENON_INLINE LongLanes multiply_add(std::uint64_t a, LongLanes b, LongLanes c) { return a * b + c; }

/// Two vectors in a row of a tile, and as many rows as registers hold.
constexpr int product_rows = 4;

template <class T, class V>
void multiply_tile(const void* a_bytes, const void* b_bytes, std::int64_t k, void* c_bytes,
                   std::int64_t step, std::int64_t height, std::int64_t width, bool adds) noexcept {
  constexpr std::size_t lanes_of = product_bytes / sizeof(T);
  const T* a = static_cast<const T*>(a_bytes);
  const T* b = static_cast<const T*>(b_bytes);
  V sums[product_rows][2] = {};
  for (std::int64_t i = 0; i < k; ++i, a += product_rows, b += 2 * lanes_of) {
    V left, right;
    __builtin_memcpy(&left, b, sizeof left);
    __builtin_memcpy(&right, b + lanes_of, sizeof right);
#pragma GCC unroll 4
    for (int r = 0; r < product_rows; ++r) {
      sums[r][0] = multiply_add(a[r], left, sums[r][0]);
      sums[r][1] = multiply_add(a[r], right, sums[r][1]);
    }
  }
  T rows[product_rows][2 * lanes_of];
  __builtin_memcpy(rows, sums, sizeof rows);
  T* c = static_cast<T*>(c_bytes);
  for (std::int64_t r = 0; r < height; ++r, c += step) {
    for (std::int64_t j = 0; j < width; ++j) c[j] = adds ? c[j] + rows[r][j] : rows[r][j];
  }
}

template <class T, class V>
constexpr ProductTile product_tile() {
  return {product_rows, 2 * product_bytes / static_cast<int>(sizeof(T)), multiply_tile<T, V>};
}
constexpr ProductTiles all_product_tiles{product_tile<double, DoubleLanes>(),
                                         product_tile<std::uint32_t, WordLanes>(),
                                         product_tile<std::uint64_t, LongLanes>()};

}  // namespace
}  // namespace tenon::cpu
