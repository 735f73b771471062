#include <tenon/error.hpp>
#include <tenon/range_allocator.hpp>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <mutex>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr std::uint64_t max_address = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> add(std::uint64_t a, std::uint64_t b) {
  return b <= max_address - a ? std::optional(a + b) : std::nullopt;
}

/// `address` rounded up to a multiple of `alignment`.
std::optional<std::uint64_t> align_up(std::uint64_t address, std::uint64_t alignment) {
  const auto raised = add(address, alignment - 1);
  return raised ? std::optional(*raised & ~(alignment - 1)) : std::nullopt;
}

std::string range_text(std::uint64_t begin, std::uint64_t size) {
  return fmt::format("{} bytes at {:#x}", size, begin);
}

}  // namespace

RangeAllocator::RangeAllocator(std::uint64_t base, std::uint64_t size, Options options)
    : base_(base), size_(size), options_(std::move(options)) {
  if (size == 0 || !add(base, size)) {
    throw Error(Errc::bad_argument, options_.name,
                fmt::format("{} are no range to allocate from", range_text(base, size)));
  }
  if (options_.redzone_bytes > (size - 1) / 2) {
    throw Error(Errc::bad_argument, options_.name,
                fmt::format("redzones of {} bytes leave no room in a range of {}",
                            options_.redzone_bytes, size));
  }
  segments_.emplace(base, Segment{size, State::hole, {}});
  holes_.emplace(size, base);
}

std::uint64_t RangeAllocator::allocate(std::uint64_t size, std::uint64_t alignment) {
  if (const auto begin = try_allocate(size, alignment)) return *begin;
  const Usage now = usage();
  throw Error(
      Errc::out_of_device_memory, options_.name,
      fmt::format("no room for {} bytes aligned to {}: {} of {} are in use, the largest hole has "
                  "{}",
                  size, alignment, now.used_bytes, now.capacity_bytes, now.largest_hole_bytes));
}

std::optional<std::uint64_t> RangeAllocator::try_allocate(std::uint64_t size,
                                                          std::uint64_t alignment) {
  if (size == 0) throw Error(Errc::bad_argument, options_.name, "a block of 0 bytes");
  if (!std::has_single_bit(alignment)) {
    throw Error(Errc::bad_argument, options_.name,
                fmt::format("alignment {} is no power of two", alignment));
  }
  const std::uint64_t redzone = options_.redzone_bytes;  // twice it is below size_
  const auto need = add(size, 2 * redzone);
  if (!need) return std::nullopt;

  const std::scoped_lock lock(mutex_);
  for (auto hole = holes_.lower_bound({*need, 0}); hole != holes_.end(); ++hole) {
    const auto [hole_size, hole_begin] = *hole;
    const auto begin = align_up(hole_begin + redzone, alignment);
    if (!begin) continue;
    const std::uint64_t skipped = *begin - redzone - hole_begin;
    if (skipped > hole_size - *need) continue;
    carve(segments_.find(hole_begin), *begin - redzone, *need, State::block);
    used_ += size;
    peak_ = std::max(peak_, used_);
    return begin;
  }
  return std::nullopt;
}

void RangeAllocator::release(std::uint64_t begin, std::uint64_t size) {
  const std::uint64_t redzone = options_.redzone_bytes;
  const std::scoped_lock lock(mutex_);
  if (!contains(begin, 1)) {
    throw Error(Errc::out_of_range, options_.name,
                fmt::format("{:#x} lies outside the range", begin));
  }
  const auto segment = segment_at(begin);
  const auto& [first, found] = *segment;
  const auto refuse = [&](Errc code, const char* why) {
    throw Error(code, options_.name, fmt::format("{}: {}", range_text(begin, size), why));
  };
  switch (found.state) {
    case State::hole:
      refuse(Errc::call_order, "nothing is allocated there; it was released before");
      break;
    case State::reservation:
      refuse(Errc::bad_argument, "the place is reserved, not allocated");
      break;
    case State::block:
      break;
  }
  if (begin != first + redzone) refuse(Errc::bad_argument, "this is the inside of a block");
  if (size != found.size - 2 * redzone) refuse(Errc::bad_argument, "the block has another size");
  used_ -= size;
  open(segment);
}

