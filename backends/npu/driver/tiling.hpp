// How a layer is cut into tiles that fit on chip.
#pragma once

#include "layout.hpp"

#include <tenon/npu/isa/caps.hpp>

#include <cstdint>
#include <vector>

namespace tenon::npu {

/// A part of a layer's output: images [n0, n1), rows [y0, y1) of each, blocks of channels [b0, b1).
/// More than one image only when all rows are in.
struct Tile {
  std::int64_t n0 = 0, n1 = 0, y0 = 0, y1 = 0, b0 = 0, b1 = 0;

  std::int64_t images() const noexcept { return n1 - n0; }
  std::int64_t rows() const noexcept { return y1 - y0; }
  std::int64_t blocks() const noexcept { return b1 - b0; }
};

/// Rows of the input [first, last) that rows of the output need, and how far the first window
/// begins above them.
struct InputRows {
  std::int64_t first = 0, last = 0, above = 0;
};

/// What tiling needs to know of a layer: sizes, and what need not be loaded or stored.
class LayerShape {
 public:
  LayerShape(const Graph& graph, const std::vector<MapPlace>& places, std::size_t layer);

  InputRows input_rows(std::int64_t y0, std::int64_t y1) const noexcept;
  /// Whether output blocks read the input blocks of the same number only.
  bool is_channelwise() const noexcept;
  /// Whether every step of the sum needs all of the input: an image flattened to a row, whose sum
  /// goes pixel by pixel and is cut in its weights only.
  bool is_flattened() const noexcept;
  /// Parts that the sum over inputs may be cut into: blocks of channels, of each pixel when
  /// flattened.
  std::int64_t sum_parts() const noexcept;

  const Layer* layer = nullptr;
  Dims in, out;                   ///< of what the main operation reads and makes
  std::int64_t total_pixels = 0;  ///< of the output map
  unsigned log2c = 5;             ///< of the input
  std::int64_t in_blocks = 0;     ///< blocks of 2^log2c channels
  std::int64_t out_blocks = 0;
  std::int64_t taps = 1;    ///< multiplications per input channel
  std::int64_t images = 1;  ///< that may share a tile: all, or one matrix of a batched matmul
  bool loads_input = false, loads_second = false, stores_output = false;
  struct Other {
    Post::Spread spread;
    bool loaded;
  };
  std::vector<Other> others;  ///< per post with a second operand
  int tables = 0;
  bool has_weights = false, has_records = false;
};

struct Tiling {
  std::int64_t images = 1;      ///< per tile
  std::int64_t rows = 1;        ///< per tile; all of them when images > 1
  std::int64_t out_blocks = 1;  ///< per tile
  std::int64_t sum_parts = 1;   ///< per step of the sum; LayerShape::sum_parts()
  bool blocks_outer = false;    ///< loop order: all pixels before the next blocks
  /// Of a flattened image: each step of the sum loads its own pixels, since all do not fit.
  bool cuts_input = false;
  std::int64_t buffers = 2;  ///< of each kind: 2 lets loads run ahead
  // Bytes of one buffer of each kind; 0 where there is none.
  std::int64_t input_bytes = 0, weight_bytes = 0, record_bytes = 0, output_bytes = 0;
  std::vector<std::int64_t> other_bytes;
  std::int64_t table_bytes = 0;
  std::int64_t ddr_bytes = 0;  ///< predicted loads and stores

  std::int64_t work_bytes() const noexcept;
};

/// The tiling with the least traffic whose buffers fit into `work_bytes` of OCM and ACC. Two
/// buffers of each kind where they fit. Errc::out_of_device_memory naming the layer's value when
/// even the smallest tile does not fit.
Tiling choose_tiling(const LayerShape& shape, const isa::Caps& caps, std::int64_t work_bytes);

/// The tiles of a layer without their blocks of channels; those of a batched matmul matrix by
/// matrix.
std::vector<Tile> pixel_tiles(const LayerShape& shape, const Tiling& tiling);

/// OCM that the smallest tile of the layer needs; a flattened image whole, or cut.
std::int64_t min_work_bytes(const LayerShape& shape, bool cut = false);

}  // namespace tenon::npu
