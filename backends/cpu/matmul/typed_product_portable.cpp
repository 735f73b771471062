// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "typed_product_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const ProductTiles product_tiles = all_product_tiles;

}  // namespace tenon::cpu::portable
