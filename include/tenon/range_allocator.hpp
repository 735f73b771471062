#pragma once

#include <tenon/fork_locked_mutex.hpp>
#include <tenon/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace tenon {

/// Allocates address ranges of [base, base + size) without accessing that memory: the allocator of
/// a device's regions. Best fit: a request takes the smallest hole that is large enough, among
/// equals the one at the lowest address, so that a sequence of calls gives the same addresses on
/// every run. Thread-safe.
class RangeAllocator {
 public:
  struct Options {
    std::string name = "RangeAllocator";  ///< the location that errors name
    /// Bytes kept free on both sides of each allocated block (not of reservations), to detect
    /// writes past its ends; see MemRegion::redzone_bytes().
    std::uint64_t redzone_bytes = 0;
  };
  using Usage = MemRegion::Usage;

  /// Errc::bad_argument when the range is empty, ends beyond 2^64 - 1, or is too small for
  /// redzones.
  RangeAllocator(std::uint64_t base, std::uint64_t size) : RangeAllocator(base, size, Options{}) {}
  RangeAllocator(std::uint64_t base, std::uint64_t size, Options options);
  RangeAllocator(const RangeAllocator&) = delete;
  RangeAllocator& operator=(const RangeAllocator&) = delete;

  std::uint64_t base() const noexcept { return base_; }
  std::uint64_t size_bytes() const noexcept { return size_; }
  std::uint64_t redzone_bytes() const noexcept { return options_.redzone_bytes; }

  /// Allocates a block and returns its first address. Errc::bad_argument for size 0 or an alignment
  /// that is not a power of two. Without a large enough hole, allocate() throws
  /// Errc::out_of_device_memory, and try_allocate() returns nothing.
  std::uint64_t allocate(std::uint64_t size, std::uint64_t alignment = 64);
  std::optional<std::uint64_t> try_allocate(std::uint64_t size, std::uint64_t alignment = 64);

  /// Frees a block. Errc::call_order when nothing is allocated at `begin` (as after an earlier
  /// release); Errc::bad_argument for an address inside a block, a reservation or another size;
  /// Errc::out_of_range outside the range. An error changes nothing.
  void release(std::uint64_t begin, std::uint64_t size);

  /// Reserves a given range, so that no block is allocated in it. Errc::overlap with a block, its
  /// redzone or another reservation; Errc::out_of_range when it exceeds the allocator's range;
  /// Errc::bad_argument for size 0.
  void reserve(std::uint64_t begin, std::uint64_t size);
  /// Ends a reservation. Returns false when there is none of exactly this range.
  bool unreserve(std::uint64_t begin, std::uint64_t size) noexcept;

  /// Blocks and reservations count as used; redzones as neither used nor free.
  Usage usage() const;
  /// Number of blocks and reservations.
  std::size_t count() const;

 private:
  enum class State : std::uint8_t { hole, block, reservation };
  using SizeIndex = std::set<std::pair<std::uint64_t, std::uint64_t>>;  // size, begin
  /// A part of the range; segments cover it without gaps. Each keeps its node of the index while it
  /// is in use, so that release() never allocates and cannot fail for lack of memory.
  struct Segment {
    std::uint64_t size = 0;
    State state = State::hole;
    SizeIndex::node_type index_node;
  };
  using Segments = std::map<std::uint64_t, Segment>;

  void carve(Segments::iterator hole, std::uint64_t begin, std::uint64_t size, State state);
  void open(Segments::iterator segment) noexcept;
  void enter_hole(Segments::iterator hole) noexcept;
  Segments::iterator segment_at(std::uint64_t address);
  bool contains(std::uint64_t begin, std::uint64_t size) const noexcept;

  std::uint64_t base_;
  std::uint64_t size_;
  Options options_;
  mutable ForkLockedMutex mutex_;
  Segments segments_;
  SizeIndex holes_;
  std::uint64_t used_ = 0;
  std::uint64_t peak_ = 0;
  std::size_t count_ = 0;
};

}  // namespace tenon
