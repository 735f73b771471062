#pragma once

#include "base/work_queue.hpp"

#include <tenon/device.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/memory.hpp>

#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

namespace tenon {

/// The table of a region's chunks. Lives as long as the region or one of its chunks.
struct MemRegion::Ledger {
  struct Record {
    MemPtr begin;
    std::uint64_t size;
    ChunkDeleter deleter;
    bool auto_free;
    bool placed;
    std::uint64_t generation;
    // Expired: a chunk without auto_free that has no handles.
    std::weak_ptr<MemChunk::Node> node;
  };

  /// Keys: whether the memory is wrapped, then the address. Chunks of the region never overlap, so
  /// that adjacent entries decide about overlaps; wrapped ones may, and are kept apart.
  using Key = std::pair<bool, std::uint64_t>;
  using Table = std::multimap<Key, Record>;

  static Key key(bool wrapped, const MemPtr& begin) {
    return {wrapped,
            begin.has_addr() ? begin.addr() : reinterpret_cast<std::uintptr_t>(begin.cptr())};
  }

  /// Any chunk of the region's own that shares a byte with [begin, begin + size); under the mutex.
  Table::iterator find_overlap(std::uint64_t begin, std::uint64_t size) {
    auto next = table.lower_bound(Key{false, begin});
    if (next != table.end() && !next->first.first && next->first.second - begin < size) return next;
    if (next == table.begin()) return table.end();
    const auto previous = std::prev(next);
    return begin - previous->first.second < previous->second.size ? previous : table.end();
  }

  std::shared_ptr<MemChunk::Node> node_of(Table::iterator record, const DevicePtr& device) const;

  ForkLockedMutex mutex;
  MemRegion* region = nullptr;  // null once the region is gone
  Table table;
  std::uint64_t used_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t generations = 0;

  WorkQueue incoming{"Buffer"}, outgoing{"Buffer"};  // copies into the region, and to CPU memory
};

/// What the handles of one chunk share. begin and size repeat the record, to be read without the
/// lock.
struct MemChunk::Node {
  Node(std::shared_ptr<MemRegion::Ledger> chunk_ledger, DevicePtr chunk_device,
       MemRegion::Ledger::Table::iterator chunk_record)
      : ledger(std::move(chunk_ledger)),
        device(std::move(chunk_device)),
        record(chunk_record),
        begin(chunk_record->second.begin),
        size(chunk_record->second.size),
        auto_free(chunk_record->second.auto_free),
        placed(chunk_record->second.placed),
        generation(chunk_record->second.generation) {}
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Removes the record from the ledger, then frees the memory: in the opposite order, the same
  /// address could be allocated and recorded twice. The caller has set `freed`.
  void give_back();

  std::shared_ptr<MemRegion::Ledger> ledger;
  DevicePtr device;  // keeps the region; null for regions of no shared device
  MemRegion::Ledger::Table::iterator record;  // invalid once freed
  MemPtr begin;
  std::uint64_t size;
  std::atomic<long> submitted{0};  // handles that SubmittedHandles counted
  bool auto_free;
  bool placed;
  std::uint64_t generation;
  std::atomic<bool> freed{false};
};

}  // namespace tenon
