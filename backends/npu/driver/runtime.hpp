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
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::npu {

/// What the device's memory is aligned to.
inline constexpr std::uint64_t page_bytes = 4096;

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
  /// thrown_out: the device stopped because of another run, before it reached this one's end.
  enum class Kind : std::uint8_t { done, timeout, fault, removed, interrupted, thrown_out };
  Kind kind = Kind::done;
  isa::ErrorCode error = isa::ErrorCode::none;
  int run = -1;  ///< which of the RUN commands was worked on; -1: none yet
  /// Instructions that LD, EX and ST held then; all ones: none. A fault's own comes first.
  std::array<std::uint32_t, 3> held{isa::gone, isa::gone, isa::gone};
  std::string message;  ///< what happened, with registers
  /// Others were in the ring meanwhile: the device's counters are not those of this run alone.
  bool shared = false;
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

  using Lock = std::unique_lock<std::mutex>;
  /// What follows needs the lock. Errc::forked_process in a child of the process that opened the
  /// device.
  Lock lock() const {
    control_.process().check(device_->url());
    return Lock(mutex_);
  }
  State state() {
    if (is_gone()) state_ = State::removed;
    return state_;
  }
  void set_state(State state) noexcept { state_ = state; }

  /// Whether so many commands can be in the ring with others.
  bool fits(std::size_t commands) const noexcept { return commands <= piece(); }
  /// Waits until so many commands may be submitted: when no run is in the ring, or, unless `alone`,
  /// behind those that are. While somebody waits to be alone, nobody else is let in. False when
  /// `interrupt` (may be null) is due. Who is let in keeps the lock until run().
  bool enter(Lock& lock, std::size_t commands, bool alone, const Interrupt* interrupt);
  /// No run is in the ring: what is in device memory may be changed, and the device reset.
  bool is_idle() const noexcept { return in_flight_.empty(); }

  /// Idle, after a failure: halts, resets, waits until that is complete, and sets up the ring. False
  /// when the device is gone; Errc::device_timeout when it takes longer than `patience`.
  bool recover(std::chrono::nanoseconds patience, Counters& counters);
  /// After a run that may still go on: as recover(), which has nothing left to do then. Without
  /// effect where another run has been let in since. Errors are recover()'s.
  void stop(std::chrono::nanoseconds patience, Counters& counters) noexcept;
  /// Idle: makes the ring accept commands again if somebody has reset the device since the last
  /// run. Errc::device_timeout where that takes longer than `patience`.
  void prepare(std::chrono::nanoseconds patience);
  /// How often somebody else may have cleared the device's memory, as far as this has seen: a reset that clears memory puts the fence back, too.
  std::uint64_t losses() const noexcept { return losses_; }
  /// As MemoryWatch::memory_epoch(). Errors are prepare()'s.
  std::uint64_t memory_epoch(std::chrono::nanoseconds patience);
  /// Submits the commands and waits for them, or until `interrupt` (may be null) is due. The lock is
  /// released meanwhile; a run that was alone all the time still has it from its end on. `deadline`:
  /// from when the device has ended the runs before it. Counts what happens in `counters`.
  Outcome run(Lock& lock, std::span<const isa::Descriptor> commands, bool alone,
              std::chrono::nanoseconds deadline, const Interrupt* interrupt, Counters& counters);
  /// Throws out all runs in the ring, after an error that leaves the device in an unknown state.
  void throw_out();

  std::uint64_t counter(std::uint32_t offset) const;  ///< a latched 64-bit counter
  std::uint32_t read(std::uint32_t reg) const;
  void write(std::uint32_t reg, std::uint32_t value) const;
  void latch_counters() const { write(isa::reg::perf_latch, 1); }

  /// Registers that tell what the engines were doing.
  std::string dump() const;

 private:
  /// A run in the ring, or a part of one.
  struct Ticket {
    std::span<const isa::Descriptor> commands;
    std::uint32_t first = 0;  // of its entries
    std::uint32_t fence = 0;
    bool shared = false;
    std::chrono::nanoseconds deadline{};
    std::chrono::steady_clock::time_point until{};  // once it is at the head
    Counters* counters = nullptr;
    std::optional<Outcome> outcome;
  };

  /// Commands that are submitted at once; the ring takes fewer than a run may have.
  std::size_t piece() const noexcept { return ring_entries_ / 2; }
  void set_up();
  void set_up_again();
  void raise_first_fence(std::chrono::nanoseconds patience);
  bool is_set_up() const;
  bool is_enabled() const { return isa::bits::enable.get(read(isa::reg::control)) != 0; }
  bool has_room(std::size_t commands, bool alone) const;
  void reset(std::chrono::nanoseconds patience, Counters& counters);
  void await_reset(std::chrono::nanoseconds patience) const;
  void restart_fences();
  std::uint32_t append(std::uint32_t tail, const isa::Descriptor& command);
  std::uint32_t append_fence(std::uint32_t tail, std::uint32_t flags);
  void ring(std::uint32_t tail);
  void submit(Ticket& ticket);
  void await(Lock& lock, Ticket& ticket, const Interrupt* interrupt);
  std::uint32_t wait_irq(Lock& lock);
  void look_at_device(const Ticket& watcher, bool is_signalled, const Interrupt* interrupt);
  bool complete(const Ticket& watcher, bool is_signalled);
  std::optional<Outcome> failure_of_head(std::uint32_t status) const;
  void fail(Ticket& ticket, Outcome outcome);
  Outcome fault() const;
  bool is_gone() const { return read(isa::reg::id) == isa::gone; }

  DevicePtr device_;
  isa::DeviceControl& control_;
  RegRegion& registers_;
  isa::Caps caps_;
  MemChunk ring_;
  std::uint32_t ring_entries_;
  std::uint32_t tail_ = 0;
  std::uint32_t fence_ = 0;    // the last one asked for
  std::uint32_t reached_ = 0;  // the last one that the device was seen to reach
  std::uint64_t losses_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // what is in the ring, and who may enter
  std::deque<Ticket*> in_flight_;    // in the order of the ring; of threads in run()
  bool is_watched_ = false;          // one of them waits for interrupts, the others for changed_
  int waiting_alone_ = 0;            // threads that wait in enter()
  bool is_taken_ = false;            // by a run that is alone
  bool is_stopped_ = false;          // reset since the last failure
  std::atomic<State> state_ = State::open;
};

}  // namespace tenon::npu
