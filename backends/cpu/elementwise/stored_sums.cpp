#include "stored_sums.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

const StoredSums* stored_sums(DType dtype) noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::stored_sums(dtype);
  return isa >= Isa::avx2 ? avx2::stored_sums(dtype) : portable::stored_sums(dtype);
}

}  // namespace tenon::cpu
