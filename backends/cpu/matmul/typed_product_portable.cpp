// The vectors first: the body is written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "typed_product_body.hpp"
#include "vector_product_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

constinit const ProductTiles product_tiles = all_product_tiles;
constinit const VectorProducts vector_products = all_vector_products;

}  // namespace tenon::cpu::portable
