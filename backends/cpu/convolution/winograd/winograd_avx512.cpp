// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../../simd/avx512.hpp"
#include "transforms_body.hpp"
// clang-format on

namespace tenon::cpu::avx512 {

constinit const winograd::Transforms winograd_transforms{winograd_input, winograd_upstream,
                                                         winograd_output, winograd_taps};

}  // namespace tenon::cpu::avx512
