// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "stored_sums_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const FindStoredSums stored_sums = find_stored_sums;

}  // namespace tenon::cpu::portable
