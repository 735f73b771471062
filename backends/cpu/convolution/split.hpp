#pragma once

#include <tenon/lowered.hpp>

#include <vector>

namespace tenon::cpu {

/// Has runs of steps on batches of large images done image by image: what one step writes is then
/// still in the caches when the next one reads it. Steps whose filters outweigh their images stay
/// as they are, since they would read these again for every image.
void split_batches(std::vector<Step>& steps);

}  // namespace tenon::cpu
