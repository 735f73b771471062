#include <tenon/error.hpp>
#include <tenon/npu/isa/ranged_region.hpp>

#include <utility>

#include <fmt/format.h>

namespace tenon::npu::isa {

RangedRegion::RangedRegion(std::string name, std::uint64_t base, std::uint64_t size,
                           std::uint64_t redzone)
    : MemRegion(std::move(name)), ranges_(base, size, {this->name(), redzone}) {}

std::uint64_t RangedRegion::offset_of(const MemPtr& pointer, std::uint64_t size) const {
  const std::uint64_t address = pointer.addr();
  const std::uint64_t offset = address - ranges_.base();
  if (address < ranges_.base() || offset > ranges_.size_bytes() ||
      size > ranges_.size_bytes() - offset) {
    throw Error(Errc::out_of_range, name(),
                fmt::format("{} bytes at {:#x} are outside of [{:#x}, {:#x})", size, address,
                            ranges_.base(), ranges_.base() + ranges_.size_bytes()));
  }
  return offset;
}

MemPtr RangedRegion::allocate(std::uint64_t size, std::uint64_t alignment) {
  const auto begin = ranges_.try_allocate(size, alignment);
  if (begin) return pointer(*begin);
  const Usage now = usage();
  throw Error(
      Errc::out_of_device_memory, name(),
      fmt::format("asked for {} bytes aligned to {}; {} of {} are in use, the largest hole "
                  "has {}",
                  size, alignment, now.used_bytes, now.capacity_bytes, now.largest_hole_bytes));
}

void RangedRegion::release(const MemPtr& begin, std::uint64_t size) {
  ranges_.release(begin.addr(), size);
}

void RangedRegion::reserve(const MemPtr& begin, std::uint64_t size) {
  ranges_.reserve(begin.addr(), size);
}

void RangedRegion::unreserve(const MemPtr& begin, std::uint64_t size) noexcept {
  if (begin.has_addr()) ranges_.unreserve(begin.addr(), size);
}

}  // namespace tenon::npu::isa
