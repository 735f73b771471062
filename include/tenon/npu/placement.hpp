#pragma once

#include <cstdint>
#include <string_view>

namespace tenon::npu {

/// How the compiler chooses the feature maps that are kept in on-chip memory.
enum class Placement : std::uint8_t {
  none,    ///< all in external memory
  global,  ///< greedily by the bytes they save, over the whole network
  dp,      ///< the set that saves the most bytes, by dynamic programming along the layers
  evict,   ///< in layer order; without room the one used last in time moves to external memory
  best,    ///< tries all of these with several sizes of work memory; fewest predicted cycles
};

/// "none", "global", "dp", "evict", "best".
std::string_view to_string(Placement placement) noexcept;

}  // namespace tenon::npu
