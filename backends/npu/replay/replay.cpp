#include "trace_line.hpp"

#include <tenon/error.hpp>
#include <tenon/npu/isa/control.hpp>
#include <tenon/npu/isa/memory_map.hpp>
#include <tenon/npu/isa/registers.hpp>
#include <tenon/npu/replay.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <thread>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

namespace reg = isa::reg;
namespace bits = isa::bits;
using Clock = std::chrono::steady_clock;

/// Longer lines are not from a trace, which writes memory in lines of 4 KiB.
constexpr std::size_t longest_line = 1 << 16;

/// How a register's value is compared with the one in the trace.
enum class Compared : std::uint8_t {
  equal,   ///< the same at once
  rises,   ///< at least that, in time
  bits,    ///< those bits, in time
  skipped  ///< depends on how fast the device is
};

/// Bits of status and of others that stay once they are set.
struct Rule {
  std::uint32_t offset;
  Compared compared;
  std::uint32_t mask;
};
constexpr Rule rules[] = {
    {reg::status, Compared::bits, bits::fault.mask() | bits::stuck.mask()},
    {reg::irq_status, Compared::bits, 0xFFFFFFFF},
    {reg::dma_status, Compared::bits, bits::dma_done.mask() | bits::dma_error.mask()},
    {reg::fence, Compared::rises, 0xFFFFFFFF},
    {reg::freq_khz, Compared::skipped, 0},
    {reg::ddr_kbps, Compared::skipped, 0},
    {reg::ddr_latency, Compared::skipped, 0},
    {reg::cmdq_head, Compared::skipped, 0},
    {reg::ld_pc, Compared::skipped, 0},
    {reg::ex_pc, Compared::skipped, 0},
    {reg::st_pc, Compared::skipped, 0},
    {reg::ld_state, Compared::skipped, 0},
    {reg::ex_state, Compared::skipped, 0},
    {reg::st_state, Compared::skipped, 0},
    {reg::tokens_prev, Compared::skipped, 0},
    {reg::tokens_next, Compared::skipped, 0},
};

/// Counters of work done, which do not depend on time.
constexpr std::uint32_t work_counters[] = {
    isa::perf::macs,          isa::perf::instructions,    isa::perf::ddr_read,
    isa::perf::ddr_write,     isa::perf::input_reads,     isa::perf::weight_reads,
    isa::perf::output_writes, isa::perf::programs,        isa::perf::layer_ddr_read,
    isa::perf::layer_macs,    isa::perf::layer_ddr_write,
};

Rule rule_of(std::uint32_t offset) {
  const auto found = std::ranges::find(rules, offset, &Rule::offset);
  if (found != std::end(rules)) return *found;
  const bool counter = std::ranges::any_of(isa::counters(), [&](const isa::RegisterInfo& info) {
    return info.offset == (offset & ~7U);
  });
  const bool work = std::ranges::find(work_counters, offset & ~7U) != std::end(work_counters);
  return {offset, counter && !work ? Compared::skipped : Compared::equal, 0xFFFFFFFF};
}

std::string register_name(std::uint32_t offset) {
  if (const isa::RegisterInfo* info = isa::find_register(offset)) return std::string(info->name);
  for (const isa::RegisterInfo& info : isa::counters()) {
    if (info.offset == (offset & ~7U)) {
      return fmt::format("{}{}", info.name, offset % 8 == 0 ? "" : " (upper half)");
    }
  }
  return fmt::format("register {:03X}", offset);
}

class Replay {
 public:
  Replay(Device& device, const ReplayOptions& options)
      : device_(device), options_(options), registers_(device.reg_region("npu")) {}

  ReplayReport run(std::istream& trace) {
    std::string text;
    while (!report_.gave_up && read_line(trace, text)) {
      ++report_.lines;
      if (text.empty() || text[0] == '#') continue;
      follow(parse_trace_line(text, report_.lines));
    }
    return std::move(report_);
  }

 private:
  bool read_line(std::istream& trace, std::string& text) const {
    text.clear();
    for (int c = trace.get(); c != std::istream::traits_type::eof(); c = trace.get()) {
      if (c == '\n') return true;
      if (text.size() == longest_line) {
        throw Error(Errc::syntax, fmt::format("trace:{}", report_.lines + 1),
                    fmt::format("a line of more than {} characters", longest_line));
      }
      text.push_back(static_cast<char>(c));
    }
    return !text.empty();
  }

