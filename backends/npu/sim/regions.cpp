#include "regions.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/npu/isa/registers.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace tenon::npu::sim {
namespace {

bool keeps_redzones(const Machine& machine, const isa::OwnerProcess& process) noexcept {
  return process.is_this() && !machine.is_removed() && !machine.memory_was_cleared();
}

}  // namespace

SimRegion::SimRegion(std::string name, Machine& machine, const isa::OwnerProcess& process,
                     std::uint64_t base, std::uint64_t size, std::uint64_t redzone)
    : RangedRegion(std::move(name), base, size, redzone), machine_(machine), process_(process) {}

std::uint64_t SimRegion::redzone_bytes() const noexcept {
  return keeps_redzones(machine_, process_) ? RangedRegion::redzone_bytes() : 0;
}

std::uint64_t SimRegion::live_offset(const MemPtr& pointer, std::uint64_t size) const {
  process_.check(name());
  if (machine_.is_removed())
    throw Error(Errc::device_lost, device().url() + ", " + name(), "the device is gone");
  return offset_of(pointer, size);
}

void SimRegion::read(void* to, const MemPtr& from, std::uint64_t size) const {
  const std::uint64_t offset = live_offset(from, size);
  get(to, offset, size);
  machine_.note_memory(false, base() + offset, to, size);
}

void SimRegion::write(const MemPtr& to, const void* from, std::uint64_t size) {
  const std::uint64_t offset = live_offset(to, size);
  machine_.note_memory(true, base() + offset, from, size);
  put(offset, from, size);
}

void SimRegion::copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) {
  const std::uint64_t target = live_offset(to, size);
  move(target, live_offset(from, size), size);
  if (!machine_.is_traced()) return;
  // A trace says what was copied, so that it can be written again.
  std::vector<std::byte> bytes(size);
  get(bytes.data(), target, size);
  machine_.note_memory(true, base() + target, bytes.data(), size);
}

// ---- etm

EtmRegion::EtmRegion(Machine& machine, const isa::OwnerProcess& process, std::uint64_t size,
                     std::uint64_t redzone)
    : SimRegion("etm", machine, process, etm_base, size, redzone) {}

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

DmaEtmRegion::DmaEtmRegion(Machine& machine, isa::HostDma& dma, const isa::OwnerProcess& process,
                           std::uint64_t size, std::uint64_t redzone)
    : DmaRegion("etm", etm_base, size, dma, process, redzone),
      machine_(machine),
      process_(process) {}

std::uint64_t DmaEtmRegion::redzone_bytes() const noexcept {
  return keeps_redzones(machine_, process_) ? DmaRegion::redzone_bytes() : 0;
}

// ---- xchg

XchgRegion::XchgRegion(Machine& machine, const isa::OwnerProcess& process, std::uint64_t size,
                       std::uint64_t redzone)
    : SimRegion("xchg", machine, process, xchg_base, size, redzone) {}

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
  const std::uint64_t offset = offset_of(MemPtr(address), size);
  if (to_device) {
    machine_.note_memory(true, address, machine_.memory().host_xchg() + offset, size);
    machine_.memory().sync_to_device(offset, size);
  } else {
    machine_.memory().sync_from_device(offset, size);
    machine_.note_memory(false, address, machine_.memory().host_xchg() + offset, size);
  }
  machine_.count_sync();
}

// ---- ocm

OcmRegion::OcmRegion(Machine& machine, const isa::OwnerProcess& process, std::uint64_t size)
    : SimRegion("ocm", machine, process, ocm_base, size, 0) {}

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

SimRegisters::SimRegisters(Machine& machine, const isa::OwnerProcess& process, Bank bank,
                           bool starts)
    : RegRegion(bank == Bank::npu ? "npu" : "simctl",
                bank == Bank::npu ? isa::npu_registers_base : isa::simctl_registers_base,
                isa::register_bank_bytes),
      machine_(machine),
      process_(process),
      bank_(bank),
      starts_(starts) {}

std::uint64_t SimRegisters::read(std::uint64_t address, bool relative) const {
  process_.check(name());
  const auto offset = static_cast<std::uint32_t>(offset_of(address, relative));
  return bank_ == Bank::npu ? machine_.read_register(offset) : machine_.read_simctl(offset);
}

void SimRegisters::write(std::uint64_t address, std::uint64_t value, bool relative) {
  process_.check(name());
  const auto offset = static_cast<std::uint32_t>(offset_of(address, relative));
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
