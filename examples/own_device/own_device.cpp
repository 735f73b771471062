#include "own_device.hpp"

#include "interpreter.hpp"
#include "memory.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/npu/isa/address.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/registers.hpp>

#include <array>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace own {
namespace {

using namespace tenon;
namespace reg = isa::reg;
namespace bits = isa::bits;

/// The bank `npu` and what is behind it.
class Registers final : public RegRegion {
 public:
  Registers(Memory& memory, const isa::OwnerProcess& process)
      : RegRegion("npu", isa::npu_registers_base, isa::register_bank_bytes),
        memory_(memory),
        process_(process) {}

  std::uint64_t read(std::uint64_t address, bool relative) const override {
    process_.check(name());
    const auto offset = static_cast<std::uint32_t>(offset_of(address, relative));
    const std::scoped_lock lock(mutex_);
    if (offset % 4 == 0) return value_of(offset);
    bad_register(offset);
    return 0;
  }

  void write(std::uint64_t address, std::uint64_t value, bool relative) override {
    process_.check(name());
    const auto offset = static_cast<std::uint32_t>(offset_of(address, relative));
    const std::scoped_lock lock(mutex_);
    set(offset, static_cast<std::uint32_t>(value));
  }

  std::uint32_t wait_irq(std::uint32_t mask, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto pending = [&] { return values_[reg::irq_status] & values_[reg::irq_mask] & mask; };
    raised_.wait_for(lock, timeout, [&] { return pending() != 0; });
    return pending();
  }

  void reset(int level) {
    const std::scoped_lock lock(mutex_);
    clear();
    if (level > 0) {
      values_[reg::fence] = 0;
      cycles_ = latched_cycles_ = 0;
    }
    if (level < 2) return;
    for (auto* bytes : {&memory_.etm, &memory_.xchg, &memory_.ocm}) {
      std::memset(bytes->data(), 0, bytes->size());
    }
  }

 private:
  std::uint32_t value_of(std::uint32_t offset) const {
    switch (offset) {
      case reg::id:
        return isa::device_id;
      case reg::version:
        return isa::version;
      case reg::caps0:
        return bits::array_rows.put(1) | bits::array_cols.put(1);
      case reg::caps1:
        return ocm_bytes;
      case reg::caps2:
        return acc_bytes;
      case reg::caps3:
        return bits::wbuf.put(1) | bits::coherent.put(1) | bits::queue_depth.put(1);
      case reg::freq_khz:
      case reg::ddr_kbps:
        return 1'000'000;
      case reg::ddr_mib:
        return etm_bytes >> 20;
      case reg::status: {
        const bool halt = bits::halt.get(values_[reg::control]) != 0;
        return bits::idle.put(!has_work()) | bits::halted.put(halt) |
               bits::fault.put(is_stopped()) | bits::stuck.put(stuck_);
      }
      case reg::ld_pc:
      case reg::ex_pc:
      case reg::st_pc:
        return 0xFFFFFFFF;  // between two accesses no engine holds an instruction
      case isa::perf::cycles:
        return static_cast<std::uint32_t>(latched_cycles_);
      case isa::perf::cycles + 4:
        return static_cast<std::uint32_t>(latched_cycles_ >> 32);
      default: {
        const auto found = values_.find(offset);
        return found == values_.end() ? 0 : found->second;
      }
    }
  }

  void set(std::uint32_t offset, std::uint32_t value) {
    const isa::RegisterInfo* const info = isa::find_register(offset);
    const bool is_dma = offset >= reg::dma_src_lo && offset <= reg::dma_status;  // it has none
    if (info == nullptr || info->access == isa::Access::ro || is_dma) return bad_register(offset);
    if (offset == reg::irq_status) {
      values_[offset] &= ~value;
    } else if (offset == reg::perf_latch) {
      latched_cycles_ = cycles_;
    } else if (offset == reg::control) {
      set_control(value);
    } else {
      values_[offset] = value;
    }
    if (offset >= reg::seg0_base_lo && offset <= reg::seg4_size_hi) {
      Window& window = segments_[(offset - reg::seg0_base_lo) / 16];
      window = {pair(offset & ~15U), pair((offset & ~15U) + 8)};
    }
    work();
  }

