// Tiles of matrix products in f64 and in integers, which wrap modulo 2^bits.
#pragma once

#include <cstdint>

namespace tenon::cpu {

/// One tile: c[i][j] = sum_k a[k][i] * b[k][j], of packed columns of `rows` and packed rows of
/// `columns` elements each; added to c where `adds`. Writes `height` x `width` of it, rows of c
/// being `step` elements apart.
struct ProductTile {
  std::int64_t rows, columns;
  void (*run)(const void* a, const void* b, std::int64_t k, void* c, std::int64_t step,
              std::int64_t height, std::int64_t width, bool adds) noexcept;
};

/// By the type that is computed in: integers without sign, which have the same bits.
struct ProductTiles {
  ProductTile f64, u32, u64;
};

/// Those of the active instruction set.
const ProductTiles& product_tiles() noexcept;

/// As the files compiled for one instruction set provide them, for the reason that
/// matmul_kernels.hpp gives.
namespace portable {
extern const ProductTiles product_tiles;
}
namespace avx2 {
extern const ProductTiles product_tiles;
}
namespace avx512 {
extern const ProductTiles product_tiles;
}

}  // namespace tenon::cpu
