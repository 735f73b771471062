#include "sim_random_program.hpp"
#include "sim_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/npu_sim.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using simctl::FaultKind;
using tenon::npu::testing::random_bytes;
using tenon::npu::testing::random_program;
using tenon::npu::testing::RandomProgram;
using tenon::npu::testing::Rig;
using tenon::testing::expect_error;

namespace {

constexpr std::uint64_t seed = 11;

/// A rig with one random program loaded, and what that leaves when nothing goes wrong.
struct Bench {
  Rig rig{npu::testing::random_params, 1 << 20};
  RandomProgram made = random_program(seed, true);
  std::vector<std::byte> right;

  Bench() {
    load();
    REQUIRE(rig.run(made.program).finished());
    right = output();
  }
  void load() { npu::testing::prepare(rig, made); }
  std::vector<std::byte> output() { return npu::testing::output_of(rig, made); }
  void arm(FaultKind kind, std::uint32_t nth, std::uint32_t layer = 0xFFFFFFFF) {
    rig.simctl(simctl::fault_kind, static_cast<std::uint32_t>(kind));
    rig.simctl(simctl::fault_nth, nth);
    rig.simctl(simctl::fault_layer, layer);
    rig.simctl(simctl::fault_arm, 1);
  }
  std::uint64_t simctl(std::uint32_t offset) {
    return rig.device->reg_region("simctl").read(offset, true);
  }
  /// After any fault: reset, load again, and the answer is right.
  void check_recovery() {
    rig.recover();
    load();
    REQUIRE(rig.run(made.program).finished());
    REQUIRE(output() == right);
  }
};

/// Injects a fault at its first, second, ... occurrence, until one does not come any more; checks
/// each outcome and the recovery. Returns how often it came.
template <class Check>
int at_every_occurrence(FaultKind kind, Check check) {
  Bench bench;
  for (std::uint32_t nth = 1;; ++nth) {
    const auto fired = bench.simctl(simctl::faults_fired);
    bench.load();
    bench.arm(kind, nth);
    const auto outcome = bench.rig.run(bench.made.program);
    if (bench.simctl(simctl::faults_fired) == fired) {
      CHECK(outcome.finished());
      CHECK(bench.simctl(simctl::faults_armed) == 1);
      return static_cast<int>(nth) - 1;
    }
    INFO("occurrence " << nth);
    check(bench, outcome);
    bench.check_recovery();
  }
}

int transfers(const Program& program) {
  return static_cast<int>(std::ranges::count_if(program.instructions, [](const Instruction& i) {
    return engine(i) == Engine::ld || engine(i) == Engine::st;
  }));
}

}  // namespace

TEST_CASE("sim faults: a transfer that never ends, each of the program's") {
  const int times =
      at_every_occurrence(FaultKind::dma_timeout, [](Bench& bench, const Rig::Outcome& outcome) {
        REQUIRE(outcome.stuck);
        const std::uint32_t ld = bits::engine_state.get(bench.rig.reg(reg::ld_state));
        const std::uint32_t st = bits::engine_state.get(bench.rig.reg(reg::st_state));
        const auto waits = static_cast<std::uint32_t>(EngineState::wait_ddr);
        CHECK((ld == waits || st == waits));
      });
  CHECK(times == transfers(random_program(seed, true).program));
}

TEST_CASE("sim faults: a transfer that fails, each of the program's") {
  const int times =
      at_every_occurrence(FaultKind::bus_error, [](Bench& bench, const Rig::Outcome& outcome) {
        REQUIRE(outcome.error == ErrorCode::bus);
        CHECK((bench.rig.reg(reg::status) & bits::fault.mask()) != 0);
        CHECK(bench.rig.reg(reg::error_addr_hi) == 1);
        const std::uint32_t pc = bench.rig.reg(reg::error_pc);
        const Instruction& at = bench.made.program.instructions.at(pc);
        const std::uint32_t info = bench.rig.reg(reg::error_info);
        CHECK(bits::error_engine.get(info) == static_cast<std::uint32_t>(engine(at)) + 1);
        CHECK(bits::error_layer.get(info) == common(at).layer);
      });
  CHECK(times == transfers(random_program(seed, true).program));
}

TEST_CASE("sim faults: every instruction illegal in its turn") {
  const int times = at_every_occurrence(
      FaultKind::illegal,
      [](Bench&, const Rig::Outcome& outcome) { REQUIRE(outcome.error == ErrorCode::illegal); });
  CHECK(times == static_cast<int>(random_program(seed, true).program.instructions.size()));
}

TEST_CASE("sim faults: every token lost in its turn") {
  const int times = at_every_occurrence(
      FaultKind::hang, [](Bench&, const Rig::Outcome& outcome) { REQUIRE(outcome.stuck); });
  int tokens = 0;
  for (const Instruction& i : random_program(seed, true).program.instructions) {
    tokens += common(i).deps.push_prev + common(i).deps.push_next;
  }
  CHECK(times == tokens);
}

TEST_CASE("sim faults: only in the given layer") {
  Bench bench;
  std::uint16_t last = 0;
  for (const Instruction& i : bench.made.program.instructions) {
    last = std::max(last, common(i).layer);
  }
  bench.arm(FaultKind::bus_error, 2, last);
  REQUIRE(bench.rig.run(bench.made.program).error == ErrorCode::bus);
  CHECK(bits::error_layer.get(bench.rig.reg(reg::error_info)) == last);
  bench.check_recovery();
}

