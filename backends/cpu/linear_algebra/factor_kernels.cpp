#include "factor_kernels.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

const FactorKernels& factor_kernels() noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::factors;
  return isa >= Isa::avx2 ? avx2::factors : portable::factors;
}

}  // namespace tenon::cpu
