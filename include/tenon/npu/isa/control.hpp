#pragma once

#include <tenon/memory.hpp>
#include <tenon/npu/isa/owner_process.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

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

  /// The process that opened the device: in no other one does anything here make sense.
  const OwnerProcess& process() const noexcept { return process_; }

  /// Who works the command ring. A device has one ring and one fence, so it has one driver at a
  /// time, which all that use the device share.
  struct DriverSlot {
    std::mutex mutex;             ///< guards the others
    std::weak_ptr<void> driver;   ///< the driver's own type
    const void* owner = nullptr;  ///< that one, also while it is being destroyed
  };
  DriverSlot& driver_slot() noexcept { return slot_; }

 private:
  OwnerProcess process_;
  DriverSlot slot_;
};

}  // namespace tenon::npu::isa
