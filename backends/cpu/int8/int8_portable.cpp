// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "int8_simd.hpp"
#include "depthwise_io.hpp"
#include "padded_copy_body.hpp"
#include "pool_body.hpp"
#include "product_body.hpp"
#include "sums_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const Int8Kernels int8{
    Int8Simd::weight_limit, run_int8_product<false>,     run_int8_depthwise, run_int8_max_pool,
    run_int8_padded_copy,   run_int8_product<is_narrow>, finish_sums};

}  // namespace tenon::cpu::portable
