// The few greatest numbers of a row, without a branch misprediction for each that is kept.
#pragma once

#include <cstdint>

namespace tenon::cpu {

/// The most places that a TopRowKernel can be asked for.
inline constexpr std::int64_t max_top_places = 128;

/// places[0..k) get where the k greatest of x[0..size) stand, the greatest first and the earlier of
/// equals first; a NaN is above all numbers. 0 < k <= max_top_places, k <= size < 2^31. Returns
/// false, with `places` unspecified, where the row is short or there are too many candidates: the
/// caller then uses another way.
using TopRowKernel = bool (*)(const float* x, std::int64_t size, std::int64_t k,
                              std::int32_t* places) noexcept;

/// The active instruction set's, or null where it has none.
TopRowKernel top_row_kernel() noexcept;

/// As the files compiled for one instruction set provide them, for the reason that
/// matmul/matmul_kernels.hpp gives.
namespace avx2 {
extern const TopRowKernel top_row;
}
namespace avx512 {
extern const TopRowKernel top_row;
}

}  // namespace tenon::cpu
