// Sums of rows that lie anywhere.
#pragma once

#include "typed.hpp"

#include <cstdint>

namespace tenon::cpu {

/// sums[c] = the sum of the elements of column c, in order, in f64: `rows` rows of `columns` adjacent elements, row r
/// places[r] bytes from x on. `type`: f32 or f64. `known`, at least `rows`: places, of which the next call takes the others.
void sum_picked_rows(Compute type, const void* x, const std::int64_t* places, std::int64_t rows,
                     std::int64_t known, std::int64_t columns, double* sums) noexcept;

/// As the files compiled for one instruction set provide it; plain data, for the reason that matmul/matmul_kernels.hpp gives.
using SumPickedRows = void (*)(Compute type, const void* x, const std::int64_t* places,
                               std::int64_t rows, std::int64_t known, std::int64_t columns,
                               double* sums) noexcept;
namespace portable {
extern const SumPickedRows picked_rows;
}
namespace avx2 {
extern const SumPickedRows picked_rows;
}
namespace avx512 {
extern const SumPickedRows picked_rows;
}

}  // namespace tenon::cpu
