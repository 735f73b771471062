#include "runtime.hpp"

#include <tenon/error.hpp>
#include <tenon/log.hpp>

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

/// A power of two. A device whose memory for it is small gets a smaller one.
constexpr std::uint32_t most_ring_entries = 1024;
constexpr std::uint32_t least_ring_entries = 64;
/// Bytes of device memory that are read at once where all of an image are compared.
constexpr std::size_t checked_at_once = 1 << 20;
constexpr std::uint32_t last_fence = 0xFFFF0000;
/// Interval of polling the fence while an interrupt is awaited: how late a lost one is noticed.
constexpr std::chrono::milliseconds fence_poll_interval{20};
/// Interval of polling a reset that is under way.
constexpr std::chrono::microseconds reset_poll_interval{20};
/// How long a device may be in a reset that nobody here asked for.
constexpr std::chrono::seconds foreign_reset{1};
/// How long an idle device may take to reach its first fence, where the deadline is short or long.
constexpr std::chrono::seconds least_first_fence{1}, first_fence{5};

bool is_run(const isa::Descriptor& command) {
  return command.kind == static_cast<std::uint32_t>(isa::Command::run);
}

bool is_due(const Interrupt* interrupt) { return interrupt != nullptr && interrupt->is_due(); }

constexpr std::uint32_t wanted_irqs = isa::bits::irq_fence.mask() | isa::bits::irq_fault.mask();

isa::DeviceControl& control_of(Device& device) {
  auto* control = dynamic_cast<isa::DeviceControl*>(&device);
  if (control == nullptr) {
    throw Error(Errc::bad_argument, device.url(),
                fmt::format("a device of protocol {} is no NPU", device.protocol()));
  }
  return *control;
}

MemChunk new_ring(MemRegion& xchg) {
  for (std::uint32_t entries = most_ring_entries;; entries /= 2) {
    try {
      return xchg.malloc(std::uint64_t{entries} * isa::Descriptor::size_bytes, true, page_bytes);
    } catch (const Error& error) {
      if (error.code() != Errc::out_of_device_memory || entries == least_ring_entries) throw;
    }
  }
}

}  // namespace

DeviceImage::DeviceImage(MemRegion& region, std::vector<std::byte> bytes)
    : bytes_(std::move(bytes)), crc_(isa::crc32c(bytes_)) {
  if (bytes_.empty()) return;
  chunk_ = region.malloc(bytes_.size(), true, page_bytes);
  upload();
}

void DeviceImage::upload() const {
  if (!bytes_.empty()) chunk_.write(bytes_.data(), 0, bytes_.size());
}

bool DeviceImage::is_intact() const {
  if (bytes_.empty()) return true;
  std::vector<std::byte> found(std::min(bytes_.size(), checked_at_once));
  std::uint32_t crc = 0;
  for (std::size_t done = 0; done < bytes_.size(); done += found.size()) {
    const auto piece = std::span(found).first(std::min(found.size(), bytes_.size() - done));
    chunk_.read(piece.data(), done, piece.size());
    crc = isa::crc32c(piece, crc);
  }
  return crc == crc_;
}

std::shared_ptr<Runtime> Runtime::of(const DevicePtr& device) {
  isa::DeviceControl& control = control_of(*device);
  control.process().check(device->url());
  isa::DeviceControl::DriverSlot& slot = control.driver_slot();
  std::shared_ptr<Runtime> living;  // given back after the lock: its destructor takes it
  const std::scoped_lock lock(slot.mutex);
  living = std::static_pointer_cast<Runtime>(slot.driver.lock());
  if (living != nullptr && living->state() != State::removed) return living;
  auto made = std::make_shared<Runtime>(device);
  slot.driver = made;
  slot.owner = made.get();
  return made;
}

Runtime::Runtime(DevicePtr device)
    : device_(std::move(device)),
      control_(control_of(*device_)),
      registers_(device_->reg_region("npu")),
      caps_(isa::read_caps(registers_)),
      ring_(new_ring(device_->mem_region("xchg"))),
      ring_entries_(static_cast<std::uint32_t>(ring_.size_bytes() / isa::Descriptor::size_bytes)) {
  if (const std::vector<std::string> odd = isa::odd_caps(caps_); !odd.empty()) {
    throw Error(Errc::device_error, device_->url(), fmt::format("{}", fmt::join(odd, "; ")));
  }
  await_reset(foreign_reset);
  // What somebody left behind that failed or still works would be the first run's.
  const std::uint32_t status = read(isa::reg::status);
  const bool is_at_rest =
      (status & (isa::bits::fault.mask() | isa::bits::stuck.mask() | isa::bits::busy.mask())) == 0;
  const std::uint32_t tail = read(isa::reg::cmdq_tail);
  // A ring of more entries than ours may have ended behind the end of ours.
  if (is_at_rest && read(isa::reg::cmdq_head) == tail && tail < ring_entries_) {
    set_up();
  } else {
    Counters nobodys;
    reset(foreign_reset, nobodys);
  }
}

