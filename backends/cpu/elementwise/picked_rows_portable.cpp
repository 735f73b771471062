// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "picked_rows_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const SumPickedRows picked_rows = run_picked_rows;

}  // namespace tenon::cpu::portable
