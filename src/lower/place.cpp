#include "lower/flat.hpp"

#include <algorithm>
#include <vector>

namespace tenon::lowering {

namespace {
constexpr std::int64_t slab_alignment = 64;
}

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
  std::vector<const Storage*> placed;  // by offset
  for (Storage* storage : order) {
    std::int64_t offset = 0;
    for (const Storage* other : placed) {
      if (other->end < storage->begin || storage->end < other->begin) continue;
      if (offset + storage->bytes <= other->slab_offset) break;
      const std::int64_t after = other->slab_offset + other->bytes;
      offset = std::max(offset, (after + slab_alignment - 1) / slab_alignment * slab_alignment);
    }
    storage->slab_offset = offset;
    slab = std::max(slab, offset + storage->bytes);
    const auto position = std::ranges::upper_bound(placed, offset, {}, &Storage::slab_offset);
    placed.insert(position, storage);
  }
  return slab;
}

}  // namespace tenon::lowering
