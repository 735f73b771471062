#include "dense_blocking.hpp"

#include "../cache_sizes.hpp"
#include "../integer_math.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

constexpr std::int64_t float_bytes = 4;
constexpr std::int64_t row_step = 14;  // rows of the largest tile
constexpr std::int64_t max_waiting_panels = 64;
constexpr std::int64_t few_rows = 12;  // that every instruction set multiplies in place

// Equal parts of `whole`, each at most `most` and, but for the last, a multiple of `step`.
std::int64_t even_part(std::int64_t whole, std::int64_t most, std::int64_t step) {
  const std::int64_t parts = std::max<std::int64_t>(ceil_div(whole, most), 1);
  return std::min(round_up(std::max<std::int64_t>(ceil_div(whole, parts), 1), step), most);
}

// A range of k of two panels fills L1; lines that a tile's rows evict come back from L2 in time.
std::int64_t depth_of(const DenseSize& size) {
  constexpr std::int64_t block_elements = 256;
  if (is_block(size.dtype)) return block_elements;
  constexpr std::int64_t step = 16;
  const std::int64_t fits = cache_sizes().level1 / (2 * panel_columns * float_bytes) / step * step;
  return even_part(size.inputs, std::clamp<std::int64_t>(fits, 128, max_depth), step);
}

struct Sizes {
  std::int64_t rows, sums, weights, columns;
};

// In floats, each a multiple of a cache line.
Sizes sizes_of(const DenseSize& size, const DenseBlocking& blocking, bool gathers) {
  return {blocking.copied / blocking.depth * blocking.rows * copy_step,
          blocking.panels * blocking.rows * panel_columns,
          size.dtype == DType::f32 ? 0 : 2 * max_depth * panel_columns,
          gathers ? blocking.gathered * (size.inputs + 1) * panel_columns : 0};
}

}  // namespace

DenseBlocking dense_blocking(const DenseSize& size) noexcept {
  DenseBlocking blocking{};
  blocking.depth = depth_of(size);
  // Copied rows take half of L2; whole rows where enough of them fit.
  const std::int64_t inputs = round_up(std::max<std::int64_t>(size.inputs, 1), blocking.depth);
  const std::int64_t half = cache_sizes().level2 / float_bytes / 2;
  blocking.rows = even_part(
      size.rows, std::clamp<std::int64_t>(half / inputs, 84, 168) / row_step * row_step, row_step);
  const std::int64_t fits = std::max(half / blocking.rows / blocking.depth, std::int64_t{1});
  blocking.copied = even_part(ceil_div(inputs, blocking.depth), fits, 1) * blocking.depth;
  // With several ranges of k, sums of many panels wait in memory for the next one; otherwise one
  // tile's panels are enough.
  const std::int64_t panels = ceil_div(size.outputs, panel_columns);
  blocking.panels = inputs <= blocking.copied ? 2 : even_part(panels, max_waiting_panels, 2);
  // Rows are copied once for each time that columns are gathered, few rows not at all: of a right operand in L2 they take
  // what stays in L1.
  constexpr std::int64_t max_gathered_bytes = 16 << 20;
  const std::int64_t panel_bytes = (size.inputs + 1) * panel_columns * float_bytes;
  const bool is_near = size.rows <= few_rows && panels * panel_bytes <= cache_sizes().level2;
  const std::int64_t gathered_bytes = is_near ? cache_sizes().level1 / 2 : max_gathered_bytes;
  blocking.gathered =
      std::min(round_up(std::max(gathered_bytes / panel_bytes, std::int64_t{1}), 2), panels);
  return blocking;
}

std::size_t dense_scratch_bytes(const DenseSize& size, bool gathers) noexcept {
  const Sizes sizes = sizes_of(size, dense_blocking(size), gathers);
  return static_cast<std::size_t>(sizes.rows + sizes.sums + sizes.weights + sizes.columns) *
         sizeof(float);
}

DenseScratch dense_scratch(const DenseSize& size, const DenseBlocking& blocking, bool gathers,
                           std::byte* memory) noexcept {
  const Sizes sizes = sizes_of(size, blocking, gathers);
  auto* floats = reinterpret_cast<float*>(memory);
  DenseScratch scratch{};
  scratch.rows = floats;
  scratch.sums = scratch.rows + sizes.rows;
  scratch.weights = scratch.sums + sizes.sums;
  scratch.columns = scratch.weights + sizes.weights;
  return scratch;
}

}  // namespace tenon::cpu
