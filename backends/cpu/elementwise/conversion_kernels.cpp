#include "conversion_kernels.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

const ConversionKernels& conversion_kernels() noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::conversions;
  return isa >= Isa::avx2 ? avx2::conversions : portable::conversions;
}

}  // namespace tenon::cpu
