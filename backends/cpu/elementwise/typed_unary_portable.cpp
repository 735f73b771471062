// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "typed_unary_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const FindTypedUnary typed_unary = find_typed_unary;

}  // namespace tenon::cpu::portable