void RangeAllocator::reserve(std::uint64_t begin, std::uint64_t size) {
  if (size == 0) throw Error(Errc::bad_argument, options_.name, "a reservation of 0 bytes");
  const std::scoped_lock lock(mutex_);
  if (!contains(begin, size)) {
    throw Error(Errc::out_of_range, options_.name,
                fmt::format("{} leave the {}", range_text(begin, size), range_text(base_, size_)));
  }
  const auto segment = segment_at(begin);
  const std::uint64_t offset = begin - segment->first;
  if (segment->second.state != State::hole || size > segment->second.size - offset) {
    const auto other = segment->second.state != State::hole ? segment : std::next(segment);
    throw Error(Errc::overlap, options_.name,
                fmt::format("{} overlap {}", range_text(begin, size),
                            range_text(other->first, other->second.size)));
  }
  carve(segment, begin, size, State::reservation);
  used_ += size;
  peak_ = std::max(peak_, used_);
}

bool RangeAllocator::unreserve(std::uint64_t begin, std::uint64_t size) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto segment = segments_.find(begin);
  if (segment == segments_.end() || segment->second.state != State::reservation ||
      segment->second.size != size) {
    return false;
  }
  used_ -= size;
  open(segment);
  return true;
}

RangeAllocator::Usage RangeAllocator::usage() const {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t largest = holes_.empty() ? 0 : holes_.rbegin()->first;
  return {.used_bytes = used_,
          .peak_bytes = peak_,
          .capacity_bytes = size_,
          .largest_hole_bytes = largest};
}

std::size_t RangeAllocator::count() const {
  const std::scoped_lock lock(mutex_);
  return count_;
}

/// Takes [begin, begin + size) out of a hole. Memory is allocated first, in separate containers, so
/// that a failure changes nothing.
void RangeAllocator::carve(Segments::iterator hole, std::uint64_t begin, std::uint64_t size,
                           State state) {
  const std::uint64_t hole_begin = hole->first;
  const std::uint64_t hole_size = hole->second.size;
  const std::uint64_t before = begin - hole_begin;
  const std::uint64_t after = hole_size - before - size;
  Segments parts;
  SizeIndex nodes;
  const auto add_part = [&](std::uint64_t at, std::uint64_t part_size, State part_state) {
    const auto node = nodes.emplace(part_size, at).first;
    const auto part = parts.emplace(at, Segment{part_size, part_state, {}}).first;
    part->second.index_node = nodes.extract(node);
  };
  if (before > 0) add_part(begin, size, state);
  if (after > 0) add_part(begin + size, after, State::hole);

  hole->second.index_node = holes_.extract({hole_size, hole_begin});
  hole->second.size = before > 0 ? before : size;
  hole->second.state = before > 0 ? State::hole : state;
  segments_.merge(parts);
  if (before > 0) enter_hole(hole);
  if (after > 0) enter_hole(segments_.find(begin + size));
  ++count_;
}

/// Makes a used segment a hole, one with the holes beside it.
void RangeAllocator::open(Segments::iterator segment) noexcept {
  --count_;
  segment->second.state = State::hole;
  const auto swallow_next = [&](Segments::iterator kept) {
    const auto next = std::next(kept);
    if (next == segments_.end() || next->second.state != State::hole) return;
    kept->second.size += next->second.size;
    if (!next->second.index_node) holes_.erase({next->second.size, next->first});
    segments_.erase(next);
  };
  swallow_next(segment);
  if (segment != segments_.begin()) {
    const auto previous = std::prev(segment);
    if (previous->second.state == State::hole) {
      previous->second.index_node = holes_.extract({previous->second.size, previous->first});
      swallow_next(previous);
      segment = previous;
    }
  }
  enter_hole(segment);
}

void RangeAllocator::enter_hole(Segments::iterator hole) noexcept {
  auto node = std::move(hole->second.index_node);
  node.value() = {hole->second.size, hole->first};
  holes_.insert(std::move(node));
}

/// The segment that holds `address`, which must lie in the range.
RangeAllocator::Segments::iterator RangeAllocator::segment_at(std::uint64_t address) {
  return std::prev(segments_.upper_bound(address));
}

bool RangeAllocator::contains(std::uint64_t begin, std::uint64_t size) const noexcept {
  return begin >= base_ && begin - base_ <= size_ && size <= size_ - (begin - base_);
}

}  // namespace tenon
