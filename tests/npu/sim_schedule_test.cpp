#include "sim_random_program.hpp"
#include "sim_rig.hpp"

#include <tenon/backends/npu_sim.hpp>

#include <algorithm>
#include <random>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::npu::testing::output_of;
using tenon::npu::testing::prepare;
using tenon::npu::testing::random_program;
using tenon::npu::testing::RandomProgram;
using tenon::npu::testing::Rig;

namespace {

constexpr std::uint64_t segment_bytes = 4 << 20;

std::vector<std::byte> run(Rig& rig, const RandomProgram& made) {
  prepare(rig, made);
  const auto outcome = rig.run(made.program);
  INFO("error " << name(outcome.error) << " at pc " << rig.reg(reg::error_pc) << ", other pc "
                << rig.reg(reg::error_pc2) << ", address " << rig.reg(reg::error_addr_lo)
                << (outcome.stuck ? ", stuck" : "") << '\n'
                << disassemble(made.program));
  REQUIRE(outcome.finished());
  return output_of(rig, made);
}

}  // namespace

TEST_CASE("sim schedules: time and sixteen random interleavings leave identical bytes") {
  const std::uint64_t first = std::random_device{}();
  INFO("first seed " << first);
  Rig rig(npu::testing::random_params, segment_bytes);
  for (std::uint64_t seed = first; seed < first + 40; ++seed) {
    const RandomProgram made = random_program(seed, true);
    rig.simctl(simctl::schedule, 0);
    const auto by_time = run(rig, made);
    rig.simctl(simctl::schedule, 1);
    for (std::uint32_t order = 0; order < 16; ++order) {
      rig.simctl(simctl::seed, order);
      REQUIRE(run(rig, made) == by_time);
    }
  }
}

TEST_CASE("sim schedules: tiled and untiled layers leave identical bytes") {
  const std::uint64_t first = std::random_device{}();
  INFO("first seed " << first);
  Rig rig(npu::testing::random_params, segment_bytes);
  for (std::uint64_t seed = first; seed < first + 150; ++seed) {
    INFO("seed " << seed);
    const auto tiled = random_program(seed, true);
    const auto whole = random_program(seed, false);
    REQUIRE(tiled.weight == whole.weight);
    REQUIRE(run(rig, tiled) == run(rig, whole));
  }
}

TEST_CASE("sim schedules: busiest engine <= total <= sum of the engines") {
  const std::uint64_t first = std::random_device{}();
  INFO("first seed " << first);
  Rig rig(npu::testing::random_params, segment_bytes);
  for (std::uint64_t seed = first; seed < first + 150; ++seed) {
    const bool random_order = seed % 3 == 0;
    INFO("seed " << seed << (random_order ? ", random order" : ""));
    rig.simctl(simctl::schedule, random_order ? 1 : 0);
    rig.set(reg::control, bits::enable.mask() | bits::perf_clear.mask());
    run(rig, random_program(seed, seed % 2 == 0));
    const std::uint64_t total = rig.counter(perf::cycles) - 2;  // the commands RUN and FENCE
    const std::uint64_t busy[] = {rig.counter(perf::fe_busy), rig.counter(perf::ld_busy),
                                  rig.counter(perf::ex_busy), rig.counter(perf::st_busy)};
    CHECK(*std::ranges::max_element(busy) <= total);
    CHECK(total <= busy[0] + busy[1] + busy[2] + busy[3]);
  }
}

TEST_CASE("sim schedules: time overlaps what tokens allow") {
  // A long product between two transfers that do not depend on it.
  Rig rig("strict=0");
  Load load;
  load.row_bytes = 65536;
  Gemm gemm;
  gemm.m = 1000;
  gemm.k = 128;
  gemm.n = 32;
  gemm.a_log2c = 5;
  gemm.a_row_stride = 1;
  gemm.a_block_stride = 1000;
  gemm.b_row_stride = 1;
  Program program;
  program.instructions = {load, gemm, Halt{}};
  REQUIRE(rig.run(program).finished());
  const std::uint64_t together = rig.counter(perf::cycles);
  const std::uint64_t sum = rig.counter(perf::ld_busy) + rig.counter(perf::ex_busy);
  CHECK(together < sum);

  rig.set(reg::control, bits::enable.mask() | bits::perf_clear.mask());
  load.deps.push_next = true;
  gemm.deps.pop_prev = true;
  program.instructions = {load, gemm, Halt{}};
  REQUIRE(rig.run(program).finished());
  CHECK(rig.counter(perf::cycles) > sum);
}

