#include "fourier_kernels.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

const FourierKernels& fourier_kernels() noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::fourier;
  return isa >= Isa::avx2 ? avx2::fourier : portable::fourier;
}

}  // namespace tenon::cpu
