#include "regions.hpp"

#include "npu/isa/registers.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace tenon::npu::sim {

SimRegion::SimRegion(std::string name, Machine& machine, std::uint64_t base, std::uint64_t size)
    : MemRegion(std::move(name)),
      machine_(machine),
      base_(base),
      ranges_(base, size, {this->name(), 0}) {}

std::uint64_t SimRegion::offset_of(const MemPtr& pointer, std::uint64_t size) const {
  if (machine_.is_removed()) throw Error(Errc::device_lost, name(), "the device is gone");
  const std::uint64_t address = pointer.addr();
  const std::uint64_t offset = address - base_;
  if (address < base_ || offset > ranges_.size_bytes() || size > ranges_.size_bytes() - offset) {
    throw Error(Errc::out_of_range, name(),
                fmt::format("{} bytes at {:#x} are outside of [{:#x}, {:#x})", size, address, base_,
                            base_ + ranges_.size_bytes()));
  }
  return offset;
}

void SimRegion::read(void* to, const MemPtr& from, std::uint64_t size) const {
  get(to, offset_of(from, size), size);
}

void SimRegion::write(const MemPtr& to, const void* from, std::uint64_t size) {
  put(offset_of(to, size), from, size);
}

void SimRegion::copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) {
  const std::uint64_t target = offset_of(to, size);
  move(target, offset_of(from, size), size);
}

MemPtr SimRegion::allocate(std::uint64_t size, std::uint64_t alignment) {
  const auto begin = ranges_.try_allocate(size, alignment);
  if (!begin) {
    const Usage now = usage();
    throw Error(
        Errc::out_of_device_memory, name(),
        fmt::format("asked for {} bytes aligned to {}; {} of {} are in use, the largest hole "
                    "has {}",
                    size, alignment, now.used_bytes, now.capacity_bytes, now.largest_hole_bytes));
  }
  return pointer(*begin);
}

void SimRegion::release(const MemPtr& begin, std::uint64_t size) {
  ranges_.release(begin.addr(), size);
}

void SimRegion::reserve(const MemPtr& begin, std::uint64_t size) {
  ranges_.reserve(begin.addr(), size);
}

void SimRegion::unreserve(const MemPtr& begin, std::uint64_t size) noexcept {
  if (begin.has_addr()) ranges_.unreserve(begin.addr(), size);
}

// ---- etm
// ------------------------------------------------------------------------------------------

EtmRegion::EtmRegion(Machine& machine, std::uint64_t size)
    : SimRegion("etm", machine, etm_base, size) {}

void EtmRegion::get(void* to, std::uint64_t offset, std::uint64_t size) const {
  std::memcpy(to, machine_.memory().etm().data() + offset, size);
}
void EtmRegion::put(std::uint64_t offset, const void* from, std::uint64_t size) {
  std::memcpy(machine_.memory().etm().data() + offset, from, size);
}
void EtmRegion::move(std::uint64_t to, std::uint64_t from, std::uint64_t size) {
  std::byte* const bytes = machine_.memory().etm().data();
  std::memmove(bytes + to, bytes + from, size);
}

// ---- xchg
// -----------------------------------------------------------------------------------------

XchgRegion::XchgRegion(Machine& machine, std::uint64_t size)
    : SimRegion("xchg", machine, xchg_base, size) {}

MemPtr XchgRegion::pointer(std::uint64_t address) const {
  return {machine_.memory().host_xchg() + (address - xchg_base), address};
}

void XchgRegion::get(void* to, std::uint64_t offset, std::uint64_t size) const {
  machine_.memory().sync_from_device(offset, size);
  std::memcpy(to, machine_.memory().host_xchg() + offset, size);
}
void XchgRegion::put(std::uint64_t offset, const void* from, std::uint64_t size) {
  std::memcpy(machine_.memory().host_xchg() + offset, from, size);
  machine_.memory().sync_to_device(offset, size);
}
void XchgRegion::move(std::uint64_t to, std::uint64_t from, std::uint64_t size) {
  machine_.memory().sync_from_device(from, size);
  std::byte* const bytes = machine_.memory().host_xchg();
  std::memmove(bytes + to, bytes + from, size);
  machine_.memory().sync_to_device(to, size);
}

void XchgRegion::sync(std::uint64_t address, std::uint64_t size, bool to_device) {
  const std::uint64_t length = machine_.memory().xchg_bytes();
  const std::uint64_t offset = address - xchg_base;
  if (address < xchg_base || offset > length || size > length - offset) {
    throw Error(Errc::out_of_range, name(),
                fmt::format("a sync of {} bytes at {:#x}", size, address));
  }
  if (to_device) {
    machine_.memory().sync_to_device(offset, size);
  } else {
    machine_.memory().sync_from_device(offset, size);
  }
  machine_.count_sync();
}

// ---- ocm
// ------------------------------------------------------------------------------------------

OcmRegion::OcmRegion(Machine& machine, std::uint64_t size)
    : SimRegion("ocm", machine, ocm_base, size) {}

void OcmRegion::get(void* to, std::uint64_t offset, std::uint64_t size) const {
  machine_.on_device([&] { std::memcpy(to, machine_.memory().ocm().data() + offset, size); });
}
void OcmRegion::put(std::uint64_t offset, const void* from, std::uint64_t size) {
  if (size == 0) return;
  machine_.on_device([&] {
    std::memcpy(machine_.memory().ocm().data() + offset, from, size);
    machine_.mark_ocm_written(offset, size);
  });
}
void OcmRegion::move(std::uint64_t to, std::uint64_t from, std::uint64_t size) {
  if (size == 0) return;
  machine_.on_device([&] {
    std::byte* const bytes = machine_.memory().ocm().data();
    std::memmove(bytes + to, bytes + from, size);
    machine_.mark_ocm_written(to, size);
  });
}

// ---- Registers
// ------------------------------------------------------------------------------------

SimRegisters::SimRegisters(Machine& machine, Bank bank, bool starts)
    : RegRegion(bank == Bank::npu ? "npu" : "simctl"),
      machine_(machine),
      bank_(bank),
      starts_(starts) {}

std::uint32_t SimRegisters::offset_of(std::uint64_t address, bool relative) const {
  const std::uint64_t base =
      bank_ == Bank::npu ? isa::npu_registers_base : isa::simctl_registers_base;
  const std::uint64_t offset = relative ? address : address - base;
  if ((!relative && address < base) || offset >= isa::register_bank_bytes) {
    throw Error(Errc::out_of_range, name(), fmt::format("no register at {:#x}", address));
  }
  return static_cast<std::uint32_t>(offset);
}

std::uint64_t SimRegisters::read(std::uint64_t address, bool relative) const {
  const std::uint32_t offset = offset_of(address, relative);
  return bank_ == Bank::npu ? machine_.read_register(offset) : machine_.read_simctl(offset);
}

void SimRegisters::write(std::uint64_t address, std::uint64_t value, bool relative) {
  const std::uint32_t offset = offset_of(address, relative);
  if (value >> 32 != 0) {
    throw Error(Errc::out_of_range, name(), fmt::format("{:#x} has more than 32 bits", value));
  }
  if (!starts_ && (offset == isa::reg::cmdq_tail || offset == isa::reg::dma_ctrl)) {
    throw Error(Errc::call_order, name(), "this device allocates, and executes nothing");
  }
  if (bank_ == Bank::npu) {
    machine_.write_register(offset, static_cast<std::uint32_t>(value));
  } else {
    machine_.write_simctl(offset, static_cast<std::uint32_t>(value));
  }
}

}  // namespace tenon::npu::sim
