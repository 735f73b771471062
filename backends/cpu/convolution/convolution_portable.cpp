// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../matmul/simd_portable.hpp"
#include "conv_body.hpp"
#include "window_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const ConvolutionKernels convolution{run_conv, run_window};

}  // namespace tenon::cpu::portable
