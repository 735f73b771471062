// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/portable.hpp"
#include "dense_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

void dense_packed(const DenseJob& job, const LinearBlock& block) noexcept { run_dense(job, block); }

void dense_strided(const DenseJob& job, const StridedColumns& columns,
                   const LinearBlock& block) noexcept {
  run_strided(job, columns, block);
}

}  // namespace tenon::cpu::portable
