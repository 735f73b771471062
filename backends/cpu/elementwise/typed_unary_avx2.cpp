// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/avx2.hpp"
#include "pair_f64_body.hpp"
#include "typed_unary_body.hpp"
// clang-format on

namespace tenon::cpu::avx2 {

constinit const FindTypedUnary typed_unary = find_typed_unary;
constinit const FindPairOfF64 pair_of_f64 = find_f64_pair;

}  // namespace tenon::cpu::avx2
