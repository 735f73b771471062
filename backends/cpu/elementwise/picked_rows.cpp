#include "picked_rows.hpp"

#include "../built_kernels.hpp"
#include "../cpu_features.hpp"

namespace tenon::cpu {

void sum_picked_rows(Compute type, const void* x, const std::int64_t* places, std::int64_t rows,
                     std::int64_t known, std::int64_t columns, double* sums) noexcept {
  const Isa isa = active_isa();
  const SumPickedRows run = isa >= Isa::avx512 ? built::avx512::picked_rows
                            : isa >= Isa::avx2 ? avx2::picked_rows
                                               : portable::picked_rows;
  run(type, x, places, rows, known, columns, sums);
}

}  // namespace tenon::cpu
