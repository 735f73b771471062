// A device under test, worked by hand: registers, ring, segments.
#pragma once

#include "findings.hpp"

#include <tenon/device.hpp>
#include <tenon/npu/isa/caps.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/instruction.hpp>
#include <tenon/npu/isa/program.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/npu/isa/structures.hpp>
#include <tenon/npu/testkit.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::testkit {

namespace isa = npu::isa;

/// Where a device stopped.
struct Stopped {
  isa::ErrorCode error = isa::ErrorCode::none;
  std::uint32_t pc = 0;    ///< error_pc
  std::uint32_t head = 0;  ///< cmdq_head
};

class Bench {
 public:
  Bench(DevicePtr device, const NpuCheckOptions& options, Findings& findings);

  std::uint32_t get(std::uint32_t reg) const {
    return static_cast<std::uint32_t>(registers.read(reg, true));
  }
  void set(std::uint32_t reg, std::uint64_t value) const {
    registers.write(reg, value & 0xFFFFFFFF, true);
  }
  /// The lower of a pair of registers, and its upper half behind it.
  void set_pair(std::uint32_t reg, std::uint64_t value) const {
    set(reg, value);
    set(reg + 4, value >> 32);
  }

  /// Device::reset(level), and the ring set up and enabled.
  void restart(int level = 0);
  void add(isa::Command kind, std::uint64_t arg0 = 0, std::uint64_t arg1 = 0,
           std::uint64_t arg2 = 0, std::uint32_t flags = 0);
  /// A fence above all before, with or without its interrupt; returns its value.
  std::uint32_t add_fence(bool interrupt = true);
  void ring() const { set(isa::reg::cmdq_tail, tail_); }
  /// Rings, and waits until the fence register has the value. A finding, false, where the device
  /// stops or the patience ends.
  bool finish(std::string_view what, std::uint32_t fence);
  /// Rings, and waits until the device stops with an error. A finding, false, where it does not.
  bool stop(std::string_view what, Stopped& stopped);
  /// Polls a condition until it holds or the patience ends.
  template <class Condition>
  bool await(const Condition& condition) const;

  /// Puts a program into device memory and adds the commands that run it.
  void add_run(std::span<const std::byte> program);

  static constexpr std::uint32_t ring_entries = 16;

  DevicePtr device;
  isa::DeviceControl& control;
  RegRegion& registers;
  MemRegion& xchg;
  MemRegion& etm;
  MemRegion& ocm;
  isa::Caps caps;
  const NpuCheckOptions& options;
  Findings& findings;
  MemChunk data;  ///< in etm, data_bytes of it; segments input, output, weight and ftmp

  static constexpr std::uint64_t data_bytes = 64 << 10;

 private:
  void look() const;

  MemChunk ring_;
  MemChunk code_;
  std::uint32_t tail_ = 0;
  std::uint32_t fence_ = 0;
};

template <class Condition>
bool Bench::await(const Condition& condition) const {
  const auto until = std::chrono::steady_clock::now() + options.patience;
  for (;;) {
    if (condition()) return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    look();
  }
}

// One part of the check each; a section of docs/npu-device.md or docs/npu-isa.md. Those that return
// bool say whether the parts after them can be tried.
bool check_description(const DevicePtr& device, Findings& findings);
void check_registers(Bench& bench);
bool check_memory(Bench& bench);
bool check_ring(Bench& bench);
void check_errors(Bench& bench);
void check_resets(Bench& bench);
void check_networks(const DevicePtr& device, const NpuCheckOptions& options, Findings& findings);

}  // namespace tenon::testkit
