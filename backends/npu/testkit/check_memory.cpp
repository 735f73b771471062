// Memory over its whole extent, by the regions, by syncs and by host DMA.
#include "bench.hpp"

#include <tenon/error.hpp>
#include <tenon/npu/isa/memory_map.hpp>

#include <algorithm>
#include <cstring>
#include <random>

namespace tenon::testkit {
namespace {

/// Places that are tried in a region, from its first byte to its last.
constexpr std::uint64_t places = 256;
constexpr std::uint64_t place_bytes = 64;

std::vector<std::byte> random_bytes(std::uint64_t seed, std::uint64_t size) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 40);
  return bytes;
}

void expect_bytes(Findings& findings, std::string_view what, std::span<const std::byte> found,
                  std::span<const std::byte> expected) {
  const auto [a, b] = std::ranges::mismatch(found, expected);
  if (a == found.end()) return;
  findings.add("{}: byte {} is {:#04x}, expected {:#04x}", what, a - found.begin(),
               std::to_integer<unsigned>(*a), std::to_integer<unsigned>(*b));
}

/// The largest free part of a region.
MemChunk largest_chunk(MemRegion& region) {
  // Red zones and alignment take a little of the hole.
  const std::uint64_t hole = region.usage().largest_hole_bytes;
  return region.malloc(hole > 8192 ? hole - 4096 : hole);
}

/// Where a chunk is tried: its first and last bytes, and what is a multiple of a 256th of the region
/// in between, so that places whose addresses differ in one bit are among them.
std::vector<std::uint64_t> places_of(const MemChunk& chunk, std::uint64_t base) {
  const std::uint64_t begin = chunk.begin().addr();
  const std::uint64_t last = begin + chunk.size_bytes() - place_bytes;
  const std::uint64_t step =
      std::max(chunk.region().usage().capacity_bytes / places, 2 * place_bytes);
  std::vector<std::uint64_t> all{begin};
  for (std::uint64_t at = base; at + place_bytes <= last; at += step) {
    if (at >= begin + place_bytes) all.push_back(at);
  }
  all.push_back(last);
  return all;
}

/// All places are written before any is read, so that two that share bytes are found.
void check_extent(Bench& bench, MemRegion& region, std::uint64_t base) {
  const MemChunk chunk = largest_chunk(region);
  const auto offset = [&](std::uint64_t place) { return place - chunk.begin().addr(); };
  const std::vector<std::uint64_t> all = places_of(chunk, base);
  for (const std::uint64_t place : all) {
    const auto bytes = random_bytes(place, place_bytes);
    chunk.write(bytes.data(), offset(place), place_bytes);
  }
  std::vector<std::byte> found(place_bytes);
  for (const std::uint64_t place : all) {
    chunk.read(found.data(), offset(place), place_bytes);
    const std::size_t before = bench.findings.count();
    expect_bytes(bench.findings,
                 fmt::format("bytes at {:#x} of region '{}', read after all places were written",
                             place, region.name()),
                 found, random_bytes(place, place_bytes));
    if (bench.findings.count() != before) return;  // one of them tells enough
  }
}

/// Odd sizes at odd offsets, across what a device may move at a time; the bytes beside stay.
void check_odd_sizes(Bench& bench, MemRegion& region) {
  const std::uint64_t room =
      std::min<std::uint64_t>(region.usage().largest_hole_bytes / 2, 2 << 20);
  const MemChunk chunk = region.malloc(room);
  std::vector<std::byte> expected = random_bytes(bench.options.seed, room);
  chunk.write(expected.data(), 0, room);
  for (const std::uint64_t size :
       {std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{4097}, room / 2 - 13}) {
    const std::uint64_t at = size % 61 + 1;
    if (at + size > room) continue;
    const auto bytes = random_bytes(size, size);
    chunk.write(bytes.data(), at, size);
    std::ranges::copy(bytes, expected.begin() + static_cast<std::ptrdiff_t>(at));
  }
  // A copy to later bytes that overlaps what it copies.
  const std::uint64_t size = room / 2;
  region.copy(chunk.begin() + 77, chunk.begin() + 5, size);
  std::memmove(expected.data() + 77, expected.data() + 5, size);
  std::vector<std::byte> found(room);
  chunk.read(found.data(), 0, room);
  expect_bytes(bench.findings, fmt::format("region '{}' after writes and a copy", region.name()),
               found, expected);
}

template <class Action>
void expect_out_of_range(Findings& findings, std::string_view what, const Action& action) {
  try {
    action();
    findings.add("{} is done, expected Errc::out_of_range", what);
  } catch (const Error& error) {
    if (error.code() == Errc::out_of_range) return;
    findings.add("{} is refused as '{}', expected Errc::out_of_range", what, error.what());
  }
}

void check_limits(Bench& bench, MemRegion& region) {
  const MemChunk chunk = region.malloc(64);
  const auto beyond = static_cast<std::int64_t>(region.usage().capacity_bytes);
  std::byte byte{};
  expect_out_of_range(bench.findings, fmt::format("a read beyond region '{}'", region.name()),
                      [&] { region.read(&byte, chunk.begin() + beyond, 1); });
  expect_out_of_range(bench.findings, fmt::format("a write beyond region '{}'", region.name()),
                      [&] { region.write(chunk.begin() + beyond, &byte, 1); });
}

