#pragma once

#include <tenon/lowered.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::cpu {

/// Has runs of steps on batches of large images done image by image: what one step writes is then
/// still in the caches when the next one reads it. Values that nothing but such a run reads move to
/// memory for a single image (Place::Kind::shared_scratch), which each image writes over. Steps
/// whose filters outweigh their images stay as they are, since they would read these again for
/// every image.
///
/// `leaves` are what others read afterwards (see trace_values). Takes that memory from byte `first`
/// on, and returns where it ends.
std::int64_t split_batches(std::vector<Step>& steps, std::span<const Operand> leaves,
                           std::int64_t first);

}  // namespace tenon::cpu