  void set_control(std::uint32_t value) {
    if (bits::reset.get(value) != 0) return clear();
    if (bits::perf_clear.get(value) != 0) cycles_ = 0;
    values_[reg::control] = value & (bits::enable.mask() | bits::halt.mask());
  }

  /// What a reset of level 0 does: of all that was written the fence stays.
  void clear() {
    const std::uint32_t fence = values_[reg::fence];
    values_.clear();
    values_[reg::fence] = fence;
    stuck_ = false;
    segments_ = {};
  }

  std::uint64_t pair(std::uint32_t offset) const {
    return values_[offset] | std::uint64_t{values_[offset + 4]} << 32;
  }

  void bad_register(std::uint32_t offset) const {
    if (values_[reg::error] != 0) return;
    values_[reg::error] = static_cast<std::uint32_t>(isa::ErrorCode::bad_reg);
    values_[reg::error_addr_lo] = offset;
  }

  void raise(std::uint32_t irq) {
    values_[reg::irq_status] |= irq;
    raised_.notify_all();
  }

  // ---- The ring

  bool is_stopped() const { return fault_error() != isa::ErrorCode::none; }
  isa::ErrorCode fault_error() const {
    const auto error = static_cast<isa::ErrorCode>(values_[reg::error]);
    return error == isa::ErrorCode::bad_reg ? isa::ErrorCode::none : error;
  }
  bool has_work() const { return values_[reg::cmdq_head] != values_[reg::cmdq_tail]; }
  bool may_work() const {
    const std::uint32_t control = values_[reg::control];
    return bits::enable.get(control) != 0 && bits::halt.get(control) == 0 && !stuck_ &&
           !is_stopped();
  }

  void work() {
    while (has_work() && may_work()) {
      const std::uint32_t head = values_[reg::cmdq_head];
      try {
        execute(command_at(head), head);
      } catch (const Stop& stop) {
        values_[reg::error] = static_cast<std::uint32_t>(stop.error);
        values_[reg::error_pc] = stop.pc;
        values_[reg::error_addr_lo] = static_cast<std::uint32_t>(stop.address);
        values_[reg::error_addr_hi] = static_cast<std::uint32_t>(stop.address >> 32);
        return raise(bits::irq_fault.mask());
      } catch (const Stuck&) {
        stuck_ = true;
        return;
      }
      values_[reg::cmdq_head] = (head + 1) % values_[reg::cmdq_size];
      if (!has_work()) raise(bits::irq_empty.mask());
    }
  }

  isa::Descriptor command_at(std::uint32_t head) {
    const std::uint32_t size = values_[reg::cmdq_size];
    const bool ring = std::has_single_bit(size) && size >= 2 && size <= 4096 &&
                      values_[reg::cmdq_tail] < size && pair(reg::cmdq_base_lo) % 64 == 0;
    if (!ring) throw Stop{isa::ErrorCode::bad_command, head};
    const std::uint64_t address =
        pair(reg::cmdq_base_lo) + std::uint64_t{head} * isa::Descriptor::size_bytes;
    bool reserved_clear = false;
    const auto command = isa::unpack<isa::Descriptor>(
        ddr(address, isa::Descriptor::size_bytes, head), &reserved_clear);
    if (!reserved_clear) throw Stop{isa::ErrorCode::bad_command, head, address};
    return command;
  }

  std::byte* ddr(std::uint64_t address, std::uint64_t size, std::uint32_t head) {
    std::byte* const found = memory_.at(address, size);
    if (found == nullptr) throw Stop{isa::ErrorCode::bus, head, address};
    return found;
  }