Runtime::~Runtime() {
  if (!control_.process().is_this()) return;  // the ring is the parent's
  try {
    isa::DeviceControl::DriverSlot& slot = control_.driver_slot();
    const std::scoped_lock lock(slot.mutex);
    if (slot.owner != this) return;  // the device has another driver by now
    slot.owner = nullptr;
    if (state_ != State::removed && !is_gone()) write(isa::reg::control, 0);
  } catch (const std::exception& error) {
    log(LogLevel::warning, fmt::format("npu: {}", error.what()));
  }
}

std::uint32_t Runtime::read(std::uint32_t reg) const {
  return static_cast<std::uint32_t>(registers_.read(reg, true));
}
void Runtime::write(std::uint32_t reg, std::uint32_t value) const {
  registers_.write(reg, value, true);
}
std::uint64_t Runtime::counter(std::uint32_t offset) const {
  return read(offset) | std::uint64_t{read(offset + 4)} << 32;
}

void Runtime::set_up() {
  const std::uint64_t base = ring_.begin().addr();
  write(isa::reg::cmdq_base_lo, static_cast<std::uint32_t>(base));
  write(isa::reg::cmdq_base_hi, static_cast<std::uint32_t>(base >> 32));
  write(isa::reg::cmdq_size, ring_entries_);
  write(isa::reg::irq_status, 0xFFFFFFFF);
  write(isa::reg::irq_mask, wanted_irqs);
  write(isa::reg::control, isa::bits::enable.mask());
  tail_ = read(isa::reg::cmdq_tail);
  fence_ = reached_ = read(isa::reg::fence);
}

/// After a reset that somebody else may have asked for.
void Runtime::set_up_again() {
  const std::uint32_t before = reached_;
  set_up();
  if (reached_ < before || reached_ == 0) ++losses_;
}

/// A fence of 0 would not tell whether somebody has put it back. The next run resets a device that
/// does not reach it.
void Runtime::raise_first_fence(std::chrono::nanoseconds patience) {
  const auto wait = std::clamp<std::chrono::nanoseconds>(patience, least_first_fence, first_fence);
  const auto until = std::chrono::steady_clock::now() + wait;
  ring(append_fence(tail_, 0));
  while (read(isa::reg::fence) < fence_) {
    const bool has_fault = (read(isa::reg::status) & isa::bits::fault.mask()) != 0;
    const bool is_ours = is_set_up();  // if not, the fault is of what a reset has left of the ring
    if ((has_fault && is_ours) || std::chrono::steady_clock::now() >= until) {
      state_ = State::faulted;
      const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(wait);
      throw Error(
          Errc::device_timeout, device_->url(),
          has_fault ? fmt::format("a fault before the first command has ended; {}", dump())
                    : fmt::format("no command has ended after {} ms; {}", waited.count(), dump()));
    }
    if (!is_ours && !is_gone()) {
      write(isa::reg::control, isa::bits::reset.mask());  // the fault may come yet
      await_reset(patience);
      set_up_again();
      ring(append_fence(tail_, 0));
    }
    std::this_thread::sleep_for(reset_poll_interval);
  }
  reached_ = fence_;
}

// False after somebody else has reset the device.
bool Runtime::is_set_up() const {
  return read(isa::reg::cmdq_size) == ring_entries_ &&
         read(isa::reg::cmdq_base_lo) == static_cast<std::uint32_t>(ring_.begin().addr()) &&
         read(isa::reg::cmdq_tail) == tail_;
}

void Runtime::await_reset(std::chrono::nanoseconds patience) const {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (isa::bits::resetting.get(read(isa::reg::status)) != 0 && !is_gone()) {
    if (std::chrono::steady_clock::now() >= until) {
      throw Error(Errc::device_timeout, device_->url(),
                  fmt::format("a reset is not complete after {} ms",
                              std::chrono::duration<double, std::milli>(patience).count()));
    }
    std::this_thread::sleep_for(reset_poll_interval);
  }
}

void Runtime::reset(std::chrono::nanoseconds patience, Counters& counters) {
  ++counters.resets;
  write(isa::reg::control, isa::bits::enable.mask() | isa::bits::halt.mask());
  write(isa::reg::control, isa::bits::reset.mask());
  await_reset(patience);
  if (state() != State::removed) set_up_again();
}

