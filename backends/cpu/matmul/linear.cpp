#include "../thread_pool.hpp"
#include "kernels.hpp"
#include "matmul.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

// What an item covers: a few panels of W, and rows that fit a kernel's scratch memory. The choice
// depends on sizes only, never on the number of threads.
struct Schedule {
  LinearKernel kernel;
  std::int64_t panels_per_item;
  std::int64_t rows_per_item;
  std::int64_t panel_items;
  std::int64_t row_items;
};

Schedule schedule(const LinearArgs& args) {
  const MatmulKernels& kernels = matmul_kernels(args.isa);
  Schedule s{};
  // As few stretches of rows as may be, of equal size and of whole blocks.
  const std::int64_t stretches =
      std::max<std::int64_t>(1, (args.rows + max_block_rows - 1) / max_block_rows);
  const std::int64_t even = (args.rows + stretches - 1) / stretches;
  s.rows_per_item =
      std::max<std::int64_t>(1, (even + kernels.block_rows - 1) / kernels.block_rows) *
      kernels.block_rows;
  if (args.prepared == nullptr) {
    s.kernel = kernels.dense;
    s.panels_per_item = 2;
  } else if (args.prepared->form() == RowForm::bf16) {
    s.kernel = kernels.tiles;
    s.rows_per_item = max_tile_rows;
    s.panels_per_item = 2;
  } else {
    s.kernel = kernels.blocks;
    s.panels_per_item = args.rows > 4 ? 2 : 1;
  }
  s.panel_items = (args.weights->panels() + s.panels_per_item - 1) / s.panels_per_item;
  s.row_items = (args.rows + s.rows_per_item - 1) / s.rows_per_item;
  return s;
}

LinearJob job_of(const LinearArgs& args) {
  const PackedWeights& w = *args.weights;
  LinearJob job{};
  job.dtype = w.dtype();
  job.panels = w.bytes().data();
  job.panel_bytes = w.panel_bytes();
  job.scale_bytes = w.scale_bytes();
  job.outputs = w.outputs();
  job.inputs = w.inputs();
  if (const PreparedRows* rows = args.prepared) {
    job.first = rows->first();
    job.second = rows->second();
    job.second_groups = rows->second_groups();
    job.second_count = rows->second_count();
    job.tiles = rows->tile(0, 0);
  }
  job.x = args.x;
  job.x_stride = args.x_stride;
  job.y = args.y;
  job.y_stride = args.y_stride;
  job.bias = args.bias;
  job.residual = args.residual;
  job.residual_stride = args.residual_stride;
  return job;
}

}  // namespace

std::int64_t linear_items(const LinearArgs& args) noexcept {
  const Schedule s = schedule(args);
  return s.panel_items * s.row_items;
}

void linear_range(const LinearArgs& args, std::int64_t begin, std::int64_t end) noexcept {
  const Schedule s = schedule(args);
  const LinearJob job = job_of(args);
  const std::int64_t panels = args.weights->panels();
  while (begin < end) {
    // Items of one row block that follow one another make one call.
    const std::int64_t row_item = begin / s.panel_items;
    const std::int64_t first = begin % s.panel_items;
    const std::int64_t count = std::min(end - begin, s.panel_items - first);
    const std::int64_t row = row_item * s.rows_per_item;
    s.kernel(job, {first * s.panels_per_item, std::min((first + count) * s.panels_per_item, panels),
                   row, std::min(row + s.rows_per_item, args.rows)});
    begin += count;
  }
}

void linear(const LinearArgs& args, int thread, int threads) noexcept {
  const Range range = split(linear_items(args), thread, threads);
  linear_range(args, range.begin, range.end);
}

}  // namespace tenon::cpu