  void execute(const isa::Descriptor& command, std::uint32_t head) {
    const auto require = [&](bool good, isa::ErrorCode error) {
      if (!good) throw Stop{error, head, command.arg1};
    };
    const auto kind = static_cast<isa::Command>(command.kind);
    require(isa::is_value<isa::Command>(command.kind) &&
                (command.flags & ~(kind == isa::Command::fence ? isa::fence_irq : 0)) == 0,
            isa::ErrorCode::bad_command);
    ++cycles_;  // of a clock that ticks once per command and instruction
    switch (kind) {
      case isa::Command::nop:
        break;
      case isa::Command::run: {
        const Window& window = segments_[static_cast<std::size_t>(isa::Segment::instr)];
        require(command.arg0 % 64 == 0, isa::ErrorCode::bad_command);
        require(command.arg0 <= window.size && command.arg1 <= window.size - command.arg0,
                isa::ErrorCode::seg_limit);
        const std::byte* const program = ddr(window.base + command.arg0, command.arg1, head);
        cycles_ +=
            Interpreter(memory_, segments_).run({program, command.arg1}, values_[reg::fence]);
        break;
      }
      case isa::Command::copy: {
        std::byte* const to = ddr(command.arg0, command.arg2, head);
        const std::byte* const from = ddr(command.arg1, command.arg2, head);
        const std::uint64_t apart =
            std::max(command.arg0, command.arg1) - std::min(command.arg0, command.arg1);
        require(apart >= command.arg2, isa::ErrorCode::bad_command);
        std::memcpy(to, from, command.arg2);
        break;
      }
      case isa::Command::fence: {
        require(command.arg0 <= 0xFFFFFFFF, isa::ErrorCode::bad_command);
        std::uint32_t& fence = values_[reg::fence];
        fence = std::max(fence, static_cast<std::uint32_t>(command.arg0));
        if ((command.flags & isa::fence_irq) != 0) raise(bits::irq_fence.mask());
        break;
      }
      case isa::Command::timestamp:
        require(command.arg0 % 8 == 0, isa::ErrorCode::bad_command);
        std::memcpy(ddr(command.arg0, 8, head), &cycles_, 8);
        break;
      case isa::Command::segment:
        require(command.arg0 < segments_.size() && command.arg1 % 64 == 0 &&
                    command.arg1 + command.arg2 >= command.arg1,
                isa::ErrorCode::bad_command);
        segments_[command.arg0] = {command.arg1, command.arg2};
        break;
    }
  }

  Memory& memory_;
  const isa::OwnerProcess& process_;
  mutable std::mutex mutex_;
  std::condition_variable raised_;
  mutable std::map<std::uint32_t, std::uint32_t> values_;  // those not written are 0
  Segments segments_{};
  bool stuck_ = false;
  std::uint64_t cycles_ = 0, latched_cycles_ = 0;
};

class OwnDevice final : public Device, public isa::DeviceControl {
 public:
  explicit OwnDevice(const DeviceUrl& url) : Device(url.text) {
    url.check_keys({});
    declare(std::make_unique<Region>("xchg", isa::xchg_base, memory_.xchg, process()));
    declare(std::make_unique<Region>("etm", isa::etm_base, memory_.etm, process()), true);
    declare(std::make_unique<Region>("ocm", isa::ocm_base, memory_.ocm, process()));
    auto registers = std::make_unique<Registers>(memory_, process());
    registers_ = registers.get();
    declare(std::move(registers), true);
    init();
  }
  ~OwnDevice() override { deinit(); }

  std::string protocol() const override { return "own"; }
  std::map<std::string, std::string> version() const override { return {{"own", "1"}}; }
  std::map<std::string, std::string> params() const override { return {}; }
  void reset(int level) override {
    check_reset_level(level);
    process().check(url());
    registers_->reset(level);
  }

  std::uint32_t wait_irq(std::uint32_t mask, std::chrono::nanoseconds timeout) override {
    process().check(url());
    return registers_->wait_irq(mask, timeout);
  }
  void sync(const MemPtr&, std::uint64_t, Direction) override { process().check(url()); }

 private:
  Memory memory_;
  Registers* registers_ = nullptr;
};

}  // namespace

void register_own_device() {
  isa::register_address("own",
                        [](const DeviceUrl& url) { return std::make_shared<OwnDevice>(url); });
}

}  // namespace own