bool Runtime::recover(std::chrono::nanoseconds patience, Counters& counters) {
  if (state() == State::removed) return false;
  if (!is_stopped_) reset(patience, counters);
  is_stopped_ = false;
  if (state() == State::removed) return false;
  state_ = State::open;
  return true;
}

void Runtime::stop(std::chrono::nanoseconds patience, Counters& counters) noexcept {
  if (!is_idle() || state_ != State::faulted || is_stopped_) return;
  try {
    reset(patience, counters);
    is_stopped_ = true;
  } catch (const std::exception& error) {
    log(LogLevel::warning, fmt::format("npu: {}", error.what()));
  }
}

void Runtime::prepare(std::chrono::nanoseconds patience) {
  await_reset(patience);
  if (is_gone()) return;
  if (!is_set_up() || read(isa::reg::fence) < reached_) set_up_again();
  if (fence_ > last_fence) restart_fences();
  if (reached_ == 0) raise_first_fence(patience);
}

// Odd while a reset is seen that nobody has dealt with: a run that begins then fails.
std::uint64_t Runtime::memory_epoch(std::chrono::nanoseconds patience) {
  if (state() == State::removed) return 2 * losses_;
  try {
    if (is_idle()) prepare(patience);
  } catch (const Error& error) {
    // The run meets it, too, and may repeat or fall back; results that are there stay.
    if (error.code() != Errc::device_timeout) throw;
  }
  return 2 * losses_ + (read(isa::reg::fence) < reached_ ? 1 : 0);
}

// The fence only rises, but for a reset of registers.
void Runtime::restart_fences() {
  device_->reset(1);
  set_up();
  if (fence_ <= last_fence) return;
  throw Error(Errc::device_error, device_->url(),
              fmt::format("the fence is {:#x} after a reset of the registers", fence_));
}

bool Runtime::has_room(std::size_t commands, bool alone) const {
  if (is_taken_) return false;
  if (in_flight_.empty()) return alone || waiting_alone_ == 0;
  if (alone || waiting_alone_ > 0 || fence_ > last_fence) return false;
  const std::uint32_t used = (tail_ + ring_entries_ - in_flight_.front()->first) % ring_entries_;
  // A full ring would look empty. Whoever waits for a run finds out that the device was reset.
  return used + commands + 2 < ring_entries_ && is_set_up();
}

bool Runtime::enter(Lock& lock, std::size_t commands, bool alone, const Interrupt* interrupt) {
  struct Waiting {
    explicit Waiting(int& waiting) : count(waiting) { ++count; }
    ~Waiting() { --count; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    int& count;
  };
  std::optional<Waiting> waiting;
  if (alone) waiting.emplace(waiting_alone_);
  bool is_let_in = true;
  while (is_let_in && state() != State::removed && !has_room(commands, alone)) {
    changed_.wait_for(lock, fence_poll_interval);
    is_let_in = !is_due(interrupt);
  }
  if (!is_let_in) changed_.notify_all();
  return is_let_in;
}

/// Returns the tail behind it; the device sees the command once ring() tells it.
std::uint32_t Runtime::append(std::uint32_t tail, const isa::Descriptor& command) {
  const auto bytes = isa::pack(command);
  ring_.write(bytes.data(), std::uint64_t{tail} * bytes.size(), bytes.size());
  return (tail + 1) % ring_entries_;
}

std::uint32_t Runtime::append_fence(std::uint32_t tail, std::uint32_t flags) {
  isa::Descriptor fence;
  fence.kind = static_cast<std::uint32_t>(isa::Command::fence);
  fence.flags = flags;
  fence.arg0 = ++fence_;
  return append(tail, fence);
}

void Runtime::ring(std::uint32_t tail) {
  tail_ = tail;
  write(isa::reg::cmdq_tail, tail_);
}

/// The commands, then the fence. Until all are written the ring stays as it is.
void Runtime::submit(Ticket& ticket) {
  ticket.first = tail_;
  std::uint32_t tail = tail_;
  for (const isa::Descriptor& command : ticket.commands) tail = append(tail, command);
  tail = append_fence(tail, isa::fence_irq);
  ticket.fence = fence_;
  for (Ticket* other : in_flight_) other->shared = true;
  ticket.shared = !in_flight_.empty();
  ticket.until = std::chrono::steady_clock::now() + ticket.deadline;
  in_flight_.push_back(&ticket);
  for (const Ticket* one : in_flight_) {
    one->counters->most_in_flight =
        std::max<std::uint64_t>(one->counters->most_in_flight, in_flight_.size());
  }
  state_ = State::running;
  ring(tail);
}

Outcome Runtime::run(Lock& lock, std::span<const isa::Descriptor> commands, bool alone,
                     std::chrono::nanoseconds deadline, const Interrupt* interrupt,
                     Counters& counters) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  if (is_gone()) return {Outcome::Kind::removed, {}, -1, {}, "the device is gone"};
  if (is_idle()) {
    write(isa::reg::irq_status, wanted_irqs);
    write(isa::reg::control, isa::bits::enable.mask() | isa::bits::perf_clear.mask());
  }
  is_taken_ = alone;
  int runs_before = 0;
  Outcome outcome;
  for (std::size_t begin = 0; begin < commands.size() || begin == 0; begin += piece()) {
    Ticket ticket;
    ticket.commands = commands.subspan(begin, std::min(piece(), commands.size() - begin));
    ticket.deadline = until - std::chrono::steady_clock::now();
    if (begin == 0) ticket.deadline = deadline;
    ticket.counters = &counters;
    try {
      submit(ticket);
      await(lock, ticket, interrupt);
    } catch (...) {
      is_taken_ = false;
      throw_out();
      throw;
    }
    outcome = std::move(*ticket.outcome);
    outcome.shared = ticket.shared;
    if (outcome.run >= 0) outcome.run += runs_before;
    if (outcome.kind != Outcome::Kind::done) break;
    runs_before += static_cast<int>(std::ranges::count_if(ticket.commands, is_run));
  }
  if (alone) is_taken_ = false;
  return outcome;
}

