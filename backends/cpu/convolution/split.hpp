#pragma once

#include <tenon/lowered.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::cpu {

/// Makes runs of steps on large batches of images process a part of the batch at a time, down to one
/// image: what one step writes is then still in cache when the next one reads it. Values that only
/// such a run reads move to memory for one part (Place::Kind::shared_scratch), which every part
/// reuses. Steps whose filters are larger than their images stay as they are, since they would read
/// the filters again for every part.
///
/// `leaves` are what others read afterwards (see trace_values). Takes that memory from byte `first`
/// on, and returns where it ends.
std::int64_t split_batches(std::vector<Step>& steps, std::span<const Operand> leaves,
                           std::int64_t first);

}  // namespace tenon::cpu
