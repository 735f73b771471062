#include <tenon/npu/isa/dma_region.hpp>

#include <utility>

namespace tenon::npu::isa {

DmaRegion::DmaRegion(std::string name, std::uint64_t base, std::uint64_t size, HostDma& dma,
                     const OwnerProcess& process, std::uint64_t redzone)
    : RangedRegion(std::move(name), base, size, redzone), dma_(dma), process_(process) {}

std::uint64_t DmaRegion::checked(const MemPtr& pointer, std::uint64_t size) const {
  process_.check(name());
  return base() + offset_of(pointer, size);
}

void DmaRegion::read(void* to, const MemPtr& from, std::uint64_t size) const {
  dma_.read(to, checked(from, size), size);
}

void DmaRegion::write(const MemPtr& to, const void* from, std::uint64_t size) {
  dma_.write(checked(to, size), from, size);
}

void DmaRegion::copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) {
  const std::uint64_t target = checked(to, size);
  dma_.copy(target, checked(from, size), size);
}

}  // namespace tenon::npu::isa
