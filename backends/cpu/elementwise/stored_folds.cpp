#include "stored_folds.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

const StoredFold* stored_fold(DType dtype, Gathering op) noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::stored_fold(dtype, op);
  return isa >= Isa::avx2 ? avx2::stored_fold(dtype, op) : portable::stored_fold(dtype, op);
}

}  // namespace tenon::cpu
