#include "matmul.hpp"

#include "../thread_pool.hpp"
#include "kernels.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

constexpr std::int64_t item_columns = 64;

struct Schedule {
  std::int64_t columns;
  std::int64_t rows;
};

Schedule schedule(const MatmulArgs& args) {
  return {(args.n + item_columns - 1) / item_columns,
          (args.m + max_block_rows - 1) / max_block_rows};
}

}  // namespace

std::int64_t matmul_items(const MatmulArgs& args) noexcept {
  const Schedule s = schedule(args);
  return args.batches * s.columns * s.rows;
}

void matmul_range(const MatmulArgs& args, std::int64_t begin, std::int64_t end) noexcept {
  const Schedule s = schedule(args);
  const MatmulKernel kernel = matmul_kernels(args.isa).matmul;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t column = item % s.columns * item_columns;
    const std::int64_t row = item / s.columns % s.rows * max_block_rows;
    const std::int64_t batch = item / s.columns / s.rows;
    const MatmulJob job{args.m,
                        args.n,
                        args.k,
                        args.a + batch * args.a_batch,
                        args.a_row,
                        args.a_column,
                        args.b + batch * args.b_batch,
                        args.b_row,
                        args.b_column,
                        args.c + batch * args.c_batch,
                        args.c_row};
    kernel(job, column, std::min(column + item_columns, args.n), row,
           std::min(row + max_block_rows, args.m));
  }
}

void matmul(const MatmulArgs& args, int thread, int threads) noexcept {
  const Range range = split(matmul_items(args), thread, threads);
  matmul_range(args, range.begin, range.end);
}

}  // namespace tenon::cpu
