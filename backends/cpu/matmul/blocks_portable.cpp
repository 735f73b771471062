// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "blocks_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

void linear_blocks(const LinearJob& job, const LinearBlock& block) noexcept {
  run_blocks(job, block);
}

}  // namespace tenon::cpu::portable
