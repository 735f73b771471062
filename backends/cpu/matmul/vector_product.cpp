#include "vector_product.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

const VectorProducts& vector_products() noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::vector_products;
  return isa >= Isa::avx2 ? avx2::vector_products : portable::vector_products;
}

}  // namespace tenon::cpu
