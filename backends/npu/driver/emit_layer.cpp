#include "emit.hpp"
#include "layer_emitter.hpp"

#include <algorithm>

namespace tenon::npu {

using std::int64_t;

LayerEmitter::LayerEmitter(const EmitContext& context, std::size_t index, Instructions& out)
    : context_(context),
      layer_(context.bound.graph.layers[index]),
      bound_(context.bound.layers[index]),
      constants_(context.image.layers[index]),
      number_(static_cast<std::uint16_t>(index)),
      shape_(context.bound.graph, context.places, index),
      tiling_(choose_tiling(shape_, context.caps, context.work.size)),
      out_(out) {
  int64_t next = context.work.begin;
  input_ = TileBuffers(next, tiling_.input_bytes, tiling_.buffers);
  weights_ = TileBuffers(next, tiling_.weight_bytes, tiling_.buffers);
  records_ = TileBuffers(next, tiling_.record_bytes, tiling_.buffers);
  output_ = TileBuffers(next, tiling_.output_bytes, tiling_.buffers);
  for (const int64_t bytes : tiling_.other_bytes) {
    others_.emplace_back(next, bytes, tiling_.buffers);
  }
  tables_ = next;
}

void LayerEmitter::emit() {
  load_tables();
  const std::vector<Tile> pixels = pixel_tiles(shape_, tiling_);
  const auto with_blocks = [&](Tile tile, int64_t b0) {
    tile.b0 = b0;
    tile.b1 = std::min(b0 + tiling_.out_blocks, shape_.out_blocks);
    emit_tile(tile);
  };
  if (tiling_.blocks_outer) {
    for (int64_t b0 = 0; b0 < shape_.out_blocks; b0 += tiling_.out_blocks) {
      for (const Tile& tile : pixels) with_blocks(tile, b0);
    }
  } else {
    for (const Tile& tile : pixels) {
      for (int64_t b0 = 0; b0 < shape_.out_blocks; b0 += tiling_.out_blocks) {
        with_blocks(tile, b0);
      }
    }
  }
}

void LayerEmitter::emit_tile(const Tile& tile) {
  const TileRef out = output_ref(tile);
  TileRef made = out;
  switch (layer_.kind) {
    case Layer::Kind::conv:
    case Layer::Kind::linear:
    case Layer::Kind::matmul:
      emit_sums(tile);
      emit_requant(tile, out);
      break;
    case Layer::Kind::depthwise:
      emit_depthwise(tile);
      emit_requant(tile, out);
      break;
    case Layer::Kind::max_pool:
    case Layer::Kind::sum_pool:
      emit_pool(tile, out);
      break;
    default:
      made = input_ref(tile, tile.b0, tile.b1);
      break;
  }
  std::size_t other = 0;
  for (std::size_t i = 0; i < layer_.posts.size(); ++i) {
    emit_post(tile, i, other, made, out);
    made = out;
  }
  if (!is_on_chip(layer_.output)) emit_store(tile, out);
}

TileRef LayerEmitter::output_ref(const Tile& tile) {
  if (!is_on_chip(layer_.output)) {
    return {output_.find({first_pixel(tile), tile.b0, ++serial_, 0, 0, 0}).address, pixels(tile)};
  }
  const int64_t line = (layer_.first_block + tile.b0) * shape_.total_pixels + first_pixel(tile);
  return {place(layer_.output).offset + line * line_bytes, shape_.total_pixels};
}

void LayerEmitter::emit_store(const Tile& tile, const TileRef& from) {
  isa::Store store;
  const int64_t row_bytes = pixels(tile) * line_bytes;
  store.segment = static_cast<std::uint32_t>(isa::Segment::ftmp);
  store.offset =
      u32(place(layer_.output).offset +
          ((layer_.first_block + tile.b0) * shape_.total_pixels + first_pixel(tile)) * line_bytes);
  store.ocm_addr = u32(from.address);
  store.rows = u32(tile.blocks());
  store.row_bytes = u32(row_bytes);
  if (tile.blocks() > 1) {
    store.ddr_stride = u32(shape_.total_pixels * line_bytes);
    store.ocm_stride = u32(from.stride * line_bytes);
  }
  add(store);
}

void emit_layer(const EmitContext& context, std::size_t layer, Instructions& out) {
  LayerEmitter(context, layer, out).emit();
}

}  // namespace tenon::npu
