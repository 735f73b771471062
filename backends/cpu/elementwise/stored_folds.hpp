// Sums and extremes of narrow types, on elements as they are stored.
#pragma once

#include "typed.hpp"

#include <cstdint>

namespace tenon::cpu {

/// Sums are i64 or f64, extremes of compute_type(dtype), as Gathering has them. Sums of whole numbers are exact and extremes
/// the same in any order; f16 and bf16 are summed in the order of accumulate_columns() and fold_rows().
struct StoredFold {
  /// sums[r] = what the `count` adjacent elements of row r fold to, from 1 on; rows are `step` bytes apart.
  void (*rows)(const void* x, std::int64_t step, std::int64_t rows, std::int64_t count,
               void* sums) noexcept;
  /// sums[c] = f(sums[c], x) of the elements x of column c: `rows` rows of `columns` adjacent elements, `step` bytes apart.
  void (*columns)(const void* x, std::int64_t columns, std::int64_t rows, std::int64_t step,
                  void* sums) noexcept;
};

/// As the files compiled for one instruction set provide them; null where there is none. Plain data, for the reason that
/// matmul/matmul_kernels.hpp gives.
using FindStoredFold = const StoredFold* (*)(DType dtype, Gathering op) noexcept;
namespace portable {
extern const FindStoredFold stored_fold;
}
namespace avx2 {
extern const FindStoredFold stored_fold;
}
namespace avx512 {
extern const FindStoredFold stored_fold;
}

/// The active instruction set's: sums and extremes of f16, bf16 and of 8 and 16 bit integers, sums of bool; else null.
const StoredFold* stored_fold(DType dtype, Gathering op) noexcept;

}  // namespace tenon::cpu
