#include "tiling.hpp"

#include <tenon/error.hpp>
#include <tenon/npu/isa/instruction.hpp>

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <npu/isa/integer_math.hpp>

namespace tenon::npu {
namespace {

constexpr std::int64_t max_tile_pixels = 16384;  // columns of EW
constexpr std::int64_t max_row_bytes = 1 << 20;  // of LOAD and STORE
constexpr std::int64_t max_weight_block = 1 << 19;

std::int64_t whole_lines(std::int64_t bytes) { return round_up(bytes, line_bytes); }

/// n, then its halves rounded up, down to 1.
std::vector<std::int64_t> halvings(std::int64_t n) {
  std::vector<std::int64_t> result;
  for (; n > 1; n = ceil_div(n, 2)) result.push_back(n);
  result.push_back(1);
  return result;
}

/// Most input rows that `rows` output rows read.
std::int64_t input_rows_of(const LayerShape& shape, std::int64_t rows) {
  const Window& window = shape.layer->window;
  const std::int64_t need =
      (rows - 1) * window.stride_h + (window.kernel_h - 1) * window.dilation_h + 1;
  return std::min(need, shape.in.h);
}

/// Blocks of the input in one buffer.
std::int64_t input_blocks(const LayerShape& shape, const Tiling& tiling) {
  if (shape.is_channelwise()) return tiling.out_blocks;
  return shape.is_flattened() ? shape.in_blocks : tiling.sum_parts;
}

/// Most pixels of a flattened image that one step of the sum reads.
std::int64_t pixels_of_step(const LayerShape& shape, const Tiling& tiling) {
  const std::int64_t whole = tiling.sum_parts / shape.in_blocks;
  const bool aligned = tiling.sum_parts % shape.in_blocks == 0;
  return std::min(aligned ? whole : whole + 2, shape.taps);
}

void set_bytes(const LayerShape& shape, Tiling& tiling) {
  const bool whole = tiling.rows == shape.out.h;
  const std::int64_t out_pixels = tiling.images * tiling.rows * shape.out.w;
  const bool windowed = shape.layer->kind != Layer::Kind::linear &&
                        shape.layer->kind != Layer::Kind::matmul &&
                        shape.layer->kind != Layer::Kind::move;
  const std::int64_t in_rows = !windowed ? (whole ? shape.in.h : tiling.rows)
                               : whole   ? shape.in.h
                                         : input_rows_of(shape, tiling.rows);
  const std::int64_t c = std::int64_t{1} << shape.log2c;
  const std::int64_t in_image = whole_lines(in_rows * shape.in.w * c);
  const std::int64_t tile_blocks = input_blocks(shape, tiling);
  tiling.input_bytes = shape.loads_input ? tile_blocks * tiling.images * in_image : 0;
  if (tiling.cuts_input) tiling.input_bytes = tile_blocks * pixels_of_step(shape, tiling) * c;
  if (shape.layer->kind == Layer::Kind::matmul) {
    const std::int64_t depth = std::min(tiling.sum_parts * block_channels, shape.in.c);
    tiling.weight_bytes = shape.loads_second ? tiling.out_blocks * depth * line_bytes : 0;
  } else if (shape.has_weights) {
    const std::int64_t depth = shape.is_channelwise() ? 1 : tiling.sum_parts * c;
    const std::int64_t taps = shape.is_flattened() ? 1 : shape.taps;
    tiling.weight_bytes = tiling.out_blocks * depth * taps * line_bytes;
  }
  tiling.record_bytes = shape.has_records ? tiling.out_blocks * block_channels * 8 : 0;
  tiling.output_bytes = shape.stores_output ? tiling.out_blocks * out_pixels * line_bytes : 0;
  tiling.other_bytes.clear();
  for (const LayerShape::Other& other : shape.others) {
    const std::int64_t pixels = other.spread == Post::Spread::same    ? out_pixels
                                : other.spread == Post::Spread::image ? tiling.images
                                                                      : 1;
    tiling.other_bytes.push_back(other.loaded ? tiling.out_blocks * pixels * line_bytes : 0);
  }
  tiling.table_bytes = shape.tables * 256;
}

bool fits_instructions(const LayerShape& shape, const Tiling& tiling, const isa::Caps& caps) {
  const std::int64_t pixels = tiling.images * tiling.rows * shape.out.w;
  const std::int64_t acc_rows = caps.acc_bytes / isa::acc_row_bytes;
  if (shape.has_records && pixels * tiling.out_blocks > acc_rows) return false;
  if (pixels > max_tile_pixels) return false;
  if (shape.loads_input && tiling.input_bytes / input_blocks(shape, tiling) >= max_row_bytes) {
    return false;
  }
  if (tiling.weight_bytes / tiling.out_blocks > max_weight_block) return false;
  // A sum of one instruction.
  if (shape.is_channelwise()) return true;
  const std::int64_t parts = shape.is_flattened() ? std::min(tiling.sum_parts, shape.in_blocks)
                                                  : tiling.sum_parts * shape.taps;
  return parts * (std::int64_t{1} << shape.log2c) <= isa::max_reduction;
}

void set_traffic(const LayerShape& shape, Tiling& tiling) {
  const std::int64_t pixel_tiles = ceil_div(shape.images, tiling.images) *
                                   (shape.out.n / shape.images) *
                                   ceil_div(shape.out.h, tiling.rows);
  const std::int64_t groups = ceil_div(shape.out_blocks, tiling.out_blocks);
  const std::int64_t steps = ceil_div(shape.sum_parts(), tiling.sum_parts);
  const std::int64_t input_steps = shape.is_flattened() && !tiling.cuts_input ? 1 : steps;
  const std::int64_t all_input =
      tiling.input_bytes * pixel_tiles * (shape.is_channelwise() ? groups : input_steps);
  const std::int64_t all_weights = tiling.weight_bytes * groups * steps;
  const std::int64_t repeats = shape.is_channelwise() ? 1 : groups;
  // With pixels as the outer loop, the input is loaded once where it stays on chip for all groups,
  // and weights again for every tile.
  const std::int64_t pixels_outer = all_input * (input_steps > 1 ? repeats : 1) +
                                    all_weights * (groups * steps > 1 ? pixel_tiles : 1);
  const std::int64_t blocks_outer =
      all_input * repeats + all_weights * (steps > 1 ? pixel_tiles : 1);
  tiling.blocks_outer = blocks_outer < pixels_outer;
  std::int64_t rest = tiling.output_bytes;
  for (const std::int64_t bytes : tiling.other_bytes) rest += bytes;
  tiling.ddr_bytes = std::min(blocks_outer, pixels_outer) + rest * pixel_tiles * groups;
}

struct Search {
  const LayerShape& shape;
  const isa::Caps& caps;
  std::int64_t work_bytes;
  std::optional<Tiling> best;

