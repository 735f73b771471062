#include "sim_random_program.hpp"
#include "sim_rig.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace tenon;
using namespace tenon::npu;
using namespace tenon::npu::isa;
using tenon::npu::testing::random_program;
using tenon::npu::testing::Rig;

namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/nputraceXXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

std::string text_of(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(name).rdbuf();
  return text.str();
}

/// Runs one random program on a device that writes all four files; returns how many cycles it took.
std::uint64_t run_traced(const Folder& folder, const std::string& more = "") {
  Rig rig(std::string(npu::testing::random_params) + "&trace=" + folder.file("npt") +
          "&vcd=" + folder.file("vcd") + "&chrome=" + folder.file("json") +
          "&listing=" + folder.file("txt") + more);
  const auto made = random_program(21, true);
  rig.fill(Segment::weight, made.weight);
  rig.fill(Segment::input, made.input);
  REQUIRE(rig.run(made.program).finished());
  return rig.counter(perf::cycles);
}

}  // namespace

TEST_CASE("sim traces: register writes, commands and interrupts with their cycles") {
  const Folder folder;
  const std::uint64_t cycles = run_traced(folder);
  const std::string text = text_of(folder.file("npt"));
  CHECK(text.find("W 018 00000001 @0\n") != std::string::npos);  // control: enable
  CHECK(text.find("W 050 00000002 @0\n") != std::string::npos);  // the doorbell
  CHECK(text.find("C 000 00000001 @0\n") != std::string::npos);  // the first descriptor: run
  CHECK(text.find("C 001 00000003 @" + std::to_string(cycles - 1) + "\n") != std::string::npos);
  CHECK(text.find("I 000 00000001 @" + std::to_string(cycles) + "\n") != std::string::npos);
}

TEST_CASE("sim traces: the same run leaves the same files") {
  const Folder one;
  const Folder two;
  run_traced(one);
  run_traced(two);
  for (const char* const name : {"vcd", "json", "txt"}) {
    CHECK(text_of(one.file(name)).size() > 200);
    CHECK(text_of(one.file(name)) == text_of(two.file(name)));
  }
}

TEST_CASE("sim traces: the events are JSON, do not overlap on an engine, and fill the layers") {
  const Folder folder;
  const std::uint64_t cycles = run_traced(folder);
  const auto events = nlohmann::json::parse(text_of(folder.file("json")));
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
  const Folder folder;
  run_traced(folder);
  std::istringstream lines(text_of(folder.file("vcd")));
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
  const Folder folder;
  run_traced(folder, "&sched=random&seed=3");
  const std::string text = text_of(folder.file("txt"));
  const auto made = random_program(21, true);
  CHECK(std::count(text.begin(), text.end(), '\n') ==
        static_cast<std::ptrdiff_t>(made.program.instructions.size()) + 2);
  for (const Instruction& i : made.program.instructions) {
    CHECK(text.find(disassemble(i)) != std::string::npos);
  }
}
