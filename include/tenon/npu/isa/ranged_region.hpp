#pragma once

#include <tenon/memory.hpp>
#include <tenon/range_allocator.hpp>

#include <cstdint>
#include <string>

namespace tenon::npu::isa {

/// A memory region of an NPU whose addresses the host deals out: what devices of all kinds share.
class RangedRegion : public MemRegion {
 public:
  bool is_host() const noexcept override { return false; }
  Usage usage() const override { return ranges_.usage(); }

 protected:
  RangedRegion(std::string name, std::uint64_t base, std::uint64_t size, std::uint64_t redzone);

  /// Bytes from the region's begin to `pointer`; Errc::out_of_range unless all of
  /// [pointer, pointer + size) lies in the region.
  std::uint64_t offset_of(const MemPtr& pointer, std::uint64_t size) const;
  std::uint64_t base() const noexcept { return ranges_.base(); }

  /// The pointer that chunks at this address begin with.
  virtual MemPtr pointer(std::uint64_t address) const { return MemPtr(address); }

  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override;
  void release(const MemPtr& begin, std::uint64_t size) override;
  void reserve(const MemPtr& begin, std::uint64_t size) override;
  void unreserve(const MemPtr& begin, std::uint64_t size) noexcept override;
  std::uint64_t redzone_bytes() const noexcept override { return ranges_.redzone_bytes(); }

 private:
  RangeAllocator ranges_;
};

}  // namespace tenon::npu::isa
