#pragma once

#include <cstdint>
#include <string_view>

namespace tenon::npu {

/// How the compiler chooses the feature maps that stay on chip.
enum class Placement : std::uint8_t {
  none,    ///< all in external memory
  global,  ///< by the bytes they save, over the whole network at once
  dp,      ///< the set that saves the most, by dynamic programming along the layers
  evict,   ///< as they come; when room runs out the one needed longest goes to external memory
  best,    ///< each of these with several sizes of work memory; the fewest predicted cycles win
};

/// "none", "global", "dp", "evict", "best".
std::string_view to_string(Placement placement) noexcept;

}  // namespace tenon::npu
