#include "kernels.hpp"

namespace tenon::cpu {

const Int8Kernels& int8_kernels() noexcept {
  // Only products are a matter for tiles.
  static const Int8Kernels tiles = [] {
    Int8Kernels kernels = avx512_vnni::int8;
    kernels.product = amx::int8_product;
    return kernels;
  }();
  // In the order of Isa.
  static const Int8Kernels* const by_isa[isa_count] = {
      &portable::int8, &avx2::int8, &avx_vnni::int8, &avx512::int8, &avx512_vnni::int8, &tiles};
  return *by_isa[static_cast<int>(active_isa())];
}

}  // namespace tenon::cpu
