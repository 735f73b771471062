#include "../cache_sizes.hpp"
#include "../cpu_features.hpp"
#include "../integer_math.hpp"
#include "../thread_pool.hpp"
#include "dense_blocking.hpp"
#include "matmul.hpp"
#include "matmul_kernels.hpp"
#include "tile_kernels.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

// An item is a few panels of W by rows that fit a kernel's scratch memory. The choice depends on
// sizes only, never on the number of threads.
struct Schedule {
  std::int64_t panels_per_item;
  std::int64_t rows_per_item;
  std::int64_t panel_items;
  std::int64_t row_items;
};

DenseSize dense_size(const LinearArgs& args) {
  return {args.weights->dtype(), args.rows, args.weights->outputs(), args.weights->inputs()};
}

DenseBlocking blocking_of(const LinearArgs& args) {
  return args.blocking != nullptr ? *args.blocking : dense_blocking(dense_size(args));
}

/// Int8 rows per item: as few items as possible, of equal size and of whole blocks.
std::int64_t block_rows(const LinearArgs& args) {
  const std::int64_t block = matmul_kernels(args.isa).block_rows;
  const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(args.rows, max_block_rows));
  const std::int64_t even = ceil_div(args.rows, parts);
  return std::max<std::int64_t>(1, ceil_div(even, block)) * block;
}

/// Panels per item of the f32 GEMM. Each run of items copies its rows, so an item takes as many
/// panels as leave enough items for threads to finish together.
std::int64_t dense_panels(const LinearArgs& args, std::int64_t row_items) {
  constexpr std::int64_t items = 128, most = 32, tile = 2;
  return std::clamp<std::int64_t>(args.weights->panels() * row_items / items / tile, 1,
                                  most / tile) *
         tile;
}

/// Rows of tiles per item: at most half of L2, in parts of equal size; the rest is for weights.
std::int64_t tile_rows(const LinearArgs& args) {
  constexpr std::int64_t block = 32, least = 128;
  const std::int64_t row_bytes = std::max<std::int64_t>(2 * args.weights->inputs(), 1);
  const std::int64_t fits = cache_sizes().level2 / 2 / row_bytes;
  const std::int64_t most = std::clamp(fits, least, max_tile_rows) / block * block;
  const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(args.rows, most));
  const std::int64_t even = ceil_div(args.rows, parts);
  return std::max<std::int64_t>(1, ceil_div(even, block)) * block;
}

bool takes_tiles(const LinearArgs& args) { return args.prepared->form() == RowForm::bf16; }

Schedule schedule(const LinearArgs& args) {
  Schedule s{};
  if (args.prepared == nullptr) {
    s.rows_per_item = blocking_of(args).rows;
    s.panels_per_item = dense_panels(args, ceil_div(args.rows, s.rows_per_item));
  } else {
    s.rows_per_item = takes_tiles(args) ? tile_rows(args) : block_rows(args);
    s.panels_per_item = takes_tiles(args) || args.rows > 4 ? 2 : 1;
  }
  s.panel_items = ceil_div(args.weights->panels(), s.panels_per_item);
  s.row_items = ceil_div(args.rows, s.rows_per_item);
  return s;
}

template <class Job>
Job job_of(const LinearArgs& args) {
  const PackedWeights& w = *args.weights;
  Job job{};
  job.dtype = w.dtype();
  job.panels = w.bytes().data();
  job.panel_bytes = w.panel_bytes();
  job.outputs = w.outputs();
  job.inputs = w.inputs();
  job.prefetches = !prefetches_streams();
  job.y = args.y;
  job.y_stride = args.y_stride;
  job.bias = args.bias;
  job.residual = args.residual;
  job.residual_stride = args.residual_stride;
  job.activation = args.activation;
  return job;
}

DenseJob dense_job(const LinearArgs& args) {
  auto job = job_of<DenseJob>(args);
  job.x = args.x;
  job.x_stride = args.x_stride;
  job.x_column = 1;
  job.blocking = blocking_of(args);
  job.scratch = dense_scratch(dense_size(args), job.blocking, false, args.scratch);
  job.copy = args.copy;
  return job;
}

LinearJob prepared_job(const LinearArgs& args) {
  const PreparedRows& rows = *args.prepared;
  auto job = job_of<LinearJob>(args);
  job.rows = rows.rows();
  job.numbers = rows.numbers();
  job.outliers = rows.outliers();
  job.outlier_groups = rows.outlier_groups();
  job.outlier_count = rows.outlier_count();
  return job;
}

TileJob tile_job(const LinearArgs& args) {
  auto job = job_of<TileJob>(args);
  job.x = args.prepared->tile(0, 0);
  if (args.y_tiles != nullptr) job.y_tiles = args.y_tiles->tile(0, 0);
  return job;
}

/// Calls run(LinearBlock); consecutive items of one row block are one call.
template <class Run>
void walk(const LinearArgs& args, Range items, const Run& run) {
  const Schedule s = schedule(args);
  const std::int64_t panels = args.weights->panels();
  while (items.begin < items.end) {
    const std::int64_t first = items.begin % s.panel_items;
    const std::int64_t count = std::min(items.end - items.begin, s.panel_items - first);
    const std::int64_t row = items.begin / s.panel_items * s.rows_per_item;
    run(LinearBlock{first * s.panels_per_item,
                    std::min((first + count) * s.panels_per_item, panels), row,
                    std::min(row + s.rows_per_item, args.rows)});
    items.begin += count;
  }
}

}  // namespace

std::size_t linear_scratch_bytes(const LinearArgs& args) noexcept {
  return args.prepared != nullptr ? 0 : dense_scratch_bytes(dense_size(args), false);
}

std::int64_t linear_items(const LinearArgs& args) noexcept {
  const Schedule s = schedule(args);
  return s.panel_items * s.row_items;
}

void linear_range(const LinearArgs& args, std::int64_t begin, std::int64_t end) noexcept {
  if (args.prepared == nullptr) {
    const DenseJob job = dense_job(args);
    const DenseKernel kernel = dense_kernels(args.isa).packed;
    walk(args, {begin, end}, [&](const LinearBlock& block) { kernel(job, block); });
  } else if (takes_tiles(args)) {
    const TileJob job = tile_job(args);
    const TileKernel kernel = matmul_kernels(args.isa).tiles;
    walk(args, {begin, end}, [&](const LinearBlock& block) { kernel(job, block); });
  } else {
    const LinearJob job = prepared_job(args);
    const LinearKernel kernel = matmul_kernels(args.isa).blocks;
    walk(args, {begin, end}, [&](const LinearBlock& block) { kernel(job, block); });
  }
}

void linear(const LinearArgs& args, int thread, int threads) noexcept {
  const Range range = split(linear_items(args), thread, threads);
  linear_range(args, range.begin, range.end);
}

}  // namespace tenon::cpu
