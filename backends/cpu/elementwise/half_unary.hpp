// Functions of f16 at the precision that f16 needs, which takes less work than that of f32.
#pragma once

#include "elementwise.hpp"

#include <cstdint>

namespace tenon::cpu {

/// y[i] = f(x[i]) in f16, within 0.75 ulp where f32's function rounded to f16 has half an ulp; the
/// same NaNs and infinities. y may be x.
using HalfUnaryKernel = void (*)(const std::uint16_t* x, std::uint16_t* y,
                                 std::int64_t count) noexcept;

/// The active instruction set's, or null where it has none: then f32's is to be used.
HalfUnaryKernel half_unary_kernel(Unary op) noexcept;

/// As the files compiled for one instruction set provide them; plain data, for the reason that
/// matmul/matmul_kernels.hpp gives.
struct HalfUnaryKernels {
  HalfUnaryKernel exp, tanh, sigmoid, silu, gelu, gelu_tanh;
};
namespace avx2 {
extern const HalfUnaryKernels half_unary;
}
namespace avx512 {
extern const HalfUnaryKernels half_unary;
}

}  // namespace tenon::cpu
