#include "stored_pairs.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

const StoredPairKernels& stored_pair_kernels() noexcept {
  const Isa isa = active_isa();
  if (isa >= Isa::avx512) return built::avx512::stored_pairs;
  return isa >= Isa::avx2 ? avx2::stored_pairs : portable::stored_pairs;
}

}  // namespace tenon::cpu