TEST_CASE("sim hazards: every flipped token bit is caught") {
  const std::uint64_t first = std::random_device{}();
  INFO("first seed " << first);
  Rig rig(npu::testing::random_params, segment_bytes);
  int flips = 0;
  for (std::uint64_t seed = first; seed < first + 12; ++seed) {
    const RandomProgram made = random_program(seed, true);
    prepare(rig, made);
    for (std::size_t pc = 0; pc + 1 < made.program.instructions.size(); ++pc) {
      if (engine(made.program.instructions[pc]) == Engine::all) continue;
      for (int bit = 0; bit < 4; ++bit) {
        Program changed = made.program;
        Deps& deps = common(changed.instructions[pc]).deps;
        bool& token = bit == 0   ? deps.pop_prev
                      : bit == 1 ? deps.pop_next
                      : bit == 2 ? deps.push_prev
                                 : deps.push_next;
        token = !token;
        INFO("seed " << seed << " pc " << pc << " bit " << bit);
        const auto outcome = rig.run(changed);
        REQUIRE_FALSE(outcome.finished());
        // An instruction that went too early can also find stale bytes where records should be.
        const ErrorCode known[] = {ErrorCode::token, ErrorCode::hazard, ErrorCode::uninitialised,
                                   ErrorCode::bad_param};
        REQUIRE((outcome.stuck || std::ranges::find(known, outcome.error) != std::end(known)));
        rig.recover();
        ++flips;
      }
    }
  }
  CHECK(flips > 200);
}

TEST_CASE("sim hazards: a token moved to another instruction is caught, or changes nothing") {
  const std::uint64_t first = std::random_device{}();
  INFO("first seed " << first);
  Rig rig(npu::testing::random_params, segment_bytes);
  std::mt19937_64 random(first);
  int caught = 0;
  for (std::uint64_t seed = first; seed < first + 60; ++seed) {
    const RandomProgram made = random_program(seed, true);
    rig.simctl(simctl::schedule, 0);
    const auto right = run(rig, made);
    for (int attempt = 0; attempt < 6; ++attempt) {
      Program changed = made.program;
      auto& all = changed.instructions;
      const std::size_t a = random() % all.size();
      const std::size_t b = random() % all.size();
      if (engine(all[a]) != engine(all[b]) || engine(all[a]) == Engine::all) continue;
      std::swap(common(all[a]).deps, common(all[b]).deps);
      prepare(rig, made);
      rig.simctl(simctl::schedule, 1);
      rig.simctl(simctl::seed, static_cast<std::uint32_t>(random()));
      if (rig.run(changed).finished()) {
        REQUIRE(output_of(rig, made) == right);
      } else {
        ++caught;
        rig.recover();
      }
    }
  }
  CHECK(caught > 20);
}

TEST_CASE("sim hazards: both instructions of a race are named") {
  Rig rig;
  Load load;
  load.row_bytes = 4096;
  load.layer = 7;
  Elementwise ew;
  ew.function = static_cast<std::uint32_t>(EwFunction::clamp);
  ew.a_step = 1;
  ew.lanes = 32;
  ew.columns = 4;
  ew.out_line = 1000;
  ew.layer = 9;
  Program program;
  program.instructions = {Barrier{}, load, ew, Halt{}};
  REQUIRE(rig.run(program).error == ErrorCode::hazard);
  CHECK(rig.reg(reg::error_pc) == 2);
  CHECK(rig.reg(reg::error_pc2) == 1);
  CHECK(bits::error_engine.get(rig.reg(reg::error_info)) == 2);
  CHECK(bits::error_layer.get(rig.reg(reg::error_info)) == 9);
  CHECK(rig.reg(reg::error_addr_lo) == 0);
}

TEST_CASE("sim hazards: a read of bytes that nothing wrote is named") {
  Rig rig;
  Load load;
  load.row_bytes = 100;  // line 3 only in part
  load.deps.push_next = true;
  Elementwise ew;
  ew.function = static_cast<std::uint32_t>(EwFunction::clamp);
  ew.a_step = 1;
  ew.lanes = 32;
  ew.columns = 4;
  ew.out_line = 1000;
  ew.deps.pop_prev = true;
  Program program;
  program.instructions = {load, ew, Halt{}};
  REQUIRE(rig.run(program).error == ErrorCode::uninitialised);
  CHECK(rig.reg(reg::error_addr_lo) == 100);
  rig.recover();
  ew.columns = 3;
  program.instructions = {load, ew, Halt{}};
  CHECK(rig.run(program).finished());
  rig.recover();  // OCM is forgotten
  ew.deps = {};
  program.instructions = {ew, Halt{}};
  CHECK(rig.run(program).error == ErrorCode::uninitialised);
}