TEST_CASE("sim faults: a checksum that fails; a program that was changed") {
  Bench bench;
  bench.arm(FaultKind::crc, 1);
  CHECK(bench.rig.run(bench.made.program).error == ErrorCode::crc);
  CHECK(bench.rig.counter(perf::instructions) == bench.made.program.instructions.size());
  bench.check_recovery();
  const auto good = assemble(bench.made.program);
  for (const std::size_t bit : {3U, 40U, 64U * 8U, 64U * 8U + 100U, 62U * 8U}) {
    auto bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    const auto outcome = bench.rig.run(bad);
    INFO("bit " << bit << ": " << name(outcome.error));
    CHECK((outcome.error == ErrorCode::crc || outcome.error == ErrorCode::bad_program));
    bench.check_recovery();
  }
}

TEST_CASE("sim faults: bits of weights and programs flip after a run, and digests differ") {
  Bench bench;
  const auto weights = bench.rig.contents(Segment::weight);
  bench.arm(FaultKind::flip_weight, 1);
  REQUIRE(bench.rig.run(bench.made.program).finished());
  const auto after = bench.rig.contents(Segment::weight);
  int bits_changed = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    bits_changed += std::popcount(static_cast<unsigned>(after[i] ^ weights[i]));
  }
  CHECK(bits_changed == 1);
  bench.arm(FaultKind::flip_instr, 0);  // at once
  CHECK(bench.simctl(simctl::faults_fired) == 2);
  bench.check_recovery();
}

TEST_CASE("sim faults: a flipped activation goes unnoticed by the device, and changes the answer") {
  int silent = 0;
  const int times =
      at_every_occurrence(FaultKind::flip_act, [&](Bench& bench, const Rig::Outcome& outcome) {
        REQUIRE(outcome.finished());
        silent += bench.output() == bench.right ? 1 : 0;
      });
  CHECK(times > 0);
  CHECK(silent < times);  // some flips are requantised away
}

TEST_CASE("sim faults: an interrupt that is lost, though the fence has moved") {
  Bench bench;
  bench.rig.set(reg::irq_status, 0xF);
  bench.arm(FaultKind::lost_irq, 1);
  Descriptor fence;
  fence.kind = static_cast<std::uint32_t>(Command::fence);
  fence.flags = fence_irq;
  fence.arg0 = 100;
  bench.rig.push(fence);
  bench.rig.ring();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (bench.rig.reg(reg::fence) != 100 && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  REQUIRE(bench.rig.reg(reg::fence) == 100);
  CHECK(bench.rig.control.wait_irq(bits::irq_fence.mask(), std::chrono::milliseconds(30)) == 0);
  fence.arg0 = 101;
  bench.rig.push(fence);
  bench.rig.ring();
  CHECK(bench.rig.control.wait_irq(bits::irq_fence.mask(), std::chrono::seconds(10)) != 0);
}

TEST_CASE("sim faults: a device that is removed answers with ones and typed errors") {
  Bench bench;
  bench.arm(FaultKind::removed, 3);
  REQUIRE(bench.rig.run(bench.made.program).removed);
  CHECK(bench.rig.reg(reg::id) == gone);
  CHECK(bench.rig.reg(reg::fence) == gone);
  bench.rig.set(reg::control, 1);
  CHECK(bench.rig.control.wait_irq(1, std::chrono::seconds(10)) == gone);
  expect_error(Errc::device_lost, [&] { read_caps(bench.rig.npu); });
  expect_error(Errc::device_lost, [&] { bench.output(); });
  expect_error(Errc::device_lost, [&] { bench.rig.device->reset(); });
  CHECK(bench.simctl(simctl::faults_fired) == 1);
  bench.rig.simctl(simctl::replug, 1);
  CHECK(bench.rig.reg(reg::id) == device_id);
  CHECK(bench.rig.contents(Segment::weight)[0] == std::byte{});  // memory was lost
  bench.check_recovery();

  bench.arm(FaultKind::removed, 0);
  CHECK(bench.rig.reg(reg::id) == gone);
}

TEST_CASE("sim faults: those of the URL happen as those of simctl") {
  Rig rig("fault=bus_error@2+hang@1", 1 << 20);
  Load load;
  load.row_bytes = 64;
  Program program;
  program.instructions = {load, load, Halt{}};
  CHECK(rig.run(program).error == ErrorCode::bus);
  rig.recover();
  CHECK(rig.run(program).finished());
  load.deps.push_next = true;
  Elementwise ew;
  ew.function = static_cast<std::uint32_t>(EwFunction::clamp);
  ew.out_line = 100;
  ew.deps.pop_prev = true;
  program.instructions = {load, ew, Halt{}};
  CHECK(rig.run(program).stuck);
  rig.recover();
  CHECK(rig.run(program).finished());
}

TEST_CASE("sim faults: tokens left over, and a queue of tokens that is full") {
  Rig rig;
  Load load;
  load.deps.push_next = true;
  Program program;
  program.instructions = {load, Halt{}};
  CHECK(rig.run(program).error == ErrorCode::token);
  rig.recover();
  program.instructions.assign(256, load);
  program.instructions.emplace_back(Halt{});
  CHECK(rig.run(program).error == ErrorCode::token);
  CHECK(rig.reg(reg::error_pc) == 255);
}
