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

/// Deals out the addresses [base, base + size) of a memory that it never touches: what the regions
/// of a device keep account with. Holes are kept by address and by size; a request takes the
/// smallest hole that holds it, and among equals the one at the lowest address, so that a sequence
/// of calls gives the same addresses on every run. Calls may come from any thread.
class RangeAllocator {
 public:
  struct Options {
    std::string name = "RangeAllocator";  ///< what errors belong to
    /// Bytes kept free on both sides of each allocated block (not of reservations), for a region
    /// that watches for writes past the ends; see MemRegion::redzone_bytes().
    std::uint64_t redzone_bytes = 0;
  };
  using Usage = MemRegion::Usage;

  /// Errc::bad_argument when the range is empty or ends beyond 2^64 - 1, or when the redzones leave
  /// no room in it.
  RangeAllocator(std::uint64_t base, std::uint64_t size) : RangeAllocator(base, size, Options{}) {}
  RangeAllocator(std::uint64_t base, std::uint64_t size, Options options);
  RangeAllocator(const RangeAllocator&) = delete;
  RangeAllocator& operator=(const RangeAllocator&) = delete;

  std::uint64_t base() const noexcept { return base_; }
  std::uint64_t size_bytes() const noexcept { return size_; }
  std::uint64_t redzone_bytes() const noexcept { return options_.redzone_bytes; }

  /// The first address of a fresh block. Size 0 or an alignment that is no power of two:
  /// Errc::bad_argument. No hole that holds it: Errc::out_of_device_memory, or nothing from
  /// try_allocate, for regions that have their own words.
  std::uint64_t allocate(std::uint64_t size, std::uint64_t alignment = 64);
  std::optional<std::uint64_t> try_allocate(std::uint64_t size, std::uint64_t alignment = 64);

  /// Gives a block back. Errc::call_order when nothing is allocated at `begin` (as after an earlier
  /// release), Errc::bad_argument when it lies inside a block, is a reservation or has another
  /// size, Errc::out_of_range outside the range. Whatever is thrown, nothing has changed.
  void release(std::uint64_t begin, std::uint64_t size);

  /// Keeps blocks off a given range. Errc::overlap when a block, its redzone or a reservation
  /// shares a byte with it, Errc::out_of_range when it leaves the range, Errc::bad_argument for
  /// size 0.
  void reserve(std::uint64_t begin, std::uint64_t size);
  /// Ends a reservation; false, and nothing changes, when there is none of exactly this range.
  bool unreserve(std::uint64_t begin, std::uint64_t size) noexcept;

  /// Blocks and reservations count as used, redzones as neither used nor part of a hole.
  Usage usage() const;
  /// Blocks and reservations right now.
  std::size_t count() const;

 private:
  enum class State : std::uint8_t { hole, block, reservation };
  using SizeIndex = std::set<std::pair<std::uint64_t, std::uint64_t>>;  // size, begin
  /// A stretch of the range; the segments tile it without gaps. Each owns its node of the index
  /// also while it is in use: giving memory back then never needs memory, and cannot fail.
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
