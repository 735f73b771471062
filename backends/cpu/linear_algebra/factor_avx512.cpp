// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/avx512.hpp"
#include "factor_body.hpp"
// clang-format on

namespace tenon::cpu::avx512 {

constinit const FactorKernels factors = all_factor_kernels;

}  // namespace tenon::cpu::avx512
