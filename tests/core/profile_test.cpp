// Where the time of runs goes, by the steps of a program.
#include "core/layered_model.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/exe.hpp>
#include <tenon/ops.hpp>
#include <tenon/profile.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace tenon::testing {
namespace {

using namespace std::chrono_literals;

constexpr double rows = 300;

Session layered_session(std::string_view backend, int threads = 2) {
  Session session(layered_model(), {.backends = testing::backends(std::string(backend), threads)});
  session.bind(layered_weight_set());
  return session;
}

Buffer layered_input() { return device(Random(3).uniform(Shape({300, 4}, f32))); }

const StepTime::Part& part_of(const StepTime& time, std::string_view op) {
  const auto found = std::ranges::find(time.parts, op, &StepTime::Part::op);
  REQUIRE(found != time.parts.end());
  return *found;
}

}  // namespace

TEST_CASE("profile: a merged program tells what each of its steps took") {
  for (const int threads : {1, 2}) {
    Session session = layered_session("cpu", threads);
    session.enable_time_profile(true);
    session.forward({layered_input()});
    REQUIRE(session.step_times().size() == 1);
    const StepTime& time = session.step_times()[0];
    REQUIRE(time.values.size() > 1);

    const StepTime::Part& linear = part_of(time, "linear");
    CHECK(linear.title() == "block: y");
    CHECK(linear.count == 3);
    CHECK(linear.shape == Shape({300, 4}, f32));
    CHECK(linear.weights == f32);
    // The activation is fused into the linear layer: its bytes and operations count there.
    CHECK(linear.flops == 3 * (2 * rows * 4 * 4 + rows * 4));
    CHECK(linear.bytes == 3 * 4 * ((2 * rows * 4 + 4 * 4) + 2 * rows * 4));
    const StepTime::Part& neg = part_of(time, "neg");
    CHECK(neg.count == 1);
    CHECK(neg.flops == rows * 4);
    CHECK(neg.weights == std::nullopt);

    std::chrono::nanoseconds sum{};
    for (const StepTime::Part& part : time.parts) {
      CHECK(part.wall > 0ns);
      sum += part.wall;
    }
    CHECK(sum <= time.device);
  }
}

TEST_CASE("profile: the reference backend tells what each of its steps took") {
  Session session = layered_session("reference");
  session.enable_time_profile(true);
  session.forward({layered_input()});
  REQUIRE(session.step_times().size() == 1);
  const StepTime& time = session.step_times()[0];
  const StepTime::Part& linear = part_of(time, "linear");
  CHECK(linear.count == 3);
  CHECK(linear.flops == 3 * 2 * rows * 4 * 4);
  std::chrono::nanoseconds sum{};
  for (const StepTime::Part& part : time.parts) sum += part.wall;
  CHECK(time.parts.size() > 3);
  CHECK(sum <= time.device);
}

TEST_CASE("profile: a step by itself is its own part") {
  Session session = layered_session("reference");
  session.set_merge(false);
  session.enable_time_profile(true);
  session.forward({layered_input()});
  REQUIRE(session.step_times().size() == 7);
  for (const StepTime& time : session.step_times()) {
    REQUIRE(time.parts.size() == 1);
    CHECK(time.parts[0].values == time.values);
    CHECK(time.parts[0].wall == time.device);
  }
}

TEST_CASE("profile: a trace has the steps inside a merged piece") {
  Session session = layered_session("cpu");
  const auto trace = std::make_shared<Trace>();
  session.set_trace(trace);
  session.forward({layered_input()});
  std::ostringstream text;
  trace->write(text);
  std::map<std::string, int> counts;
  const auto written = nlohmann::json::parse(text.str());
  for (const auto& event : written["traceEvents"]) {
    if (event["ph"] == "X") ++counts[event["name"].get<std::string>()];
  }
  std::string events;
  for (const auto& [name, count] : counts) events += name + " x" + std::to_string(count) + "\n";
  CHECK(events ==
        "block: x x3\n"  // the carry's copy
        "block: y x3\n"
        "x x1\n"
        "x to z (5 ops, merged) x1\n"
        "z x1\n");
}

TEST_CASE("profile: what data decides is no number") {
  const OpInstance fixed(Attention{.causal = true});
  const std::vector<Shape> in{Shape({1, 4, 2, 8}, f32), Shape({1, 6, 1, 8}, f32),
                              Shape({1, 6, 1, 8}, f32)};
  const OpDef& def = op_def<Attention>();
  // Four queries behind two keys see 3, 4, 5 and 6 keys, with two heads of 8 + 8 multiply-adds.
  CHECK(def.flops(fixed.attributes(), in, in[0]) == 2.0 * 2 * (3 + 4 + 5 + 6) * (8 + 8));
  const OpInstance open(Attention{.causal = true, .has_position = true});
  CHECK(std::isnan(def.flops(open.attributes(), in, in[0])));
}

