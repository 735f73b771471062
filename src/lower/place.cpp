#include "lower/flat.hpp"

#include <algorithm>
#include <vector>

namespace tenon::lowering {

namespace {

constexpr std::int64_t slab_alignment = 64;

/// A placed storage: what the search reads, and no more, as it reads thousands of them per storage.
struct Placed {
  std::int64_t offset, after;  // its bytes, and where the next storage may begin
  std::int64_t begin, end;     // its live range
};

}  // namespace

// Greedy by size: the largest storage first, each at the lowest offset without an overlap with
// storages whose live ranges overlap (Pisarchyk and Lee, "Efficient Memory Management for Deep
// Neural Net Inference", 2020, section 5.2).
std::int64_t place_storages(Flat& flat) {
  std::vector<Storage*> order;
  for (Storage& storage : flat.storages) {
    if (storage.merged_into == no_storage && storage.kind == Place::Kind::slab &&
        storage.bytes > 0) {
      order.push_back(&storage);
    }
  }
  std::ranges::sort(order, [](const Storage* a, const Storage* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->begin < b->begin;
  });

  std::int64_t slab = 0;
  std::vector<Placed> placed;  // by offset
  for (Storage* storage : order) {
    const std::int64_t bytes = storage->bytes, begin = storage->begin, end = storage->end;
    std::int64_t offset = 0;
    for (const Placed& other : placed) {
      if (checked_add(offset, bytes) <= other.offset) break;
      if (other.end < begin || end < other.begin) continue;
      offset = std::max(offset, other.after);
    }
    storage->slab_offset = offset;
    const std::int64_t last = checked_add(offset, bytes);
    slab = std::max(slab, last);
    const std::int64_t after =
        checked_add(last, slab_alignment - 1) / slab_alignment * slab_alignment;
    const auto position = std::ranges::upper_bound(placed, offset, {}, &Placed::offset);
    placed.insert(position, {offset, after, begin, end});
  }
  return slab;
}

}  // namespace tenon::lowering
