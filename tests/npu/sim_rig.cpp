#include "sim_rig.hpp"

#include <tenon/backends/npu_sim.hpp>

#include <random>
#include <stdexcept>

namespace tenon::npu::testing {
namespace {

constexpr std::uint32_t ring_size = 16;
constexpr std::chrono::seconds patience{300};

DevicePtr open(const std::string& params) {
  register_npu_sim();
  return Device::open("npu://sim?ddr=64MiB&dma=1MiB" + (params.empty() ? "" : "&" + params));
}

}  // namespace

Rig::Rig(const std::string& params, std::uint64_t segment_bytes)
    : Rig(open(params), segment_bytes) {}

Rig::Rig(DevicePtr opened, std::uint64_t segment_bytes)
    : device(std::move(opened)),
      control(dynamic_cast<isa::DeviceControl&>(*device)),
      caps(isa::read_caps(device->reg_region("npu"))),
      npu(device->reg_region("npu")) {
  for (MemChunk& segment : segments) {
    segment = device->mem_region("etm").malloc(segment_bytes, true, 4096);
  }
  queue = device->mem_region("xchg").malloc(ring_size * isa::Descriptor::size_bytes, true, 4096);
  set_up();
}

void Rig::set_up() {
  for (std::uint32_t i = 0; i < segments.size(); ++i) {
    const std::uint64_t base = segments[i].begin().addr();
    const std::uint64_t size = segments[i].size_bytes();
    const auto at = [&](std::uint32_t first) {
      return isa::reg::segment(first, static_cast<isa::Segment>(i));
    };
    set(at(isa::reg::seg0_base_lo), static_cast<std::uint32_t>(base));
    set(at(isa::reg::seg0_base_hi), static_cast<std::uint32_t>(base >> 32));
    set(at(isa::reg::seg0_size_lo), static_cast<std::uint32_t>(size));
    set(at(isa::reg::seg0_size_hi), static_cast<std::uint32_t>(size >> 32));
  }
  const std::uint64_t ring_base = queue.begin().addr();
  set(isa::reg::cmdq_base_lo, static_cast<std::uint32_t>(ring_base));
  set(isa::reg::cmdq_base_hi, static_cast<std::uint32_t>(ring_base >> 32));
  set(isa::reg::cmdq_size, ring_size);
  set(isa::reg::irq_mask, 0xF);
  set(isa::reg::control, isa::bits::enable.mask());
  tail = 0;
}

void Rig::recover() {
  set(isa::reg::control, isa::bits::reset.mask());
  set_up();
}

void Rig::push(const isa::Descriptor& descriptor) {
  const auto bytes = isa::pack(descriptor);
  queue.write(bytes.data(), std::uint64_t{tail} * bytes.size(), bytes.size());
  tail = (tail + 1) % ring_size;
}

void Rig::ring() { set(isa::reg::cmdq_tail, tail); }

Rig::Outcome Rig::run(const isa::Program& program) { return run(isa::assemble(program)); }

Rig::Outcome Rig::run(const std::vector<std::byte>& assembled) {
  fill(isa::Segment::instr, assembled);
  isa::Descriptor command;
  command.kind = static_cast<std::uint32_t>(isa::Command::run);
  command.arg1 = assembled.size();
  push(command);
  command = {};
  command.kind = static_cast<std::uint32_t>(isa::Command::fence);
  command.flags = isa::fence_irq;
  command.arg0 = ++next_fence;
  push(command);
  ring();
  return wait();
}

Rig::Outcome Rig::wait() {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Outcome outcome;
  for (;;) {
    const std::uint32_t events = isa::bits::irq_fence.mask() | isa::bits::irq_fault.mask();
    const std::uint32_t pending = control.wait_irq(events, std::chrono::milliseconds(2));
    if (pending == isa::gone || reg(isa::reg::id) == isa::gone) {
      outcome.removed = true;
      return outcome;
    }
    const std::uint32_t status = reg(isa::reg::status);
    outcome.error = static_cast<isa::ErrorCode>(reg(isa::reg::error));
    outcome.stuck = isa::bits::stuck.get(status) != 0;
    const bool fault = isa::bits::fault.get(status) != 0;
    if (fault || outcome.stuck || isa::bits::idle.get(status) != 0) {
      set(isa::reg::irq_status, pending);
      return outcome;
    }
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("the device hangs");
  }
}

void Rig::fill(isa::Segment segment, const std::vector<std::byte>& bytes, std::uint64_t offset) {
  segments[static_cast<std::size_t>(segment)].write(bytes.data(), offset, bytes.size());
}

std::vector<std::byte> Rig::contents(isa::Segment segment) const {
  const MemChunk& chunk = segments[static_cast<std::size_t>(segment)];
  std::vector<std::byte> bytes(chunk.size_bytes());
  chunk.read(bytes.data(), 0, bytes.size());
  return bytes;
}

void Rig::write_ocm(std::uint64_t offset, const std::vector<std::byte>& bytes) {
  device->mem_region("ocm").write(MemPtr(std::uint64_t{0x10'0000'0000} + offset), bytes.data(),
                                  bytes.size());
}

std::vector<std::byte> Rig::read_ocm(std::uint64_t offset, std::uint64_t size) const {
  std::vector<std::byte> bytes(size);
  device->mem_region("ocm").read(bytes.data(), MemPtr(std::uint64_t{0x10'0000'0000} + offset),
                                 size);
  return bytes;
}

std::uint32_t Rig::reg(std::uint32_t offset) const {
  return static_cast<std::uint32_t>(npu.read(offset, true));
}
void Rig::set(std::uint32_t offset, std::uint32_t value) { npu.write(offset, value, true); }
void Rig::simctl(std::uint32_t offset, std::uint32_t value) {
  device->reg_region("simctl").write(offset, value, true);
}

std::uint64_t Rig::counter(std::uint32_t offset) {
  set(isa::reg::perf_latch, 1);
  return reg(offset) | std::uint64_t{reg(offset + 4)} << 32;
}

void prepare(Rig& rig, const RandomProgram& made) {
  rig.fill(isa::Segment::weight, made.weight);
  rig.fill(isa::Segment::input, made.input);
  rig.fill(isa::Segment::output, std::vector<std::byte>(made.output_bytes));
  rig.fill(isa::Segment::ftmp, std::vector<std::byte>(made.ftmp_bytes));
}

std::vector<std::byte> output_of(Rig& rig, const RandomProgram& made) {
  std::vector<std::byte> bytes(made.output_bytes);
  rig.segments[static_cast<std::size_t>(isa::Segment::output)].read(bytes.data(), 0, bytes.size());
  return bytes;
}

std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 40);
  return bytes;
}

}  // namespace tenon::npu::testing
