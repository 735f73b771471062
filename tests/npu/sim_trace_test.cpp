#include "io/temp_folder.hpp"
#include "sim_random_program.hpp"
#include "sim_rig.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::npu::testing::random_program;
using tenon::npu::testing::Rig;
using tenon::testing::read_bytes;
using tenon::testing::TempFolder;

namespace {

/// Runs one random program on a device that writes all four files; returns how many cycles it took.
std::uint64_t run_traced(const TempFolder& folder, const std::string& more = "") {
  Rig rig(std::string(npu::testing::random_params) + "&trace=" + (folder / "npt").string() +
          "&vcd=" + (folder / "vcd").string() + "&chrome=" + (folder / "json").string() +
          "&listing=" + (folder / "txt").string() + more);
  const auto made = random_program(21, true);
  rig.fill(Segment::weight, made.weight);
  rig.fill(Segment::input, made.input);
  REQUIRE(rig.run(made.program).finished());
  return rig.counter(perf::cycles);
}

}  // namespace

TEST_CASE("sim traces: register writes, commands and interrupts with their cycles") {
  const TempFolder folder;
  const std::uint64_t cycles = run_traced(folder);
  const std::string text = read_bytes((folder / "npt").string());
  CHECK(text.find("W 018 00000001 @0\n") != std::string::npos);  // control: enable
  CHECK(text.find("W 050 00000002 @0\n") != std::string::npos);  // the doorbell
  CHECK(text.find("C 000 00000001 @0\n") != std::string::npos);  // the first descriptor: run
  CHECK(text.find("C 001 00000003 @" + std::to_string(cycles - 1) + "\n") != std::string::npos);
  CHECK(text.find("I 000 00000001 @" + std::to_string(cycles) + "\n") != std::string::npos);
}

TEST_CASE("sim traces: a device that is reset at once tells nothing after it") {
  const TempFolder folder;
  {
    // The ring runs empty, with an interrupt, while the host that saw the fence resets.
    Rig rig("trace=" + (folder / "npt").string());
    Descriptor fence;
    fence.kind = static_cast<std::uint32_t>(Command::fence);
    fence.flags = fence_irq;
    fence.arg0 = 1;
    for (int round = 0; round < 500; ++round) {
      rig.set(reg::irq_mask, bits::irq_fence.mask());
      rig.push(fence);
      rig.ring();
      REQUIRE(rig.control.wait_irq(bits::irq_fence.mask(), std::chrono::seconds(60)) != 0);
      rig.recover();
    }
  }
  std::istringstream lines(read_bytes((folder / "npt").string()));
  bool is_reset = false;
  int resets = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool control = line.starts_with("W 018 ");
    if (control) is_reset = bits::reset.get(std::stoul(line.substr(6), nullptr, 16)) != 0;
    if (control && is_reset) ++resets;
    INFO("after " << resets << " resets: " << line);
    REQUIRE_FALSE((is_reset && line.starts_with("I ")));
  }
  CHECK(resets == 500);
}

TEST_CASE("sim traces: the same run leaves the same files") {
  const TempFolder one;
  const TempFolder two;
  run_traced(one);
  run_traced(two);
  for (const char* const name : {"vcd", "json", "txt"}) {
    CHECK(read_bytes((one / name).string()).size() > 200);
    CHECK(read_bytes((one / name).string()) == read_bytes((two / name).string()));
  }
}

TEST_CASE("sim traces: the events are JSON, do not overlap on an engine, and fill the layers") {
  const TempFolder folder;
  const std::uint64_t cycles = run_traced(folder);
  const auto events = nlohmann::json::parse(read_bytes((folder / "json").string()));
  std::map<int, double> free_at;
  int names = 0;
  std::size_t engine_events = 0;
  std::map<std::string, int> layers;
  for (const auto& event : events) {
    const int row = event["tid"];
    if (event["ph"] == "M") {
      ++names;
      continue;
    }
    CHECK(event["ph"] == "X");
    const double begin = event["ts"];
    const double end = begin + event["dur"].get<double>();
    CHECK(end * 800 <= static_cast<double>(cycles) + 1);  // 800 cycles are a microsecond
    if (row == 0) {
      ++layers[event["name"]];
      continue;
    }
    ++engine_events;
    CHECK(begin >= free_at[row] - 1e-3);
    free_at[row] = end;
  }
  const auto made = random_program(21, true);
  std::size_t instructions = 0;
  std::map<std::uint16_t, int> numbers;
  for (const Instruction& i : made.program.instructions) {
    if (engine(i) == Engine::all) continue;
    ++instructions;
    ++numbers[common(i).layer];
  }
  CHECK(names == 4);
  CHECK(engine_events == instructions);
  CHECK(layers.size() == numbers.size());
}

TEST_CASE("sim traces: the VCD's times rise, and its signals are declared") {
  const TempFolder folder;
  run_traced(folder);
  std::istringstream lines(read_bytes((folder / "vcd").string()));
  long long last = -1;
  int declared = 0;
  std::size_t changes = 0;
  for (std::string line; std::getline(lines, line);) {
    declared += line.starts_with("$var wire") ? 1 : 0;
    if (line.starts_with("#")) {
      const long long now = std::stoll(line.substr(1));
      CHECK(now > last);
      last = now;
    }
    if (line.starts_with("b")) {
      ++changes;
      CHECK(std::string("stupqr").find(line.back()) != std::string::npos);
      CHECK(line.find_first_not_of("01", 1) == line.size() - 2);
    }
  }
  CHECK(declared == 6);
  CHECK(changes > 20);
}

TEST_CASE("sim traces: the listing has every instruction with its cycles") {
  const TempFolder folder;
  run_traced(folder, "&sched=random&seed=3");
  const std::string text = read_bytes((folder / "txt").string());
  const auto made = random_program(21, true);
  CHECK(std::count(text.begin(), text.end(), '\n') ==
        static_cast<std::ptrdiff_t>(made.program.instructions.size()) + 2);
  for (const Instruction& i : made.program.instructions) {
    CHECK(text.find(disassemble(i)) != std::string::npos);
  }
}
