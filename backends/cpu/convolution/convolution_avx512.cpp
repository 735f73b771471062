// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/avx512.hpp"
#include "depthwise_f32.hpp"
#include "filter_tile_body.hpp"
#include "padded_copy_body.hpp"
#include "plane_pool_body.hpp"
#include "pool_body.hpp"
#include "product_body.hpp"
// clang-format on

namespace tenon::cpu::avx512 {

constinit const ConvolutionKernels convolution{run_product,    run_depthwise,    run_pool,
                                               run_plane_pool, run_filter_tiles, run_padded_copy};

}  // namespace tenon::cpu::avx512
