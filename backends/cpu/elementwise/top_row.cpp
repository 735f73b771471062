#include "top_row.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

TopRowKernel top_row_kernel() noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::top_row;
  return isa >= Isa::avx2 ? avx2::top_row : nullptr;
}

}  // namespace tenon::cpu