void Runtime::await(Lock& lock, Ticket& ticket, const Interrupt* interrupt) {
  while (!ticket.outcome) {
    if (is_watched_) {
      changed_.wait_for(lock, fence_poll_interval);
    } else {
      const std::uint32_t pending = wait_irq(lock);
      look_at_device(ticket, (pending & isa::bits::irq_fence.mask()) != 0, interrupt);
    }
    if (!ticket.outcome && is_due(interrupt)) {
      fail(ticket, {Outcome::Kind::interrupted, {}, -1, {}, "interrupted"});
    }
  }
  changed_.notify_all();  // another may have to watch now
}

/// Waits for interrupts, without the lock.
std::uint32_t Runtime::wait_irq(Lock& lock) {
  const auto left = in_flight_.front()->until - std::chrono::steady_clock::now();
  const auto time =
      std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0), fence_poll_interval);
  is_watched_ = true;
  lock.unlock();
  try {
    const std::uint32_t pending = control_.wait_irq(wanted_irqs, time);
    lock.lock();
    is_watched_ = false;
    return pending;
  } catch (...) {
    lock.lock();
    is_watched_ = false;
    throw;
  }
}

/// Gives outcomes to runs that have ended, one way or another. `is_signalled`: by an interrupt.
void Runtime::look_at_device(const Ticket& watcher, bool is_signalled, const Interrupt* interrupt) {
  if (is_gone()) {
    state_ = State::removed;
    for (Ticket* ticket : in_flight_) {
      ticket->outcome = {Outcome::Kind::removed, {}, -1, {}, "the device went away during a run"};
    }
    in_flight_.clear();
    changed_.notify_all();
    return;
  }
  // Read before the fence: of a device that has stopped, the first run whose fence is not reached is
  // the one that stopped it.
  const std::uint32_t status = read(isa::reg::status);
  // A fence that is reached after the interrupt is cleared raises it again.
  if (is_signalled) write(isa::reg::irq_status, isa::bits::irq_fence.mask());
  while (complete(watcher, is_signalled)) is_signalled = true;
  if (in_flight_.empty() || is_due(interrupt)) return;
  if (auto failure = failure_of_head(status)) fail(*in_flight_.front(), std::move(*failure));
}

/// Ends the runs whose fence is reached; false when there are none.
bool Runtime::complete(const Ticket& watcher, bool is_signalled) {
  const std::uint32_t reached = read(isa::reg::fence);
  if (in_flight_.empty() || reached < in_flight_.front()->fence) return false;
  if (reached == isa::gone) return false;  // the next poll tells
  if (reached > fence_) {
    throw Error(
        Errc::device_error, device_->url(),
        fmt::format("the fence is {:#x}, and the last one asked for {:#x}", reached, fence_));
  }
  reached_ = reached;
  // Asked again: the interrupt may have come after the wait ended.
  if (!is_signalled && (read(isa::reg::irq_status) & isa::bits::irq_fence.mask()) == 0) {
    ++in_flight_.front()->counters->lost_interrupts;
    log(LogLevel::warning, "npu: a fence was reached without its interrupt");
  }
  write(isa::reg::irq_status, isa::bits::irq_fence.mask());
  while (!in_flight_.empty() && reached >= in_flight_.front()->fence) {
    Ticket& ticket = *in_flight_.front();
    // Others may come before its thread has the lock.
    ticket.shared = ticket.shared || (&ticket != &watcher && !is_taken_);
    ticket.outcome.emplace();
    in_flight_.pop_front();
  }
  if (in_flight_.empty()) {
    state_ = State::open;
  } else {
    in_flight_.front()->until = std::chrono::steady_clock::now() + in_flight_.front()->deadline;
  }
  changed_.notify_all();
  return true;
}

