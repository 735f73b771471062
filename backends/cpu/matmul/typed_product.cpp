#include "typed_product.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

const ProductTiles& product_tiles() noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::product_tiles;
  return isa >= Isa::avx2 ? avx2::product_tiles : portable::product_tiles;
}

}  // namespace tenon::cpu
