// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/avx2.hpp"
#include "typed_product_body.hpp"
// clang-format on

namespace tenon::cpu::avx2 {

constinit const ProductTiles product_tiles = all_product_tiles;

}  // namespace tenon::cpu::avx2