std::optional<Outcome> Runtime::failure_of_head(std::uint32_t status) const {
  const Ticket& head = *in_flight_.front();
  // A reset while the ring was set up leaves a part of it, at which the device stops.
  const bool is_fault = isa::bits::fault.get(status) != 0;
  if (is_fault && is_set_up()) return fault();
  const bool stuck = isa::bits::stuck.get(status) != 0;
  const bool was_reset = is_fault || isa::bits::resetting.get(status) != 0 || !is_enabled();
  if (!stuck && !was_reset && std::chrono::steady_clock::now() < head.until) return std::nullopt;
  Outcome outcome;
  outcome.kind = Outcome::Kind::timeout;
  outcome.held = {read(isa::reg::ex_pc), read(isa::reg::ld_pc), read(isa::reg::st_pc)};
  outcome.message = fmt::format("{} while waiting for fence {}; {}",
                                stuck       ? "every engine waits for a token"
                                : was_reset ? "somebody else reset the device"
                                            : "the deadline passed",
                                head.fence, dump());
  return outcome;
}

/// Ends a run in the ring, and throws out the others: the device has to be reset.
void Runtime::fail(Ticket& ticket, Outcome outcome) {
  if (&ticket == in_flight_.front() && outcome.kind != Outcome::Kind::interrupted) {
    // The head stands at the command that was worked on.
    const std::uint32_t head = read(isa::reg::cmdq_head);
    const std::size_t at = (head + ring_entries_ - ticket.first) % ring_entries_;
    const auto reached = ticket.commands.first(std::min(at + 1, ticket.commands.size()));
    outcome.run = static_cast<int>(std::ranges::count_if(reached, is_run)) - 1;
  }
  ticket.outcome = std::move(outcome);
  throw_out();
}

void Runtime::throw_out() {
  for (Ticket* ticket : in_flight_) {
    if (ticket->outcome) continue;
    ticket->outcome.emplace();
    ticket->outcome->kind = Outcome::Kind::thrown_out;
    ++ticket->counters->thrown_out;
  }
  in_flight_.clear();
  is_stopped_ = false;
  if (state_ == State::running) state_ = State::faulted;  // the next run begins with a reset
  changed_.notify_all();
}

Outcome Runtime::fault() const {
  const std::uint64_t address =
      read(isa::reg::error_addr_lo) | std::uint64_t{read(isa::reg::error_addr_hi)} << 32;
  Outcome outcome;
  outcome.kind = Outcome::Kind::fault;
  outcome.error = static_cast<isa::ErrorCode>(read(isa::reg::error));
  const std::uint32_t engine = isa::bits::error_engine.get(read(isa::reg::error_info));
  if (engine >= 1 && engine <= 3) outcome.held[0] = read(isa::reg::error_pc);
  outcome.message =
      fmt::format("error {} at address {:#x}, instruction {}; {}", isa::name(outcome.error),
                  address, read(isa::reg::error_pc), dump());
  return outcome;
}

std::string Runtime::dump() const {
  const auto engine = [&](const char* name, std::uint32_t pc, std::uint32_t state) {
    const std::uint32_t value = read(state);
    const auto kind = static_cast<isa::EngineState>(isa::bits::engine_state.get(value));
    return fmt::format("{} {} at {} with {} queued", name, isa::name(kind),
                       static_cast<std::int32_t>(read(pc)), isa::bits::engine_queue.get(value));
  };
  return fmt::format("status {:#x}, fence {}, ring {} of {}; {}; {}; {}; tokens {:#x} {:#x}",
                     read(isa::reg::status), read(isa::reg::fence), read(isa::reg::cmdq_head),
                     read(isa::reg::cmdq_tail), engine("LD", isa::reg::ld_pc, isa::reg::ld_state),
                     engine("EX", isa::reg::ex_pc, isa::reg::ex_state),
                     engine("ST", isa::reg::st_pc, isa::reg::st_state), read(isa::reg::tokens_prev),
                     read(isa::reg::tokens_next));
}

}  // namespace tenon::npu
