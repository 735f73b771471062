// Sums of whole numbers of narrow types, on elements as they are stored. They are exact, so that any order gives the same.
#pragma once

#include "typed.hpp"

#include <cstdint>

namespace tenon::cpu {

/// Of i8, i16, u8, u16 and bool (what is not 0 counts as 1).
struct StoredSums {
  /// The sum of `count` adjacent elements.
  std::int64_t (*row)(const void* x, std::int64_t count) noexcept;
  /// Adds to sums[c] the elements of column c: `rows` rows of `columns` adjacent elements, `step` bytes apart.
  void (*columns)(const void* x, std::int64_t columns, std::int64_t rows, std::int64_t step,
                  std::int64_t* sums) noexcept;
};

/// As the files compiled for one instruction set provide them; null for other types. Plain data, for the reason that
/// matmul/matmul_kernels.hpp gives.
using FindStoredSums = const StoredSums* (*)(DType dtype) noexcept;
namespace portable {
extern const FindStoredSums stored_sums;
}
namespace avx2 {
extern const FindStoredSums stored_sums;
}
namespace avx512 {
extern const FindStoredSums stored_sums;
}

/// The active instruction set's, or null: then elements are to be widened.
const StoredSums* stored_sums(DType dtype) noexcept;

}  // namespace tenon::cpu
