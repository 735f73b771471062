#include "blocks_body.hpp"
#include "simd_portable.hpp"

namespace tenon::cpu::portable {

void linear_blocks(const LinearJob& job, const LinearBlock& block) noexcept {
  run_blocks(job, block);
}

}  // namespace tenon::cpu::portable
