#include "blocks_body.hpp"
#include "simd_avx2.hpp"

namespace tenon::cpu::avx_vnni {

void linear_blocks(const LinearJob& job, const LinearBlock& block) noexcept {
  run_blocks(job, block);
}

}  // namespace tenon::cpu::avx_vnni
