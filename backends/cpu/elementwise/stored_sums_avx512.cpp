// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/avx512.hpp"
#include "stored_sums_body.hpp"
// clang-format on

namespace tenon::cpu::avx512 {

constinit const FindStoredSums stored_sums = find_stored_sums;

}  // namespace tenon::cpu::avx512
