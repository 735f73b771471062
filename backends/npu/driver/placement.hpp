// Which feature maps stay on chip, and where.
#pragma once

#include "layout.hpp"

#include <tenon/npu/placement.hpp>

#include <cstdint>
#include <vector>

namespace tenon::npu {

/// When a map lives: from the layer that makes it to the last that reads it.
struct Lifetime {
  int first = -1;
  int last = -1;
};
std::vector<Lifetime> lifetimes(const Graph& graph);

/// Begins that put items of these sizes and lifetimes into [begin, begin + capacity) so that none
/// that live at once overlap; -1 for those without room. Items come in order of importance.
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
