#include "memory.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

namespace tenon::npu::sim {
namespace {

constexpr int poison = 0xCD;

constexpr bool within(std::uint64_t address, std::uint64_t size, std::uint64_t base,
                      std::uint64_t length) noexcept {
  return address >= base && address - base <= length && size <= length - (address - base);
}

}  // namespace

Pages::Pages(std::uint64_t size) : data_(nullptr), size_(size) {
  void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    throw Error(Errc::out_of_memory, "npu://sim",
                fmt::format("no {} bytes of address space", size));
  }
  data_ = static_cast<std::byte*>(at);
}

Pages::~Pages() { munmap(data_, size_); }

void Pages::clear() noexcept {
  // Private anonymous pages that are given back read as zeros again.
  if (madvise(data_, size_, MADV_DONTNEED) != 0) std::memset(data_, 0, size_);
}

Memory::Memory(const Options& options)
    : etm_(options.ddr_bytes),
      host_(options.xchg_bytes),
      device_(options.coherent ? 4096 : options.xchg_bytes),
      coherent_(options.coherent),
      strict_(options.strict),
      ocm_(options.ocm_bytes),
      acc_(options.acc_bytes / sizeof(std::int32_t)) {
  forget_on_chip();
}

bool Memory::is_ddr(std::uint64_t address, std::uint64_t size) const noexcept {
  return within(address, size, etm_base, etm_.size()) ||
         within(address, size, xchg_base, host_.size());
}

std::byte* Memory::direct(std::uint64_t address, std::uint64_t size) const noexcept {
  return within(address, size, etm_base, etm_.size()) ? etm_.data() + (address - etm_base)
                                                      : nullptr;
}

void Memory::read(std::uint64_t address, void* to, std::uint64_t size) const {
  if (const std::byte* const from = direct(address, size)) {
    std::memcpy(to, from, size);
    return;
  }
  const std::uint64_t offset = address - xchg_base;
  const std::scoped_lock lock(xchg_mutex_);
  if (coherent_) {
    std::memcpy(to, host_.data() + offset, size);
    return;
  }
  std::memcpy(to, device_.data() + offset, size);
  if (strict_ && std::memcmp(host_.data() + offset, to, size) != 0) {
    auto* const bytes = static_cast<std::byte*>(to);
    for (std::uint64_t i = 0; i < size; ++i) {
      if (bytes[i] != host_.data()[offset + i]) bytes[i] = std::byte{poison};
    }
  }
}

void Memory::write(std::uint64_t address, const void* from, std::uint64_t size) {
  if (std::byte* const to = direct(address, size)) {
    std::memcpy(to, from, size);
    return;
  }
  const std::uint64_t offset = address - xchg_base;
  const std::scoped_lock lock(xchg_mutex_);
  if (coherent_) {
    std::memcpy(host_.data() + offset, from, size);
    return;
  }
  std::memcpy(device_.data() + offset, from, size);
  if (strict_) std::memset(host_.data() + offset, poison, size);
}

void Memory::sync_to_device(std::uint64_t offset, std::uint64_t size) {
  if (coherent_) return;
  const std::scoped_lock lock(xchg_mutex_);
  std::memcpy(device_.data() + offset, host_.data() + offset, size);
}

void Memory::sync_from_device(std::uint64_t offset, std::uint64_t size) {
  if (coherent_) return;
  const std::scoped_lock lock(xchg_mutex_);
  std::memcpy(host_.data() + offset, device_.data() + offset, size);
}

void Memory::forget_on_chip() noexcept {
  std::ranges::fill(ocm_, std::byte{poison});
  std::ranges::fill(acc_, static_cast<std::int32_t>(0xCDCDCDCD));
}

void Memory::forget_all() noexcept {
  forget_on_chip();
  etm_.clear();
  const std::scoped_lock lock(xchg_mutex_);
  host_.clear();
  device_.clear();
}

}  // namespace tenon::npu::sim