/// xchg by pointer: the device copies what the CPU wrote, and the CPU reads what it copied.
bool check_sync(Bench& bench) {
  const MemChunk chunk = bench.xchg.malloc(256);
  const auto bytes = random_bytes(bench.options.seed, 128);
  bench.restart();
  std::memcpy(chunk.begin().cptr(), bytes.data(), bytes.size());
  bench.control.sync(chunk.begin(), 128, isa::DeviceControl::Direction::to_device);
  bench.add(isa::Command::copy, bench.data.begin().addr(), chunk.begin().addr(), 128);
  bench.add(isa::Command::copy, chunk.begin().addr() + 128, bench.data.begin().addr(), 128);
  if (!bench.finish("copies between xchg and etm", bench.add_fence())) return false;
  bench.control.sync(chunk.begin() + 128, 128, isa::DeviceControl::Direction::from_device);
  const std::byte* const copied = chunk.begin().cptr() + 128;
  expect_bytes(bench.findings, "xchg by pointer, after copies and syncs", {copied, copied + 128},
               bytes);
  return true;
}

// ---- Host DMA

/// The status when it has ended; 0 where it does not.
std::uint32_t transfer(Bench& bench, std::uint64_t to, std::uint64_t from, std::uint32_t size,
                       std::uint32_t more_bits = 0) {
  bench.set_pair(isa::reg::dma_src_lo, from);
  bench.set_pair(isa::reg::dma_dst_lo, to);
  bench.set(isa::reg::dma_len, size);
  bench.set(isa::reg::dma_ctrl, isa::bits::dma_start.mask() | more_bits);
  std::uint32_t status = 0;
  const bool ended = bench.await([&] {
    status = bench.get(isa::reg::dma_status);
    return isa::bits::dma_busy.get(status) == 0;
  });
  return ended ? status : 0;
}

void check_host_dma(Bench& bench) {
  constexpr std::uint32_t size = 4096;
  constexpr std::uint32_t done = isa::bits::dma_done.mask();
  constexpr std::uint32_t failed = done | isa::bits::dma_error.mask();
  Findings& findings = bench.findings;
  const MemChunk shared = bench.xchg.malloc(2 * size);
  const MemChunk far = largest_chunk(bench.etm);
  const auto bytes = random_bytes(bench.options.seed + 7, size);
  bench.restart();
  bench.set(isa::reg::irq_mask, isa::bits::irq_dma.mask());
  shared.write(bytes.data(), 0, size);
  const std::uint64_t from = shared.begin().addr();
  const std::uint64_t to = far.begin().addr() + far.size_bytes() - size;
  findings.expect("dma_status after a transfer from xchg to the end of etm",
                  transfer(bench, to, from, size, isa::bits::dma_irq.mask()), done);
  findings.expect("the pending interrupts after a host DMA with its interrupt",
                  bench.control.wait_irq(isa::bits::irq_dma.mask(), bench.options.patience),
                  isa::bits::irq_dma.mask());
  bench.set(isa::reg::irq_status, isa::bits::irq_dma.mask());
  findings.expect("dma_status after a transfer from etm to xchg",
                  transfer(bench, from + size, to, size), done);
  findings.expect("irq_status after a host DMA without its interrupt",
                  bench.get(isa::reg::irq_status) & isa::bits::irq_dma.mask(), 0U);
  std::vector<std::byte> back(size);
  shared.read(back.data(), size, size);
  expect_bytes(findings, "xchg after host DMA to etm and back", back, bytes);

  const std::uint64_t chip = bench.ocm.malloc(64).begin().addr();
  findings.expect("dma_status after a transfer from xchg to OCM", transfer(bench, chip, from, 64),
                  done);
  findings.expect("dma_status after a transfer from OCM to xchg",
                  transfer(bench, from + size, chip, 64), done);
  shared.read(back.data(), size, 64);
  expect_bytes(findings, "xchg after host DMA to OCM and back", {back.data(), 64},
               {bytes.data(), 64});

  findings.expect("dma_status after a transfer to address 0x1000, where nothing is,",
                  transfer(bench, 0x1000, from, 64), failed);
  findings.expect<std::string_view>(
      "error after it", isa::name(static_cast<isa::ErrorCode>(bench.get(isa::reg::error))),
      isa::name(isa::ErrorCode::bus));
  bench.finish("a fence after a host DMA that failed", bench.add_fence());
}

}  // namespace

bool check_memory(Bench& bench) {
  bench.findings.begin("npu-device.md, Memories");
  bench.restart(2);
  const auto check_region = [&](MemRegion& region, std::uint64_t base) {
    bench.findings.guarded(fmt::format("region '{}'", region.name()), [&] {
      check_extent(bench, region, base);
      check_odd_sizes(bench, region);
      check_limits(bench, region);
    });
  };
  check_region(bench.xchg, isa::xchg_base);
  check_region(bench.etm, isa::etm_base);
  check_region(bench.ocm, isa::ocm_base);
  bool good = false;
  bench.findings.guarded("xchg by pointer", [&] { good = check_sync(bench); });
  if (bench.caps.host_dma) {
    bench.findings.begin("npu-device.md, Host DMA");
    bench.findings.guarded("host DMA", [&] { check_host_dma(bench); });
  }
  return good;
}

}  // namespace tenon::testkit
