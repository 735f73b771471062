// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "simd_portable.hpp"
#include "dense_body.hpp"
// clang-format on

namespace tenon::cpu::portable {

void linear_dense(const LinearJob& job, const LinearBlock& block) noexcept {
  run_dense(job, block);
}

void matmul(const MatmulJob& job, std::int64_t first_column, std::int64_t last_column,
            std::int64_t first_row, std::int64_t last_row) noexcept {
  run_matmul(job, first_column, last_column, first_row, last_row);
}

}  // namespace tenon::cpu::portable
