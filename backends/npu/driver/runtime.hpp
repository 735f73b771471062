// The device as the driver uses it: command ring, fences, interrupts, deadlines, recovery.
#pragma once

#include <tenon/backends/npu.hpp>
#include <tenon/device.hpp>
#include <tenon/interrupt.hpp>
#include <tenon/memory.hpp>
#include <tenon/npu/isa/caps.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/npu/isa/structures.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tenon::npu {

/// Bytes that have to be in device memory; a copy is kept here, so that damage is found and
/// repaired.
class DeviceImage {
 public:
  DeviceImage() = default;
  /// Allocates and uploads. Empty bytes take no memory.
  DeviceImage(MemRegion& region, std::vector<std::byte> bytes);

  bool is_empty() const noexcept { return bytes_.empty(); }
  std::uint64_t address() const { return chunk_.begin().addr(); }
  std::uint64_t size() const noexcept { return bytes_.size(); }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  void upload() const;
  /// Whether device memory holds these bytes.
  bool is_intact() const;

 private:
  std::vector<std::byte> bytes_;
  std::uint32_t crc_ = 0;
  MemChunk chunk_;
};

/// What the device answered to commands.
struct Outcome {
  enum class Kind : std::uint8_t { done, timeout, fault, removed, interrupted };
  Kind kind = Kind::done;
  isa::ErrorCode error = isa::ErrorCode::none;
  int run = -1;  ///< which of the RUN commands was worked on; -1: none yet
  /// Instructions that LD, EX and ST held then; all ones: none. A fault's own comes first.
  std::array<std::uint32_t, 3> held{isa::gone, isa::gone, isa::gone};
  std::string message;  ///< what happened, with registers
};

/// The one owner of a device's ring, fences and registers: every backend of the device shares it.
class Runtime {
 public:
  /// The owner of the device, made where it has none. One that saw the device go stays with its
  /// backends; a device that is back gets a new one. Errors: as npu::backend.
  static std::shared_ptr<Runtime> of(const DevicePtr& device);

  explicit Runtime(DevicePtr device);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const isa::Caps& caps() const noexcept { return caps_; }
  const DevicePtr& device() const noexcept { return device_; }
  MemRegion& memory() const { return device_->mem_region("etm"); }

  /// What follows needs the lock: one job at a time, whichever backend it belongs to.
  /// Errc::forked_process in a child of the process that opened the device.
  std::unique_lock<std::mutex> lock() const {
    control_.process().check(device_->url());
    return std::unique_lock(mutex_);
  }
  State state() {
    if (is_gone()) state_ = State::removed;
    return state_;
  }
  void set_state(State state) noexcept { state_ = state; }

  /// Makes the ring accept commands again if somebody has reset the device since the last run.
  /// Errc::device_timeout where that takes longer than `patience`.
  void prepare(std::chrono::nanoseconds patience);
  /// Submits the commands and waits for them, or until `interrupt` (may be null) is due. Counts what
  /// happens in `counters`.
  Outcome run(std::span<const isa::Descriptor> commands, std::chrono::nanoseconds deadline,
              const Interrupt* interrupt, Counters& counters);
  /// Halts, resets, waits until that is complete, and sets up the ring. False when the device is
  /// gone; Errc::device_timeout when it takes longer than `patience`.
  bool reset(std::chrono::nanoseconds patience, Counters& counters);

  std::uint64_t counter(std::uint32_t offset) const;  ///< a latched 64-bit counter
  std::uint32_t read(std::uint32_t reg) const;
  void write(std::uint32_t reg, std::uint32_t value) const;
  void latch_counters() const { write(isa::reg::perf_latch, 1); }

  /// Registers that tell what the engines were doing.
  std::string dump() const;

 private:
  void set_up();
  bool is_set_up() const;
  bool is_enabled() const { return isa::bits::enable.get(read(isa::reg::control)) != 0; }
  void await_reset(std::chrono::nanoseconds patience) const;
  void restart_fences();
  void submit(std::span<const isa::Descriptor> commands);
  Outcome wait(std::uint32_t fence, std::chrono::steady_clock::time_point until,
               const Interrupt* interrupt, Counters& counters);
  Outcome fault() const;
  bool is_gone() const { return read(isa::reg::id) == isa::gone; }

  DevicePtr device_;
  isa::DeviceControl& control_;
  RegRegion& registers_;
  isa::Caps caps_;
  MemChunk ring_;
  std::uint32_t tail_ = 0;
  std::uint32_t fence_ = 0;  // the last one asked for
  mutable std::mutex mutex_;
  std::atomic<State> state_ = State::open;
};

}  // namespace tenon::npu
