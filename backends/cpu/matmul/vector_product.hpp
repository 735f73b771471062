// Products of a matrix and a vector, which read the matrix where it lies.
#pragma once

#include <tenon/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {

/// Matrices of f16, bf16, f32, f64, i32 or i64, whose lines are `step` bytes apart and dense; vectors of f32 for the halves,
/// else of the same type. Integers wrap. What a result is summed from, and in which order, depends on nothing else.
struct VectorProducts {
  /// y[r] = sum_k m[r][k] v[k], in lanes: element k belongs to sum k mod the numbers that two vectors have.
  void (*dots)(DType dtype, const std::byte* m, std::int64_t step, std::int64_t rows, const void* v,
               std::int64_t k, void* y) noexcept;
  /// y[c] = sum_k v[k] m[k][c], in the order of k.
  void (*combine)(DType dtype, const std::byte* m, std::int64_t step, std::int64_t columns,
                  const void* v, std::int64_t k, void* y) noexcept;
};

/// Those of the active instruction set.
const VectorProducts& vector_products() noexcept;

/// As the files compiled for one instruction set provide them, for the reason that
/// matmul_kernels.hpp gives.
namespace portable {
extern const VectorProducts vector_products;
}
namespace avx2 {
extern const VectorProducts vector_products;
}
namespace avx512 {
extern const VectorProducts vector_products;
}

}  // namespace tenon::cpu