TEST_CASE("profile: an embedding counts the rows that it picks") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor ids = graph.input("ids", Shape({3}, i32));
  const Tensor table = graph.input("table", Shape({1000, 8}, f32));
  const std::vector<Tensor> rows_of_table{embedding(ids, table)};
  Session session(graph.program(rows_of_table), {.backends = testing::backends("cpu", 1)});
  session.enable_time_profile(true);
  session.forward({HostBuffer::of<std::int32_t>(Shape({3}, i32), {1, 2, 3}).to_device(cpu_device()),
                   device(Random(3).uniform(Shape({1000, 8}, f32)))});
  REQUIRE(session.step_times()[0].parts.size() == 1);
  CHECK(session.step_times()[0].parts[0].bytes == 3 * 4 + 2 * 3 * 8 * 4);
}

TEST_CASE("profile: rows that choose their layers count what they multiply by") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({3, 1, 16}, f32));
  const Tensor w = graph.input("w", Shape({50, 32, 16}, f32));
  const Tensor group = graph.input("group", Shape({3, 2}, i32));
  const std::vector<Tensor> y{grouped_linear(x, w, group)};
  Session session(graph.program(y), {.backends = testing::backends("cpu", 1)});
  session.enable_time_profile(true);
  Random random(3);
  session.forward({device(random.uniform(Shape({3, 1, 16}, f32))),
                   device(random.uniform(Shape({50, 32, 16}, f32))),
                   HostBuffer::of<std::int32_t>(Shape({3, 2}, i32), {1, 2, 3, 4, 5, 6})
                       .to_device(cpu_device())});
  const StepTime::Part& part = part_of(session.step_times()[0], "grouped_linear");
  CHECK(part.bytes == 4 * (3 * 16 + 6 * 32 * 16 + 3 * 2 + 3 * 2 * 32));
}

TEST_CASE("profile: lines add up over runs, the longest first") {
  Profile profile;
  StepTime::Part product{.values = {"q", "k"},
                         .op = "linear",
                         .shape = Shape({1, 64}, f32),
                         .weights = DType::q8_0,
                         .count = 2,
                         .wall = 3ms,
                         .bytes = 6e6,
                         .flops = 12e6};
  StepTime::Part sum{.values = {"s"},
                     .op = "add",
                     .shape = Shape({1, 64}, f32),
                     .count = 1,
                     .wall = 1ms,
                     .bytes = 4e6,
                     .flops = 1e6};
  const std::vector<StepTime> run{{{"q", "k", "s"}, "cpu", 5ms, 0ms, 4ms, 1ms, {sum, product}}};
  profile.add(run);
  profile.add(run);
  CHECK(profile.runs() == 2);
  CHECK(profile.wall() == 10ms);
  const std::vector<Profile::Line> lines = profile.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].value == "q, k");
  CHECK(lines[0].count == 4);
  CHECK(lines[0].wall == 6ms);
  CHECK(lines[0].bytes_per_second() == Approx(2e9));
  CHECK(lines[0].flops_per_second() == Approx(4e9));
  CHECK(lines[1].value == "s");

  const Limits limits{.f32_ops = 10e9, .int8_ops = 40e9, .read_bytes = 8e9};
  CHECK(*lines[0].share_of(limits) == Approx(0.25));  // of reading; 0.1 of int8
  CHECK(*lines[1].share_of(limits) == Approx(0.5));
  CHECK_FALSE(lines[0].share_of({}));

  const std::string table = profile.table(limits, 1);
  CHECK(table.find("q, k") != std::string::npos);
  CHECK(table.find("25 %") != std::string::npos);
  CHECK(table.find("1 further lines") != std::string::npos);
}

TEST_CASE("profile: pieces that a backend does not take apart are a line without numbers") {
  Profile profile;
  const std::vector<StepTime> run{{{"a", "b"}, "npu", 5ms, 1ms, 3ms, 1ms, {}}};
  profile.add(run);
  const std::vector<Profile::Line> lines = profile.lines();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].value == "a, b");
  CHECK(lines[0].wall == 3ms);
  CHECK(std::isnan(lines[0].bytes));
  CHECK_FALSE(lines[0].share_of({.f32_ops = 1e9, .read_bytes = 1e9}));
  CHECK(profile.table().find("merged") != std::string::npos);
}

TEST_CASE("profile: the limits of this machine are above nothing") {
  const Limits limits = cpu::measure_limits(1, 0.01);
  CHECK(limits.f32_ops > 0);
  CHECK(limits.read_bytes > 0);
  expect_error(Errc::bad_argument, [] { cpu::measure_limits(-1); });
}

}  // namespace tenon::testing
