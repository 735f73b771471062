// The state of emit_layer, split by concern: loads in emit_loads.cpp, the main operation in
// emit_main.cpp, what is fused behind it in emit_posts.cpp, the walk over tiles in emit_layer.cpp.
#pragma once

#include "elementwise_blocks.hpp"
#include "emit.hpp"
#include "tile_buffers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon::npu {

class LayerEmitter {
 public:
  LayerEmitter(const EmitContext& context, std::size_t index, Instructions& out);

  void emit();

 private:
  struct InputRef : TileRef {
    std::int64_t image_bytes = 0;  // from image to image
    std::int64_t first_pixel = 0;  // of a flattened image
    InputRows rows;
  };
  struct WeightRef {
    std::int64_t address;
    std::int64_t block_lines;  // from block of outputs to the next
  };

  // emit_layer.cpp
  void emit_tile(const Tile& tile);
  TileRef output_ref(const Tile& tile);
  void emit_store(const Tile& tile, const TileRef& from);

  // emit_loads.cpp
  void load(std::uint32_t segment, std::int64_t offset, std::int64_t to, std::int64_t rows,
            std::int64_t row_bytes, std::int64_t ddr_stride, std::int64_t ocm_stride);
  void load_constant(std::int64_t offset, std::int64_t to, std::int64_t rows,
                     std::int64_t row_bytes, std::int64_t ddr_stride);
  void load_tables();
  TileRef map_ref(MapId id, TileBuffers& buffers, std::int64_t p0, std::int64_t count,
                  std::int64_t b0, std::int64_t b1);
  InputRef input_ref(const Tile& tile, std::int64_t k0, std::int64_t k1);
  InputRef flattened_ref(const Tile& tile, std::int64_t k0, std::int64_t k1);
  WeightRef weight_ref(const Tile& tile, std::int64_t k0, std::int64_t k1);
  std::uint32_t record_line(const Tile& tile);

  // emit_main.cpp
  void emit_sums(const Tile& tile);
  void emit_conv(const Tile& tile, const InputRef& in, const WeightRef& weights, std::int64_t k0,
                 std::int64_t k1);
  void emit_linear(const Tile& tile, const InputRef& in, const WeightRef& weights, std::int64_t k0,
                   std::int64_t k1);
  void emit_matmul(const Tile& tile, const InputRef& in, std::int64_t k0, std::int64_t k1);
  void emit_depthwise(const Tile& tile);
  void emit_pool(const Tile& tile, const TileRef& out);
  void emit_requant(const Tile& tile, const TileRef& out);

  // emit_posts.cpp
  void emit_post(const Tile& tile, std::size_t index, std::size_t& other, const TileRef& a,
                 const TileRef& out);
  void emit_blocks(const Tile& tile, const isa::Elementwise& ew, const TileRef& a, const TileRef& b,
                   std::int64_t b_blocks, std::int64_t b_pixels, const TileRef& out,
                   std::int64_t first, std::int64_t count);

  template <class Instruction>
  void add(Instruction instruction) {
    instruction.layer = number_;
    out_.push_back(instruction);
  }

  const MapPlace& place(MapId id) const { return context_.places[static_cast<std::size_t>(id)]; }
  bool is_on_chip(MapId id) const { return place(id).where == MapPlace::Where::ocm; }
  std::uint32_t segment_of(MapId id) const {
    return static_cast<std::uint32_t>(
        place(id).where == MapPlace::Where::weight ? isa::Segment::weight : isa::Segment::ftmp);
  }
  std::int64_t first_pixel(const Tile& tile) const {
    return (tile.n0 * shape_.out.h + tile.y0) * shape_.out.w;
  }
  std::int64_t pixels(const Tile& tile) const { return tile.images() * tile.rows() * shape_.out.w; }
  std::int64_t channels(const Tile& tile) const {
    return std::min(shape_.out.c, tile.b1 * block_channels) - tile.b0 * block_channels;
  }

  const EmitContext& context_;
  const Layer& layer_;
  const BoundLayer& bound_;
  const LayerConstants& constants_;
  std::uint16_t number_;
  LayerShape shape_;
  Tiling tiling_;
  Instructions& out_;
  TileBuffers input_, weights_, records_, output_;
  std::vector<TileBuffers> others_;
  std::vector<std::uint32_t> table_lines_;
  std::int64_t tables_ = 0;
  std::int64_t serial_ = 0;
};

}  // namespace tenon::npu
