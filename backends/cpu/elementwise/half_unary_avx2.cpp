// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/avx2.hpp"
#include "half_body.hpp"
// clang-format on

namespace tenon::cpu::avx2 {

constinit const HalfUnaryKernels half_unary = half_unary_kernels;

}  // namespace tenon::cpu::avx2
