// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "stored_folds_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const FindStoredFold stored_fold = find_stored_fold;

}  // namespace tenon::cpu::portable
