// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../matmul/simd_avx512.hpp"
#include "conv_body.hpp"
#include "window_body.hpp"
// clang-format on

namespace tenon::cpu::avx512 {

constinit const ConvolutionKernels convolution{run_conv, run_window};

}  // namespace tenon::cpu::avx512
