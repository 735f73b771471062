// Regions, capabilities, values after a reset, and which registers can be written.
#include "bench.hpp"

#include <tenon/npu/isa/memory_map.hpp>

#include <array>

namespace tenon::testkit {
namespace {

constexpr std::uint32_t pattern = 0x5A5A5A40;

MemRegion* find_memory(const Device& device, std::string_view name) {
  for (const auto& region : device.mem_regions()) {
    if (region->name() == name) return region.get();
  }
  return nullptr;
}

bool has_registers(const Device& device) {
  for (const auto& bank : device.reg_regions()) {
    if (bank->name() == "npu") return true;
  }
  return false;
}

void check_region(MemRegion& region, std::uint64_t base, MemPtr::Kind kind, Findings& findings) {
  const MemChunk chunk = region.malloc(64);
  const std::uint64_t capacity = region.usage().capacity_bytes;
  if (chunk.begin().kind() != kind) {
    findings.add("pointers of region '{}' are like {}, expected {}", region.name(),
                 to_string(chunk.begin()),
                 kind == MemPtr::Kind::both ? "pointer and address" : "an address alone");
  }
  if (capacity == 0) findings.add("region '{}' does not say how large it is", region.name());
  if (!chunk.begin().has_addr()) return;
  const std::uint64_t at = chunk.begin().addr();
  if (at < base || at - base >= capacity) {
    findings.add("a chunk of region '{}' lies at {:#x}, expected within {} bytes from {:#x}",
                 region.name(), at, capacity, base);
  }
}

bool is_dma_register(std::uint32_t offset) {
  return offset >= isa::reg::dma_src_lo && offset <= isa::reg::dma_status;
}

/// Changed by an access that is an error.
bool tells_error(std::uint32_t offset) {
  return offset >= isa::reg::error && offset <= isa::reg::error_pc2;
}

/// The register's value in a device that was just opened or reset at level 1; capabilities have
/// none of their own.
std::uint32_t reset_value(std::uint32_t offset) {
  switch (offset) {
    case isa::reg::status:
      return isa::bits::idle.mask();
    case isa::reg::ld_pc:
    case isa::reg::ex_pc:
    case isa::reg::st_pc:
      return 0xFFFFFFFF;
    default:
      return 0;
  }
}

bool is_constant(std::uint32_t offset) {
  return offset < isa::reg::control ||
         (offset >= isa::reg::freq_khz && offset <= isa::reg::ddr_mib);
}

void check_reset_values(Bench& bench) {
  for (const isa::RegisterInfo& info : isa::registers()) {
    if (is_constant(info.offset)) continue;
    bench.findings.expect(fmt::format("{} after a reset of level 1", info.name),
                          bench.get(info.offset), reset_value(info.offset));
  }
}

/// Whether the last access was refused as it should be; clears the error.
void expect_bad_register(Bench& bench, std::string_view what) {
  const auto code = static_cast<isa::ErrorCode>(bench.get(isa::reg::error));
  bench.findings.expect<std::string_view>(fmt::format("error after {}", what), isa::name(code),
                                          isa::name(isa::ErrorCode::bad_reg));
  if (isa::bits::fault.get(bench.get(isa::reg::status)) != 0) {
    bench.findings.add("{} stops the ring, expected that it does not", what);
  }
  bench.device->reset();
}

void check_writes(Bench& bench) {
  Findings& findings = bench.findings;
  for (const isa::RegisterInfo& info : isa::registers()) {
    const bool absent = is_dma_register(info.offset) && !bench.caps.host_dma;
    if (info.access == isa::Access::ro || absent) {
      const std::uint32_t before = bench.get(info.offset);
      bench.set(info.offset, ~before);
      if (!tells_error(info.offset)) {
        findings.expect(fmt::format("{} after a write to it, which is to do nothing,", info.name),
                        bench.get(info.offset), before);
      }
      expect_bad_register(bench, fmt::format("a write to {}", info.name));
      continue;
    }
    // The others do something when they are written, or are tried with the ring.
    const bool keeps = info.access == isa::Access::rw && info.offset != isa::reg::control &&
                       info.offset != isa::reg::cmdq_tail && info.offset != isa::reg::dma_ctrl &&
                       info.offset != isa::reg::irq_mask;
    if (!keeps) continue;
    bench.set(info.offset, pattern);
    findings.expect(fmt::format("{} after {:#x} was written", info.name, pattern),
                    bench.get(info.offset), pattern);
  }
  bench.device->reset();
}

void check_reserved(Bench& bench) {
  constexpr std::array<std::uint32_t, 4> reserved{0x05C, 0x150, 0x318, 0xFFC};
  for (const std::uint32_t offset : reserved) {
    bench.findings.expect(fmt::format("the reserved register {:03X}", offset), bench.get(offset),
                          0U);
    bench.set(offset, 1);
    expect_bad_register(bench, fmt::format("a write to the reserved register {:03X}", offset));
  }
  bench.get(isa::reg::version + 2);
  expect_bad_register(bench, "a misaligned read");
  bench.set(isa::reg::cmdq_size + 1, 16);
  expect_bad_register(bench, "a misaligned write");
}

}  // namespace

bool check_description(const DevicePtr& device, Findings& findings) {
  findings.begin("npu-device.md, Memories");
  if (dynamic_cast<isa::DeviceControl*>(device.get()) == nullptr) {
    findings.add("the device is no npu::isa::DeviceControl");
    return false;
  }
  if (!has_registers(*device)) {
    findings.add("the device has no register bank 'npu'");
    return false;
  }
  struct Wanted {
    std::string_view name;
    std::uint64_t base;
    MemPtr::Kind kind;
  };
  constexpr Wanted wanted[] = {{"xchg", isa::xchg_base, MemPtr::Kind::both},
                               {"etm", isa::etm_base, MemPtr::Kind::addr},
                               {"ocm", isa::ocm_base, MemPtr::Kind::addr}};
  bool all = true;
  for (const Wanted& region : wanted) {
    if (MemRegion* const found = find_memory(*device, region.name)) {
      findings.guarded(fmt::format("region '{}'", region.name),
                       [&] { check_region(*found, region.base, region.kind, findings); });
    } else {
      findings.add("the device has no memory region '{}'", region.name);
      all = false;
    }
  }
  if (!all) return false;
  if (&device->default_mem_region() != find_memory(*device, "etm")) {
    findings.add("the default memory region is '{}', expected 'etm'",
                 device->default_mem_region().name());
  }

  findings.begin("npu-isa.md, Registers");
  isa::Caps caps;
  const std::size_t before = findings.count();
  findings.guarded("reading the capabilities",
                   [&] { caps = isa::read_caps(device->reg_region("npu")); });
  if (findings.count() != before) return false;
  findings.expect("the size of region 'ocm', by caps1,",
                  device->mem_region("ocm").usage().capacity_bytes, std::uint64_t{caps.ocm_bytes});
  findings.expect("the size of region 'etm', by ddr_mib,",
                  device->mem_region("etm").usage().capacity_bytes,
                  std::uint64_t{caps.ddr_mib} << 20);
  for (const std::string& odd : isa::odd_caps(caps)) findings.add("{}", odd);
  return true;
}

void check_registers(Bench& bench) {
  bench.findings.begin("npu-isa.md, Registers");
  bench.device->reset(1);
  bench.findings.guarded("reading the registers", [&] { check_reset_values(bench); });
  bench.findings.guarded("writing the registers", [&] { check_writes(bench); });
  bench.findings.guarded("reserved registers", [&] { check_reserved(bench); });
}

}  // namespace tenon::testkit
