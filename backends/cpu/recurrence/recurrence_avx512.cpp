// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/avx512.hpp"
#include "../elementwise/math_body.hpp"
#include "recurrence_body.hpp"
// clang-format on

namespace tenon::cpu::avx512 {

constinit const RecurrenceKernels<float> recurrence{Simd::lanes, run_scan, run_scan_row, run_wkv7};

}  // namespace tenon::cpu::avx512
