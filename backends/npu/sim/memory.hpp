#pragma once

#include "options.hpp"

#include <tenon/npu/isa/memory_map.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace tenon::npu::sim {

using isa::etm_base;
using isa::ocm_base;
using isa::xchg_base;

/// Zeroed pages from the operating system, which commits them on first access.
class Pages {
 public:
  /// Errc::out_of_memory when there is no such range of addresses.
  explicit Pages(std::uint64_t size);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const noexcept { return data_; }
  std::uint64_t size() const noexcept { return size_; }
  void clear() noexcept;

 private:
  std::byte* data_;
  std::uint64_t size_;
};

/// The memories of a device: etm and xchg by address, OCM and ACC as the engines see them.
///
/// A device that is not coherent keeps two copies of xchg, the CPU's and its own; sync() copies one
/// to the other. Where they differ, a strict device reads poison, and what it writes is poison to
/// the CPU until the sync.
class Memory {
 public:
  explicit Memory(const Options& options);

  /// Whether all of [address, address + size) is etm or xchg.
  bool is_ddr(std::uint64_t address, std::uint64_t size) const noexcept;
  /// The device's accesses to etm and xchg, which is_ddr() has allowed.
  void read(std::uint64_t address, void* to, std::uint64_t size) const;
  void write(std::uint64_t address, const void* from, std::uint64_t size);
  /// The bytes themselves where they are etm; null where they are not.
  std::byte* direct(std::uint64_t address, std::uint64_t size) const noexcept;

  std::span<std::byte> etm() const noexcept { return {etm_.data(), etm_.size()}; }
  std::span<std::byte> ocm() noexcept { return ocm_; }
  std::span<std::int32_t> acc() noexcept { return acc_; }

  /// The CPU's xchg, and the two directions of a sync; offsets count from its begin.
  std::byte* host_xchg() const noexcept { return host_.data(); }
  std::uint64_t xchg_bytes() const noexcept { return host_.size(); }
  void sync_to_device(std::uint64_t offset, std::uint64_t size);
  void sync_from_device(std::uint64_t offset, std::uint64_t size);

  void set_strict(bool strict) noexcept { strict_ = strict; }
  /// OCM and ACC as after power-up: nothing in particular, and not what was there.
  void forget_on_chip() noexcept;
  void forget_all() noexcept;

 private:
  Pages etm_;
  Pages host_;
  Pages device_;  // one page, unused, on a coherent device
  bool coherent_;
  bool strict_;
  std::vector<std::byte> ocm_;
  std::vector<std::int32_t> acc_;
  mutable std::mutex xchg_mutex_;
};

}  // namespace tenon::npu::sim
