// Commands: fences, interrupts, copies, timestamps, the ring's end, halts, waits of several threads.
#include "bench.hpp"

#include <array>
#include <thread>

namespace tenon::testkit {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t irq_fence = isa::bits::irq_fence.mask();

/// Whether fences are reached: nothing else can be tried without.
bool check_fences(Bench& bench) {
  Findings& findings = bench.findings;
  bench.add(isa::Command::nop);
  const std::uint32_t silent = bench.add_fence(false);
  if (!bench.finish("a fence without its interrupt", silent)) return false;
  findings.expect("irq_status after it", bench.get(isa::reg::irq_status) & irq_fence, 0U);

  const std::uint32_t loud = bench.add_fence();
  if (!bench.finish("a fence with its interrupt", loud)) return false;
  findings.expect("what wait_irq returns after it",
                  bench.control.wait_irq(irq_fence, bench.options.patience), irq_fence);
  findings.expect("what wait_irq returns when it was not cleared",
                  bench.control.wait_irq(irq_fence, bench.options.patience), irq_fence);
  findings.expect("what wait_irq returns for an interrupt that is not in its mask",
                  bench.control.wait_irq(isa::bits::irq_dma.mask(), 1ms), 0U);
  bench.set(isa::reg::irq_mask, 0);
  findings.expect("what wait_irq returns while irq_mask is 0",
                  bench.control.wait_irq(irq_fence, 1ms), 0U);
  bench.set(isa::reg::irq_mask, irq_fence);
  bench.set(isa::reg::irq_status, irq_fence);
  findings.expect("irq_status after a one was written to it",
                  bench.get(isa::reg::irq_status) & irq_fence, 0U);
  findings.expect("what wait_irq returns when nothing is pending",
                  bench.control.wait_irq(irq_fence, 1ms), 0U);

  bench.add(isa::Command::fence, loud - 1);
  if (!bench.finish("a lower fence", bench.add_fence(false))) return false;
  findings.expect("the fence register at the end", bench.get(isa::reg::fence), loud + 1);
  return true;
}

void check_end_of_ring(Bench& bench) {
  for (std::uint32_t i = 0; i < 3 * Bench::ring_entries; ++i) {
    if (!bench.finish("a fence behind the ring's last entry", bench.add_fence(false))) return;
  }
  const bool idle =
      bench.await([&] { return isa::bits::idle.get(bench.get(isa::reg::status)) != 0; });
  if (!idle) bench.findings.add("status is not idle after the last command has ended");
  bench.findings.expect("cmdq_head when the ring is empty", bench.get(isa::reg::cmdq_head),
                        bench.get(isa::reg::cmdq_tail));
  if ((bench.get(isa::reg::irq_status) & isa::bits::irq_empty.mask()) == 0) {
    bench.findings.add("irq_empty is not pending after the ring ran empty");
  }
}

void check_timestamps(Bench& bench) {
  const std::uint64_t at = bench.data.begin().addr();
  bench.add(isa::Command::timestamp, at);
  bench.add(isa::Command::copy, at + 4096, at + 8192, 4096);
  bench.add(isa::Command::timestamp, at + 8);
  if (!bench.finish("two timestamps around a copy", bench.add_fence())) return;
  std::array<std::uint64_t, 2> times{};
  bench.data.read(times.data(), 0, sizeof times);
  if (times[0] < times[1]) return;
  bench.findings.add("timestamps before and after a copy are {} and {}, expected that they rise",
                     times[0], times[1]);
}

void check_halt(Bench& bench) {
  const auto control = [&](std::uint32_t more) {
    bench.set(isa::reg::control, isa::bits::enable.mask() | more);
  };
  control(isa::bits::halt.mask());
  const std::uint32_t fence = bench.add_fence(false);
  bench.ring();
  const bool halted =
      bench.await([&] { return isa::bits::halted.get(bench.get(isa::reg::status)) != 0; });
  if (!halted) bench.findings.add("status does not say halted after halt was set in control");
  std::this_thread::sleep_for(1ms);
  bench.findings.expect("the fence register of a halted device", bench.get(isa::reg::fence),
                        fence - 1);
  control(0);
  bench.finish("a fence after halt was cleared", fence);
}

void check_waiting_threads(Bench& bench) {
  bench.set(isa::reg::irq_status, 0xFFFFFFFF);
  std::array<std::uint32_t, 4> pending{};
  std::vector<std::thread> threads;
  for (std::uint32_t& result : pending) {
    threads.emplace_back(
        [&bench, &result] { result = bench.control.wait_irq(irq_fence, bench.options.patience); });
  }
  bench.add_fence();
  bench.ring();
  for (std::thread& thread : threads) thread.join();
  for (const std::uint32_t result : pending) {
    bench.findings.expect("what wait_irq returns in each of four threads", result, irq_fence);
  }
}

}  // namespace

bool check_ring(Bench& bench) {
  bench.findings.begin("npu-device.md, The command ring");
  bench.restart(1);
  bool good = false;
  bench.findings.guarded("fences", [&] { good = check_fences(bench); });
  if (!good) return false;
  const auto part = [&](std::string_view what, void (*check)(Bench&)) {
    bench.findings.guarded(what, [&] {
      bench.restart();
      check(bench);
    });
  };
  part("the end of the ring", check_end_of_ring);
  part("timestamps", check_timestamps);
  part("halt", check_halt);
  part("waits of several threads", check_waiting_threads);
  return true;
}

}  // namespace tenon::testkit
