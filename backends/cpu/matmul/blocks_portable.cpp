#include "simd_portable.hpp"

#include "blocks_body.hpp"

namespace tenon::cpu::portable {

void linear_blocks(const LinearJob& job, const LinearBlock& block) noexcept {
  run_blocks(job, block);
}

}  // namespace tenon::cpu::portable
