#include "blocks_body.hpp"
#include "simd_avx512.hpp"

namespace tenon::cpu::avx512_vnni {

void linear_blocks(const LinearJob& job, const LinearBlock& block) noexcept {
  run_blocks(job, block);
}

}  // namespace tenon::cpu::avx512_vnni
