#include "bench.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace tenon::testkit {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t code_bytes = 64 << 10;

}  // namespace

Bench::Bench(DevicePtr opened, const NpuCheckOptions& check_options, Findings& check_findings)
    : device(std::move(opened)),
      control(dynamic_cast<isa::DeviceControl&>(*device)),
      registers(device->reg_region("npu")),
      xchg(device->mem_region("xchg")),
      etm(device->mem_region("etm")),
      ocm(device->mem_region("ocm")),
      caps(isa::read_caps(registers)),
      options(check_options),
      findings(check_findings),
      data(etm.malloc(data_bytes, true, page)),
      ring_(xchg.malloc(std::uint64_t{ring_entries} * isa::Descriptor::size_bytes, true, page)),
      code_(etm.malloc(code_bytes, true, page)) {}

void Bench::look() const { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

void Bench::restart(int level) {
  device->reset(level);
  set_pair(isa::reg::cmdq_base_lo, ring_.begin().addr());
  set(isa::reg::cmdq_size, ring_entries);
  set(isa::reg::irq_status, 0xFFFFFFFF);
  set(isa::reg::irq_mask, isa::bits::irq_fence.mask() | isa::bits::irq_fault.mask());
  set(isa::reg::control, isa::bits::enable.mask());
  tail_ = 0;
  fence_ = get(isa::reg::fence);
}

void Bench::add(isa::Command kind, std::uint64_t arg0, std::uint64_t arg1, std::uint64_t arg2,
                std::uint32_t flags) {
  isa::Descriptor command;
  command.kind = static_cast<std::uint32_t>(kind);
  command.flags = flags;
  command.arg0 = arg0;
  command.arg1 = arg1;
  command.arg2 = arg2;
  const auto bytes = isa::pack(command);
  ring_.write(bytes.data(), std::uint64_t{tail_} * bytes.size(), bytes.size());
  tail_ = (tail_ + 1) % ring_entries;
}

std::uint32_t Bench::add_fence(bool interrupt) {
  add(isa::Command::fence, ++fence_, 0, 0, interrupt ? isa::fence_irq : 0);
  return fence_;
}

bool Bench::finish(std::string_view what, std::uint32_t fence) {
  ring();
  bool fault = false;
  const bool ended = await([&] {
    fault = isa::bits::fault.get(get(isa::reg::status)) != 0;
    return fault || get(isa::reg::fence) >= fence;
  });
  if (fault) {
    findings.add("{}: the device stopped with error {} at {}, expected to reach fence {}", what,
                 isa::name(static_cast<isa::ErrorCode>(get(isa::reg::error))),
                 get(isa::reg::error_pc), fence);
  } else if (!ended) {
    findings.add("{}: the fence is {} after {} ms, expected {}; status is {:#x}", what,
                 get(isa::reg::fence), options.patience.count(), fence, get(isa::reg::status));
  }
  return ended && !fault;
}

bool Bench::stop(std::string_view what, Stopped& stopped) {
  ring();
  const bool fault = await([&] { return isa::bits::fault.get(get(isa::reg::status)) != 0; });
  if (!fault) {
    findings.add("{}: no error after {} ms, expected that the device stops; status is {:#x}", what,
                 options.patience.count(), get(isa::reg::status));
    return false;
  }
  stopped.error = static_cast<isa::ErrorCode>(get(isa::reg::error));
  stopped.pc = get(isa::reg::error_pc);
  stopped.head = get(isa::reg::cmdq_head);
  return true;
}

void Bench::add_run(std::span<const std::byte> program) {
  code_.write(program.data(), 0, program.size());
  const auto segment = [&](isa::Segment which, const MemChunk& chunk, std::uint64_t bytes) {
    add(isa::Command::segment, static_cast<std::uint64_t>(which), chunk.begin().addr(), bytes);
  };
  segment(isa::Segment::instr, code_, (program.size() + 63) / 64 * 64);
  segment(isa::Segment::input, data, data_bytes);
  segment(isa::Segment::output, data, data_bytes);
  add(isa::Command::run, 0, program.size());
}

}  // namespace tenon::testkit
