#pragma once

#include <tenon/lowered.hpp>

namespace tenon {

/// What one run of a step that is not a loop reads, writes and computes, as the program defines it:
/// without a backend's merging and additional copies. NaN where it depends on data.
struct Cost {
  double bytes = 0;  ///< read and written
  double flops = 0;  ///< multiplications and additions
};
Cost cost_of(const Step& step);

}  // namespace tenon
