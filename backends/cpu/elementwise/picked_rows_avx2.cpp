// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/avx2.hpp"
#include "picked_rows_body.hpp"
// clang-format on

namespace tenon::cpu::avx2 {

constinit const SumPickedRows picked_rows = run_picked_rows;

}  // namespace tenon::cpu::avx2
