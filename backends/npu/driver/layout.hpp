// Where everything lies for the device: constants in their segment, feature maps in DDR or on chip.
#pragma once

#include "bound_graph.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon::npu {

inline constexpr std::int64_t line_bytes = 32;

/// A feature map: [block][pixel][c] bytes, c = 2^log2c. Dense, so that a run of pixels of a block
/// is a run of bytes.
struct MapPlace {
  enum class Where : std::uint8_t { nowhere, ftmp, weight, ocm };
  Where where = Where::nowhere;
  std::int64_t offset = 0;  ///< bytes from the begin of the segment or of OCM
  unsigned log2c = 5;
};

/// Bytes of a map in that layout.
std::int64_t map_bytes(const Dims& dims, unsigned log2c) noexcept;

/// Constants of one layer, in the segment `weight`.
struct LayerConstants {
  std::int64_t weights = 0;      ///< offset
  std::int64_t block_bytes = 0;  ///< from one block of 32 output channels to the next
  std::int64_t records = 0;
  std::int64_t scales = -1;          ///< edges: an f32 factor per channel; -1: one for all
  std::vector<std::int64_t> tables;  ///< per post; -1: none
};

/// The bytes of the segment `weight` and what lies where in it.
struct WeightImage {
  std::vector<std::byte> bytes;
  std::vector<LayerConstants> layers;
};

/// Chooses the channels per pixel of each map, packs weights, records, tables and constant maps;
/// gives constant maps their places.
WeightImage make_weight_image(const BoundGraph& bound, std::vector<MapPlace>& places);

}  // namespace tenon::npu
