// Which feature maps stay on chip, and where.
#pragma once

#include "layout.hpp"

#include <tenon/npu/placement.hpp>

#include <cstdint>
#include <vector>

namespace tenon::npu {

/// The live range of a map: from the layer that writes it to the last that reads it.
struct Lifetime {
  int first = -1;
  int last = -1;
};
std::vector<Lifetime> lifetimes(const Graph& graph);

/// Assigns offsets in [begin, begin + capacity) to items with sizes and live ranges, such that
/// items that are live at the same time do not overlap; -1 for those that do not fit. Items are in
/// order of priority.
struct PlacedItem {
  std::int64_t bytes = 0;
  Lifetime life;
  std::int64_t begin = -1;
};
void place_items(std::vector<PlacedItem>& items, std::int64_t begin, std::int64_t capacity);

/// Sets `where` and `offset` of every map but constants: on chip in [begin, begin + capacity) as
/// the strategy decides, the others in the segment ftmp. Returns the bytes of ftmp. `strategy` is
/// not Placement::best.
std::int64_t place_maps(const Graph& graph, Placement strategy, std::int64_t begin,
                        std::int64_t capacity, std::vector<MapPlace>& places);

}  // namespace tenon::npu
