// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "fourier_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const FourierKernels fourier = all_fourier_kernels;

}  // namespace tenon::cpu::portable