  // Prefers fewer bytes, then two buffers, then fewer tiles (larger ones are tried first).
  void consider(Tiling tiling) {
    set_bytes(shape, tiling);
    if (!fits_instructions(shape, tiling, caps)) return;
    set_traffic(shape, tiling);
    for (const std::int64_t buffers : {2, 1}) {
      tiling.buffers = buffers;
      if (tiling.work_bytes() > work_bytes) continue;
      if (!best || tiling.ddr_bytes < best->ddr_bytes ||
          (tiling.ddr_bytes == best->ddr_bytes && tiling.buffers > best->buffers)) {
        best = tiling;
      }
      return;
    }
  }

  void all() {
    for (const std::int64_t sum_parts : halvings(shape.sum_parts())) {
      for (const std::int64_t out_blocks : halvings(shape.out_blocks)) {
        Tiling tiling;
        tiling.sum_parts = sum_parts;
        tiling.out_blocks = out_blocks;
        tiling.rows = shape.out.h;
        for (const std::int64_t images : halvings(shape.images)) {
          tiling.images = images;
          consider(tiling);
        }
        tiling.images = 1;
        for (const std::int64_t rows : halvings(shape.out.h)) {
          tiling.rows = rows;
          consider(tiling);
        }
      }
    }
  }

  // A flattened image that is too large for one tile, one image at a time.
  void cut() {
    for (const std::int64_t sum_parts : halvings(shape.sum_parts())) {
      for (const std::int64_t out_blocks : halvings(shape.out_blocks)) {
        Tiling tiling;
        tiling.sum_parts = sum_parts;
        tiling.out_blocks = out_blocks;
        tiling.cuts_input = true;
        consider(tiling);
      }
    }
  }
};

}  // namespace

LayerShape::LayerShape(const Graph& graph, const std::vector<MapPlace>& places, std::size_t index)
    : layer(&graph.layers[index]) {
  const auto loaded = [&](MapId id) {
    return places[static_cast<std::size_t>(id)].where != MapPlace::Where::ocm;
  };
  in = graph.map(layer->input).dims;
  out = graph.map(layer->made).dims;
  log2c = places[static_cast<std::size_t>(layer->input)].log2c;
  in_blocks = ((in.c - 1) >> log2c) + 1;
  out_blocks = out.blocks();
  images = out.n / layer->batch;
  loads_input = loaded(layer->input);
  stores_output = loaded(layer->output);
  total_pixels = graph.map(layer->output).dims.pixels();
  switch (layer->kind) {
    case Layer::Kind::conv:
    case Layer::Kind::depthwise:
      taps = layer->window.kernel_h * layer->window.kernel_w;
      has_weights = has_records = true;
      break;
    case Layer::Kind::linear:
      taps = in.h * in.w;
      has_weights = has_records = true;
      break;
    case Layer::Kind::matmul:
      loads_second = loaded(layer->second);
      has_records = true;
      break;
    default:
      break;
  }
  for (const Post& post : layer->posts) {
    if (post.kind == Post::Kind::lut) ++tables;
    if (post.other != no_map) others.push_back({post.spread, loaded(post.other)});
  }
}

bool LayerShape::is_channelwise() const noexcept {
  return layer->kind == Layer::Kind::depthwise || layer->kind == Layer::Kind::max_pool ||
         layer->kind == Layer::Kind::sum_pool || layer->kind == Layer::Kind::move;
}

bool LayerShape::is_flattened() const noexcept {
  return layer->kind == Layer::Kind::linear && taps > 1;
}

std::int64_t LayerShape::sum_parts() const noexcept {
  return is_channelwise() ? 1 : is_flattened() ? taps * in_blocks : in_blocks;
}

InputRows LayerShape::input_rows(std::int64_t y0, std::int64_t y1) const noexcept {
  if (layer->kind == Layer::Kind::linear || layer->kind == Layer::Kind::matmul) return {0, in.h, 0};
  if (layer->kind == Layer::Kind::move) return {y0, y1, 0};
  const Window& window = layer->window;
  // Whole images are contiguous, so rows that no window needs are loaded, too.
  if (y0 == 0 && y1 == out.h) return {0, in.h, window.top};
  const std::int64_t begin = y0 * window.stride_h - window.top;
  const std::int64_t end =
      (y1 - 1) * window.stride_h - window.top + (window.kernel_h - 1) * window.dilation_h + 1;
  // Windows entirely in the padding still load one row.
  if (end <= 0) return {0, 1, -begin};
  if (begin >= in.h) return {in.h - 1, in.h, end - begin};
  InputRows rows{std::max<std::int64_t>(begin, 0), std::min(end, in.h), 0};
  rows.above = rows.first - begin;
  return rows;
}

std::int64_t Tiling::work_bytes() const noexcept {
  std::int64_t bytes = input_bytes + weight_bytes + record_bytes + output_bytes;
  for (const std::int64_t other : other_bytes) bytes += other;
  return bytes * buffers + table_bytes;
}

Tiling choose_tiling(const LayerShape& shape, const isa::Caps& caps, std::int64_t work_bytes) {
  Search search{shape, caps, work_bytes, std::nullopt};
  search.all();
  if (!search.best && shape.is_flattened() && shape.loads_input) search.cut();
  if (!search.best) {
    throw Error(
        Errc::out_of_device_memory, shape.layer->values.front(),
        fmt::format("its smallest tile needs {} bytes on chip and {} are left for it, or it "
                    "exceeds the {} bytes of accumulators",
                    min_work_bytes(shape, true), work_bytes, caps.acc_bytes));
  }
  return *search.best;
}

std::vector<Tile> pixel_tiles(const LayerShape& shape, const Tiling& tiling) {
  std::vector<Tile> tiles;
  for (std::int64_t batch = 0; batch < shape.out.n; batch += shape.images) {
    const std::int64_t end = batch + shape.images;
    for (std::int64_t n = batch; n < end; n += tiling.images) {
      for (std::int64_t y = 0; y < shape.out.h; y += tiling.rows) {
        Tile tile;
        tile.n0 = n;
        tile.n1 = std::min(n + tiling.images, end);
        tile.y0 = y;
        tile.y1 = std::min(y + tiling.rows, shape.out.h);
        tiles.push_back(tile);
      }
    }
  }
  return tiles;
}

std::int64_t min_work_bytes(const LayerShape& shape, bool cut) {
  Tiling tiling;
  tiling.cuts_input = cut && shape.is_flattened() && shape.loads_input;
  tiling.buffers = 1;
  set_bytes(shape, tiling);
  return tiling.work_bytes();
}

}  // namespace tenon::npu
