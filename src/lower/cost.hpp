// What a step reads, writes and computes.
#pragma once

#include <tenon/lowered.hpp>

namespace tenon {

/// Of one run of a step that is no loop, as the program has it: what a backend merges or copies
/// besides is not in it. NaN where data decides.
struct Cost {
  double bytes = 0;  ///< read and written
  double flops = 0;  ///< multiplications and additions
};
Cost cost_of(const Step& step);

}  // namespace tenon
