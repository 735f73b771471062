#pragma once

#include <tenon/memory.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace tenon::npu::isa {

struct HostDmaOptions {
  /// Memory of `xchg` through which bytes pass, one transfer each; at most a quarter of the region.
  std::uint64_t staging_bytes = 256 << 10;
  /// How long one transfer may take: longer than the longest instruction, behind which it may wait.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
};

/// The host's side of a device's host DMA, the registers dma_len to dma_status: moves bytes between
/// CPU memory and memory that only the device sees. For devices with Caps::host_dma.
///
/// Thread-safe; transfers take place one after the other, also while a program runs. It polls, and
/// leaves the interrupts to the driver. A transfer that a reset interrupts is repeated. One that
/// fails is repeated once, after a reset of level 0 where it did not end: a program that ran is
/// repeated by its driver, as after any reset. Every failure is logged.
///
/// Errors  device_error    a transfer failed twice; with the addresses
///         device_timeout  it did not end twice, or a reset did not
///         device_lost     the device is gone
class HostDma {
 public:
  /// Both outlive it. Takes its staging memory from `xchg`: in the constructor of a device, and to
  /// be destroyed before Device::deinit().
  HostDma(RegRegion& npu, MemRegion& xchg, const HostDmaOptions& options = {});

  /// CPU memory <-> device memory at an address; any alignment and size.
  void read(void* to, std::uint64_t from, std::uint64_t size);
  void write(std::uint64_t to, const void* from, std::uint64_t size);
  /// Within device memory; as by memmove where the ranges overlap.
  void copy(std::uint64_t to, std::uint64_t from, std::uint64_t size);

 private:
  using Clock = std::chrono::steady_clock;
  enum class End : std::uint8_t { done, failed, reset, timeout };

  // Of one piece, through the staging memory.
  void fetch(void* to, std::uint64_t from, std::uint64_t size);
  void store(std::uint64_t to, const void* from, std::uint64_t size);
  void transfer(std::uint64_t to, std::uint64_t from, std::uint64_t size);
  End attempt(std::uint64_t to, std::uint64_t from, std::uint32_t size);
  End run(std::uint64_t to, std::uint64_t from, std::uint32_t size, Clock::time_point until);
  void end_by_reset();
  std::uint32_t get(std::uint32_t reg) const;
  void set(std::uint32_t reg, std::uint32_t value);

  RegRegion& npu_;
  MemChunk staging_;
  std::chrono::nanoseconds patience_;
  std::mutex mutex_;
};

}  // namespace tenon::npu::isa