  void follow(const TraceLine& line) {
    const auto offset = static_cast<std::uint32_t>(line.address);
    switch (line.kind) {
      case TraceLine::Kind::register_write:
        write(offset, line.value);
        break;
      case TraceLine::Kind::register_read:
        compare(offset, line.value);
        break;
      case TraceLine::Kind::interrupt:
        await(reg::irq_status, "interrupts", line.value,
              [&](std::uint32_t now) { return (now & line.value) == line.value; });
        raised_ |= line.value;
        break;
      case TraceLine::Kind::fault:
        await(reg::error, "error", offset, [&](std::uint32_t now) { return now == offset; });
        break;
      case TraceLine::Kind::memory_write:
        region(line.address).write(MemPtr(line.address), line.bytes.data(), line.bytes.size());
        report_.bytes_written += line.bytes.size();
        break;
      case TraceLine::Kind::memory_read:
        compare(line.address, line.bytes);
        break;
      case TraceLine::Kind::command:
        break;  // done by the device itself
    }
  }

  void write(std::uint32_t offset, std::uint32_t value) {
    if (offset == reg::irq_status) {
      value &= raised_;  // an early interrupt stays pending until the trace has it
      raised_ &= ~value;
    }
    registers_.write(offset, value, true);
    ++report_.register_writes;
    if (offset != reg::control || bits::reset.get(value) == 0) return;
    await(reg::status, "status", 0,
          [](std::uint32_t now) { return bits::resetting.get(now) == 0; });
  }

  MemRegion& region(std::uint64_t address) {
    return device_.mem_region(address >= isa::ocm_base   ? "ocm"
                              : address >= isa::etm_base ? "etm"
                                                         : "xchg");
  }

  void compare(std::uint32_t offset, std::uint32_t then) {
    const Rule rule = rule_of(offset);
    switch (rule.compared) {
      case Compared::skipped:
        ++report_.registers_skipped;
        return;
      case Compared::equal: {
        const std::uint32_t now = read(offset);
        if (now != then) differs(register_name(offset), now, then);
        break;
      }
      case Compared::rises:
        await(offset, register_name(offset), then, [&](std::uint32_t now) { return now >= then; });
        break;
      case Compared::bits: {
        const std::uint32_t wanted = then & rule.mask;
        if (wanted == 0) break;  // events may come earlier here than in the trace
        await(offset, register_name(offset), then,
              [&](std::uint32_t now) { return (now & wanted) == wanted; });
        break;
      }
    }
    ++report_.registers_compared;
  }

  void compare(std::uint64_t address, const std::vector<std::byte>& then) {
    std::vector<std::byte> now(then.size());
    region(address).read(now.data(), MemPtr(address), now.size());
    report_.bytes_compared += then.size();
    const auto [a, b] = std::ranges::mismatch(now, then);
    if (a == now.end()) return;
    std::size_t others = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i] != then[i]) ++others;
    }
    add(fmt::format("byte {:#x} of memory is {:02X}, was {:02X}; {} of {} bytes differ",
                    address + static_cast<std::uint64_t>(a - now.begin()),
                    static_cast<unsigned>(*a), static_cast<unsigned>(*b), others, now.size()));
  }

  std::uint32_t read(std::uint32_t offset) const {
    const auto value = static_cast<std::uint32_t>(registers_.read(offset, true));
    if (value == isa::gone && registers_.read(reg::id, true) == isa::gone) {
      throw Error(Errc::device_lost, device_.url(),
                  fmt::format("the device is gone at line {} of the trace", report_.lines));
    }
    return value;
  }

  void await(std::uint32_t offset, const std::string& name, std::uint32_t then,
             const std::function<bool(std::uint32_t)>& reached) {
    ++report_.waits;
    const auto until = Clock::now() + options_.timeout;
    std::uint32_t now = read(offset);
    while (!reached(now)) {
      if (Clock::now() >= until) return differs(name, now, then);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      now = read(offset);
    }
  }

  void differs(const std::string& name, std::uint32_t now, std::uint32_t then) {
    add(fmt::format("{} is {:08X}, was {:08X}", name, now, then));
  }
  void add(std::string what) {
    report_.differences.push_back({report_.lines, std::move(what)});
    report_.gave_up = report_.differences.size() >= options_.max_differences;
  }

  Device& device_;
  const ReplayOptions& options_;
  RegRegion& registers_;
  std::uint32_t raised_ = 0;  ///< interrupts of the trace that its driver has not acknowledged yet
  ReplayReport report_;
};

}  // namespace

ReplayReport replay(Device& device, std::istream& trace, const ReplayOptions& options) {
  if (dynamic_cast<isa::DeviceControl*>(&device) == nullptr) {
    throw Error(Errc::bad_argument, device.url(),
                fmt::format("a device of protocol {} is no NPU", device.protocol()));
  }
  return Replay(device, options).run(trace);
}

}  // namespace tenon::npu
