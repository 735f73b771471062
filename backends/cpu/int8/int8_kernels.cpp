#include "int8_kernels.hpp"

#include "../built_kernels.hpp"

namespace tenon::cpu {

Int8Kernels int8_kernels() noexcept {
  static constexpr const Int8Kernels* by_isa[isa_count] = {
      // in the order of Isa
      &portable::int8,           &avx2::int8,
      &built::avx_vnni::int8,    &built::avx512::int8,
      &built::avx512_vnni::int8, &built::avx512_vnni::int8};
  const Isa isa = active_isa();
  Int8Kernels kernels = *by_isa[static_cast<int>(isa)];
  if (isa == Isa::amx) {  // tiles do GEMM only
    kernels.product = kernels.wide_product = amx::int8_product;
  }
  return kernels;
}

}  // namespace tenon::cpu
