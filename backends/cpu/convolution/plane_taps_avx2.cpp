// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/avx2.hpp"
#include "plane_taps_body.hpp"
// clang-format on

namespace tenon::cpu::avx2 {

constinit const SumPlaneTaps plane_taps = run_plane_taps;

}  // namespace tenon::cpu::avx2
