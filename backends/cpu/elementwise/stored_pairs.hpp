// Functions of two operands whose types are narrower than those that kernels compute in, on elements as they are stored:
// the bits that widening, computing and narrowing give, without the copies.
#pragma once

#include "typed.hpp"

#include <cstdint>

namespace tenon::cpu {

/// y[i] = f(a[i * a_step], b[i * b_step]), steps 0 or 1; y may be a or b.
using StoredPairs = void (*)(const void* a, std::int64_t a_step, const void* b, std::int64_t b_step,
                             void* y, std::int64_t count) noexcept;

/// As the files compiled for one instruction set provide them; null where elements are to be widened. Plain data, for the
/// reason that matmul/matmul_kernels.hpp gives.
struct StoredPairKernels {
  /// y is of the operands' type.
  StoredPairs (*arithmetic)(DType dtype, Arithmetic op) noexcept;
  /// y[i] is 1 where the comparison holds, else 0, one byte each.
  StoredPairs (*comparison)(DType dtype, Comparison op) noexcept;
};
namespace portable {
extern const StoredPairKernels stored_pairs;
}
namespace avx2 {
extern const StoredPairKernels stored_pairs;
}
namespace avx512 {
extern const StoredPairKernels stored_pairs;
}

/// Those of the active instruction set.
const StoredPairKernels& stored_pair_kernels() noexcept;

}  // namespace tenon::cpu
