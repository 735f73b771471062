#include "layer_emitter.hpp"

#include <algorithm>

#include <npu/isa/integer_math.hpp>

namespace tenon::npu {
namespace {

using std::int64_t;

constexpr int64_t max_row_bytes = 1 << 20;  // of LOAD

}  // namespace

void LayerEmitter::load(std::uint32_t segment, int64_t offset, int64_t to, int64_t rows,
                        int64_t row_bytes, int64_t ddr_stride, int64_t ocm_stride) {
  isa::Load load;
  load.segment = segment;
  if (rows == 1) ddr_stride = ocm_stride = 0;
  load.offset = u32(offset);
  load.ocm_addr = u32(to);
  load.rows = u32(rows);
  load.row_bytes = u32(row_bytes);
  load.ddr_stride = u32(ddr_stride);
  load.ocm_stride = u32(ocm_stride);
  add(load);
}

void LayerEmitter::load_constant(int64_t offset, int64_t to, int64_t rows, int64_t row_bytes,
                                 int64_t ddr_stride) {
  load(static_cast<std::uint32_t>(isa::Segment::weight), offset, to, rows, row_bytes, ddr_stride,
       row_bytes);
}

/// Pixels [p0, p0 + count) of blocks [b0, b1) of a map with whole lines.
TileRef LayerEmitter::map_ref(MapId id, TileBuffers& buffers, int64_t p0, int64_t count, int64_t b0,
                              int64_t b1) {
  const MapPlace& from = place(id);
  const int64_t total = context_.bound.graph.map(id).dims.pixels();
  const int64_t offset = from.offset + (b0 * total + p0) * line_bytes;
  if (from.where == MapPlace::Where::ocm) return {offset, total};
  const auto found = buffers.find({p0, count, b0, b1, 0, 0});
  if (!found.loaded) {
    load(segment_of(id), offset, found.address, b1 - b0, count * line_bytes, total * line_bytes,
         count * line_bytes);
  }
  return {found.address, count};
}

/// The part of the input that a tile reads, of its blocks [k0, k1).
LayerEmitter::InputRef LayerEmitter::input_ref(const Tile& tile, int64_t k0, int64_t k1) {
  InputRef ref;
  ref.rows = shape_.input_rows(tile.y0, tile.y1);
  const Dims& in = shape_.in;
  const int64_t c = int64_t{1} << shape_.log2c;
  const int64_t row_pixels = (ref.rows.last - ref.rows.first) * in.w;
  const int64_t first = (tile.n0 * in.h + ref.rows.first) * in.w;
  if (c == block_channels) {
    const bool loads = !is_on_chip(layer_.input);
    static_cast<TileRef&>(ref) =
        map_ref(layer_.input, input_, first, tile.images() * row_pixels, k0, k1);
    ref.image_bytes = (loads ? row_pixels : in.h * in.w) * line_bytes;
    return ref;
  }
  // Narrow pixels: one block, each image on a line of its own.
  const int64_t bytes = row_pixels * c;
  ref.image_bytes = round_up(bytes, line_bytes);
  ref.stride = ref.image_bytes / c;
  const auto found = input_.find({tile.n0, tile.n1, ref.rows.first, ref.rows.last, 0, 0});
  ref.address = found.address;
  if (!found.loaded) {
    load(segment_of(layer_.input), place(layer_.input).offset + first * c, found.address,
         tile.images(), bytes, in.h * in.w * c, ref.image_bytes);
  }
  return ref;
}

/// The flattened image of a tile, or its pixels that parts [k0, k1) of the sum read.
LayerEmitter::InputRef LayerEmitter::flattened_ref(const Tile& tile, int64_t k0, int64_t k1) {
  if (!tiling_.cuts_input) return input_ref(tile, 0, shape_.in_blocks);
  InputRef ref;
  ref.first_pixel = k0 / shape_.in_blocks;
  const int64_t end = (k1 + shape_.in_blocks - 1) / shape_.in_blocks;
  static_cast<TileRef&>(ref) =
      map_ref(layer_.input, input_, tile.n0 * shape_.taps + ref.first_pixel, end - ref.first_pixel,
              0, shape_.in_blocks);
  return ref;
}

LayerEmitter::WeightRef LayerEmitter::weight_ref(const Tile& tile, int64_t k0, int64_t k1) {
  const int64_t c = int64_t{1} << shape_.log2c;
  const int64_t depth = shape_.is_channelwise() ? 1 : (k1 - k0) * c;
  const int64_t lines = depth * (shape_.is_flattened() ? 1 : shape_.taps);
  const int64_t block_bytes = lines * line_bytes;
  const auto found = weights_.find({tile.b0, tile.b1, k0, k1, 0, 0});
  const WeightRef ref{found.address, lines};
  if (found.loaded) return ref;
  const int64_t from = constants_.weights + tile.b0 * constants_.block_bytes;
  if (block_bytes == constants_.block_bytes && tile.blocks() * block_bytes <= max_row_bytes) {
    load_constant(from, found.address, 1, tile.blocks() * block_bytes, 0);
  } else {
    load_constant(from + k0 * c * (lines / depth) * line_bytes, found.address, tile.blocks(),
                  block_bytes, constants_.block_bytes);
  }
  return ref;
}

std::uint32_t LayerEmitter::record_line(const Tile& tile) {
  const auto found = records_.find({tile.b0, tile.b1, 0, 0, 0, 0});
  if (!found.loaded) {
    isa::LoadP load;
    load.segment = static_cast<std::uint32_t>(isa::Segment::weight);
    load.offset = u32(constants_.records + tile.b0 * block_channels * 8);
    load.ocm_line = u32(found.address / line_bytes);
    load.count = u32(channels(tile));
    add(load);
  }
  return u32(found.address / line_bytes);
}

void LayerEmitter::load_tables() {
  int64_t next = tables_;
  for (std::size_t i = 0; i < layer_.posts.size(); ++i) {
    table_lines_.push_back(u32(next / line_bytes));
    if (layer_.posts[i].kind != Post::Kind::lut) continue;
    load_constant(constants_.tables[i], next, 1, 256, 0);
    next += 256;
  }
}

}  // namespace tenon::npu
