#include "matmul.hpp"

#include "../integer_math.hpp"
#include "../thread_pool.hpp"
#include "dense_blocking.hpp"

#include <algorithm>
#include <utility>

namespace tenon::cpu {
namespace {

// Threads divide pairs of panels, or rows.
constexpr std::int64_t unit_panels = 2;
constexpr std::int64_t unit_rows = 12;

// Of a right operand that is read where it lies, so many units before a thread looks whether it is interrupted.
constexpr std::int64_t page_units = 32;

DenseSize dense_size(const MatmulArgs& args) { return {DType::f32, args.m, args.n, args.k}; }

/// A product with one column as one with one row, where its elements lie side by side: (a b)^T = b^T a^T.
MatmulArgs with_one_row(MatmulArgs args) {
  if (args.n != 1 || args.m == 1 || args.c_row != 1) return args;
  std::swap(args.m, args.n);
  std::swap(args.a, args.b);
  std::swap(args.a_batch, args.b_batch);
  std::swap(args.a_starts, args.b_starts);
  const std::int64_t row = args.a_row, column = args.a_column;
  args.a_row = args.b_column;
  args.a_column = args.b_row;
  args.b_row = column;
  args.b_column = row;
  args.c_row = args.n;
  return args;
}

/// Threads that divide panels of one product copy all rows of a, each, and those that divide rows copy all columns of b:
/// the smaller matrix is copied several times, if the other one has enough parts.
bool divides_rows(const MatmulArgs& args, std::int64_t panel_units, std::int64_t row_units,
                  int threads) {
  const std::int64_t enough = 2 * threads;
  const bool has_panels = args.batches * panel_units >= enough;
  const bool has_rows = args.batches * row_units >= enough;
  return has_panels ? has_rows && args.m > args.n : row_units > panel_units;
}

}  // namespace

std::size_t matmul_scratch_bytes(const MatmulArgs& args) noexcept {
  return dense_scratch_bytes(dense_size(with_one_row(args)), true);
}

void matmul(const MatmulArgs& given, int thread, int threads) noexcept {
  if (given.m == 0 || given.n == 0) return;
  const MatmulArgs args = with_one_row(given);
  const StridedKernel kernel = dense_kernels(args.isa).strided;
  DenseJob job{};
  job.dtype = DType::f32;
  job.outputs = args.n;
  job.inputs = args.k;
  job.x_stride = args.a_row;
  job.x_column = args.a_column;
  job.y_stride = args.c_row;
  job.blocking = dense_blocking(dense_size(args));
  job.scratch = dense_scratch(dense_size(args), job.blocking, true, args.scratch);
  job.stop = stop_sign(args.interrupt);

  const std::int64_t panels = ceil_div(args.n, panel_columns);
  const std::int64_t panel_units = ceil_div(panels, unit_panels);
  const std::int64_t row_units = ceil_div(args.m, unit_rows);
  const bool by_rows = divides_rows(args, panel_units, row_units, threads);
  const std::int64_t units = by_rows ? row_units : panel_units;
  const std::int64_t most =
      args.m <= most_direct_rows && args.interrupt != nullptr ? page_units : units;
  Range range = split(args.batches * units, thread, threads);
  while (range.begin < range.end && !(args.interrupt != nullptr && args.interrupt->is_due())) {
    const std::int64_t batch = range.begin / units;
    const std::int64_t first = range.begin % units;
    const std::int64_t last = std::min(first + std::min(range.end - range.begin, most), units);
    const bool is_even = args.a_starts == nullptr;
    job.x = args.a + (is_even ? batch * args.a_batch : args.a_starts[batch]);
    job.y = args.c + batch * args.c_batch;
    const StridedColumns columns{args.b + (is_even ? batch * args.b_batch : args.b_starts[batch]),
                                 args.b_row, args.b_column};
    LinearBlock block{0, panels, 0, args.m};
    if (by_rows) {
      block.first_row = first * unit_rows;
      block.last_row = std::min(last * unit_rows, args.m);
    } else {
      block.first_panel = first * unit_panels;
      block.last_panel = std::min(last * unit_panels, panels);
    }
    kernel(job, columns, block);
    range.begin += last - first;
  }
}

}  // namespace tenon::cpu
