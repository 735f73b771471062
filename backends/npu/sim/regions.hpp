#pragma once

#include "machine.hpp"

#include <tenon/memory.hpp>
#include <tenon/npu/isa/dma_region.hpp>
#include <tenon/npu/isa/owner_process.hpp>
#include <tenon/npu/isa/ranged_region.hpp>

#include <cstdint>

namespace tenon::npu::sim {

/// What the three memory regions of a simulated device have in common.
class SimRegion : public isa::RangedRegion {
 public:
  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const final;
  void write(const MemPtr& to, const void* from, std::uint64_t size) final;
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) final;

 protected:
  SimRegion(std::string name, Machine& machine, const isa::OwnerProcess& process,
            std::uint64_t base, std::uint64_t size, std::uint64_t redzone);

  /// None once the memory was cleared under the chunks, or is gone: their redzones are too.
  std::uint64_t redzone_bytes() const noexcept override;

  /// Bytes at an offset of the region; the range has been checked.
  virtual void get(void* to, std::uint64_t offset, std::uint64_t size) const = 0;
  virtual void put(std::uint64_t offset, const void* from, std::uint64_t size) = 0;
  virtual void move(std::uint64_t to, std::uint64_t from, std::uint64_t size) = 0;

  Machine& machine_;

 private:
  const isa::OwnerProcess& process_;
  /// Errc::forked_process, Errc::device_lost, or as RangedRegion::offset_of().
  std::uint64_t live_offset(const MemPtr& pointer, std::uint64_t size) const;
};

/// DDR of the engines, of a device without host DMA: as if the CPU could address it.
class EtmRegion final : public SimRegion {
 public:
  EtmRegion(Machine& machine, const isa::OwnerProcess& process, std::uint64_t size,
            std::uint64_t redzone);

 private:
  void get(void* to, std::uint64_t offset, std::uint64_t size) const override;
  void put(std::uint64_t offset, const void* from, std::uint64_t size) override;
  void move(std::uint64_t to, std::uint64_t from, std::uint64_t size) override;
};

/// The same, moved by the device's host DMA.
class DmaEtmRegion final : public isa::DmaRegion {
 public:
  DmaEtmRegion(Machine& machine, isa::HostDma& dma, const isa::OwnerProcess& process,
               std::uint64_t size, std::uint64_t redzone);

 private:
  std::uint64_t redzone_bytes() const noexcept override;

  Machine& machine_;
  const isa::OwnerProcess& process_;
};

/// Memory that CPU and device share; pointers are both. read(), write() and copy() sync by
/// themselves.
class XchgRegion final : public SimRegion {
 public:
  XchgRegion(Machine& machine, const isa::OwnerProcess& process, std::uint64_t size,
             std::uint64_t redzone);
  bool is_host() const noexcept override { return true; }
  void sync(std::uint64_t address, std::uint64_t size, bool to_device);

 private:
  MemPtr pointer(std::uint64_t address) const override;
  void get(void* to, std::uint64_t offset, std::uint64_t size) const override;
  void put(std::uint64_t offset, const void* from, std::uint64_t size) override;
  void move(std::uint64_t to, std::uint64_t from, std::uint64_t size) override;
};

/// On-chip memory, which programs allocate themselves; host accesses are for debugging and wait for
/// a gap between two instructions.
class OcmRegion final : public SimRegion {
 public:
  OcmRegion(Machine& machine, const isa::OwnerProcess& process, std::uint64_t size);

 private:
  void get(void* to, std::uint64_t offset, std::uint64_t size) const override;
  void put(std::uint64_t offset, const void* from, std::uint64_t size) override;
  void move(std::uint64_t to, std::uint64_t from, std::uint64_t size) override;
};

/// A bank of 32-bit registers; absolute addresses count from its base. Errc::out_of_range for an
/// address outside of the bank or a value of more than 32 bits.
class SimRegisters final : public RegRegion {
 public:
  enum class Bank : std::uint8_t { npu, simctl };
  /// With `starts` false a write that would start anything is Errc::call_order.
  SimRegisters(Machine& machine, const isa::OwnerProcess& process, Bank bank, bool starts = true);
  std::uint64_t read(std::uint64_t address, bool relative) const override;
  void write(std::uint64_t address, std::uint64_t value, bool relative) override;

 private:
  Machine& machine_;
  const isa::OwnerProcess& process_;
  Bank bank_;
  bool starts_;
};

}  // namespace tenon::npu::sim
