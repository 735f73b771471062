#include "plane_taps.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

void sum_plane_taps(const PlaneTaps& job) noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::plane_taps(job);
  isa >= Isa::avx2 ? avx2::plane_taps(job) : portable::plane_taps(job);
}

}  // namespace tenon::cpu
