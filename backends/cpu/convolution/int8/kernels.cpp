#include "kernels.hpp"

namespace tenon::cpu {

const Int8Kernels& int8_kernels() noexcept {
  // In the order of Isa.
  static constexpr const Int8Kernels* by_isa[isa_count] = {&portable::int8,    &avx2::int8,
                                                           &avx_vnni::int8,    &avx512::int8,
                                                           &avx512_vnni::int8, &avx512_vnni::int8};
  return *by_isa[static_cast<int>(active_isa())];
}

}  // namespace tenon::cpu
