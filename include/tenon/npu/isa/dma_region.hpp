#pragma once

#include <tenon/npu/isa/host_dma.hpp>
#include <tenon/npu/isa/owner_process.hpp>
#include <tenon/npu/isa/ranged_region.hpp>

#include <cstdint>
#include <string>

namespace tenon::npu::isa {

/// Memory that only the device sees, reached by its host DMA: the region `etm` of a device that has
/// one. Errors of read(), write() and copy(): HostDma's, Errc::out_of_range outside of the region,
/// Errc::forked_process in a child of `process`.
class DmaRegion : public RangedRegion {
 public:
  /// `dma` and `process` outlive the region.
  DmaRegion(std::string name, std::uint64_t base, std::uint64_t size, HostDma& dma,
            const OwnerProcess& process, std::uint64_t redzone = 0);

  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const final;
  void write(const MemPtr& to, const void* from, std::uint64_t size) final;
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) final;

 private:
  std::uint64_t checked(const MemPtr& pointer, std::uint64_t size) const;

  HostDma& dma_;
  const OwnerProcess& process_;
};

}  // namespace tenon::npu::isa
