// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/avx2.hpp"
#include "top_row_body.hpp"
// clang-format on

namespace tenon::cpu::avx2 {

constinit const TopRowKernel top_row = find_top_row;

}  // namespace tenon::cpu::avx2
