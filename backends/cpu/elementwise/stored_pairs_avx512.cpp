// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/avx512.hpp"
#include "stored_pairs_body.hpp"
// clang-format on

namespace tenon::cpu::avx512 {

constinit const StoredPairKernels stored_pairs = all_stored_pairs;

}  // namespace tenon::cpu::avx512
