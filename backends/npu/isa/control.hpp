#pragma once

#include <tenon/memory.hpp>

#include <chrono>
#include <cstdint>

namespace tenon::npu::isa {

/// What a driver needs of an NPU besides memory and registers. A Device whose protocol is an NPU's
/// also is a DeviceControl: `dynamic_cast<DeviceControl*>(device.get())`.
class DeviceControl {
 public:
  virtual ~DeviceControl() = default;

  /// Sleeps until an interrupt in `mask` (bits of irq_status) is pending and not masked by
  /// irq_mask, or `timeout` is over. Returns the pending ones within `mask`, 0 after a timeout; a
  /// device that is gone returns all ones at once. Interrupts stay pending until irq_status clears
  /// them. Many threads may wait.
  virtual std::uint32_t wait_irq(std::uint32_t mask, std::chrono::nanoseconds timeout) = 0;

  enum class Direction { to_device, from_device };
  /// Makes the CPU's writes through cptr() to [begin, begin + size) of xchg visible to the device,
  /// or the device's to the CPU. Nothing to do on a coherent device, but counted there too.
  /// MemRegion's read(), write() and copy() do this themselves.
  virtual void sync(const MemPtr& begin, std::uint64_t size, Direction direction) = 0;
};

}  // namespace tenon::npu::isa
