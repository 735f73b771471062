// Gradients by the filter of a convolution whose groups have few channels: one plane with one plane.
#pragma once

#include <cstdint>

namespace tenon::cpu {

/// sums[t] = the sum over i < rows and j < columns of u[i * columns + j] * x[i * x_row + offsets[t] + j].
struct PlaneTaps {
  const float* u;
  const float* x;
  std::int64_t rows, columns, x_row;
  const std::int64_t* offsets;
  std::int64_t taps;
  float* sums;
};

/// That of the active instruction set.
void sum_plane_taps(const PlaneTaps& job) noexcept;

/// As the files compiled for one instruction set provide it; plain data, for the reason that matmul/matmul_kernels.hpp gives.
using SumPlaneTaps = void (*)(const PlaneTaps& job) noexcept;
namespace portable {
extern const SumPlaneTaps plane_taps;
}
namespace avx2 {
extern const SumPlaneTaps plane_taps;
}
namespace avx512 {
extern const SumPlaneTaps plane_taps;
}

}  // namespace tenon::cpu
