// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "factor_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const FactorKernels factors = all_factor_kernels;

}  // namespace tenon::cpu::portable
