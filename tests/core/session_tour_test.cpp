// Features of sessions: views, steps, callbacks, times, traces, forks, several memories.
#include "core/runs.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"
#include "support/remote_backend.hpp"

#include <tenon/log.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace tenon {
namespace {

using namespace testing;

/// Five ops; `c` is the only one with two inputs of its own kind.
Program chain() {
  Program program = program_of(R"(def forward(x: f32[4, 6]):
    a = exp(x)
    b = permute(a, order=[1, 0])
    c = matmul(a, b)
    d = tanh(c)
    e = neg(d)
    return e, a
)");
  verify(program);
  return program;
}

Buffer input_of_chain() { return device(Random(11).uniform(Shape({4, 6}, f32))); }

std::vector<std::vector<float>> all_values(const std::vector<Buffer>& buffers) {
  std::vector<std::vector<float>> result;
  for (const Buffer& buffer : buffers) result.push_back(values(buffer));
  return result;
}

/// `ops` on a device that the CPU cannot address, the others on the reference.
struct TwoMemories {
  explicit TwoMemories(std::vector<std::string> ops)
      : remote(std::make_shared<RemoteBackend>(
            fake, [ops = std::move(ops)](const Step& step) -> std::optional<std::string> {
              if (std::ranges::find(ops, step.value) != ops.end()) return std::nullopt;
              return "not one of its ops";
            })) {}
  std::shared_ptr<FakeDevice> fake = std::make_shared<FakeDevice>();
  std::shared_ptr<RemoteBackend> remote;
  std::vector<BackendPtr> backends() const { return {remote, testing::backends("reference")[0]}; }
};

}  // namespace

TEST_CASE("Session: backends are given the ops of their views") {
  const Program program = chain();
  const auto want = all_values(session(program).forward({input_of_chain()}));
  CHECK(op_names(program) == std::vector<std::string>{"a", "b", "c", "d", "e"});

  const TwoMemories two({"c", "d"});
  const BackendPtr reference = backends("reference")[0];
  Session run(program, std::vector<BoundView>{{reference, view(program, {0, 1, 4})},
                                              {two.remote, view(program, 2, 4)}});
  CHECK(all_values(run.forward({input_of_chain()})) == want);
  const PlanReport report = run.report(std::vector{Shape({4, 6}, f32)});
  REQUIRE(report.parts.size() == 3);
  CHECK(report.parts[1].backend == "remote");
  CHECK(report.parts[1].values == std::vector<std::string>{"c", "d"});
  CHECK(run.backends().size() == 2);

  using Views = std::vector<BoundView>;
  CHECK(expect_error(Errc::bad_argument, [&] {
          Session(program, Views{{reference, view(program, 0, 3)}});
        }).find("in none: d, e") != std::string::npos);
  CHECK(expect_error(Errc::bad_argument, [&] {
          Session(program, Views{{reference, view(program, 0, 5)}, {two.remote, {{"c"}}}});
        }).find("in several: c") != std::string::npos);
  expect_error(Errc::bad_reference, [&] {
    Session(program, Views{{reference, view(program, 0, 5)}, {two.remote, {{"zz"}}}});
  });
  expect_error(Errc::out_of_range, [&] { (void)view(program, {5}); });
  Session refused(program, Views{{reference, view(program, 1, 5)}, {two.remote, {{"a"}}}});
  CHECK(expect_error(Errc::unsupported, [&] {
          refused.forward({input_of_chain()});
        }).find("not one of its ops") != std::string::npos);
}

TEST_CASE("Session: what moves between memories is listed, once, and no more than is needed") {
  const TwoMemories two({"c", "d"});
  Session run(chain(), {.backends = two.backends()});
  const PlanReport report = run.report(std::vector{Shape({4, 6}, f32)});
  REQUIRE(report.transfers.size() == 2);
  CHECK(report.transfers[0].value == "a");
  CHECK(report.transfers[0].from == "host");
  CHECK(report.transfers[0].to == "dram");
  CHECK(report.transfers[0].bytes == 4 * 6 * 4);
  CHECK(report.transfers[1].value == "d");
  CHECK(report.transfers[1].to == "host");
  CHECK(report.transfers[1].bytes == 4 * 4 * 4);

  run.forward({input_of_chain()});
  const int before = two.fake->dram().transfers;
  run.forward({input_of_chain()});
  // Each copy, and what the backend itself reads and writes of its memory.
  CHECK(two.fake->dram().transfers - before <= 2 + 4);
}

TEST_CASE("Session: inputs and outputs may stay on the device") {
  const TwoMemories two({"a", "b", "c", "d", "e"});
  const auto want = all_values(session(chain()).forward({input_of_chain()}));
  Session run(chain(), {.backends = two.backends()});
  MemRegion& dram = two.fake->dram();
  std::vector<Buffer> outputs{Buffer::allocate(Shape({4, 4}, f32), dram),
                              Buffer::allocate(Shape({4, 6}, f32), dram)};
  run.forward({input_of_chain().to(dram)}, outputs);
  CHECK(outputs[0].is_on(dram));
  CHECK(all_values(outputs) == want);
  std::vector<Buffer> mixed{Buffer::allocate(Shape({4, 4}, f32), dram),
                            device(HostBuffer::zeros(Shape({4, 6}, f32)))};
  run.forward({input_of_chain()}, mixed);
  CHECK(all_values(mixed) == want);
}

TEST_CASE("Session: rings, where an output lies on an input") {
  Program program = program_of(R"(def forward(x: f32[4, 4]):
    a = permute(x, order=[1, 0])
    y = matmul(x, a)
    z = tanh(y)
    return z, y
)");
  verify(program);
  const HostBuffer start = Random(2).uniform(Shape({4, 4}, f32));
  Session run = session(program);
  const auto want = all_values(run.forward({device(start)}));
  for (const bool remote : {false, true}) {
    const TwoMemories two({"y", "z"});
    Session other(program, {.backends = remote ? two.backends() : backends("reference")});
    Buffer ring = device(start);
    std::vector<Buffer> outputs{ring, device(HostBuffer::zeros(Shape({4, 4}, f32)))};
    const std::byte* const memory = ring.data().cptr();
    other.forward({ring}, outputs);
    CHECK(all_values(outputs) == want);
    CHECK(ring.data().cptr() == memory);
    other.forward({ring}, outputs);  // the result of one step is the input of the next
    CHECK(all_values(outputs) ==
          all_values(run.forward({device(HostBuffer::of<float>(Shape({4, 4}, f32), want[0]))})));
  }
  const Buffer shared = device(start);
  std::vector<Buffer> same{shared, shared};
  expect_error(Errc::alias, [&] { run.forward({device(start)}, same); });
}

TEST_CASE("Session: step by step to any op") {
  const Program program = chain();
  const Buffer x = input_of_chain();
  const auto all = session(program).forward({x});
  for (const bool remote : {false, true}) {
    const TwoMemories two({"a", "d"});
    Session run(program, {.backends = remote ? two.backends() : backends("reference")});
    // A name that no step has begins nothing.
    expect_error(Errc::bad_reference, [&] { run.step_to("nothing", {input_of_chain()}); });
    const Buffer a = run.step_to("a", {x});
    CHECK(values(a) == values(all[1]));
    const Buffer c = run.step_to("c");
    CHECK(c.shape() == Shape({4, 4}, f32));
    CHECK(expect_error(Errc::call_order, [&] { run.step_to("a"); }).find("'d'") !=
          std::string::npos);
    expect_error(Errc::bad_reference, [&] { run.step_to("nothing"); });
    CHECK(values(run.step_to("e")) == values(all[0]));
    expect_error(Errc::bad_input, [&] { run.step_to("a"); });  // restarts: it needs its inputs
    CHECK(values(run.step_to("e", {x})) == values(all[0]));
    run.step_to("a", {x});
    CHECK(all_values(run.forward({x})) == all_values(all));
    CHECK(values(run.step_to("a", {x})) == values(all[1]));  // forward() ended the stepping

    Session other = run.fork(run);
    CHECK(all_values(other.forward({x})) == all_values(all));  // in the same memory
    expect_error(Errc::call_order, [&] { run.step_to("c"); });
    CHECK(values(other.step_to("a", {x})) == values(all[1]));
    CHECK(values(run.step_to("e", {x})) == values(all[0]));
    expect_error(Errc::call_order, [&] { other.step_to("c"); });
  }
}

TEST_CASE("Session: callbacks, log and times, one op at a time or merged") {
  std::vector<std::string> told, warnings;
  const LogSink before = set_log_sink([&](LogLevel level, std::string_view message) {
    (level == LogLevel::warning ? warnings : told).emplace_back(message);
  });
  const TwoMemories two({"c", "d"});
  for (const bool merge : {true, false}) {
    told.clear();
    warnings.clear();
    Session run(chain(), {.backends = two.backends()});
    std::vector<std::string> entered;
    std::vector<std::vector<float>> made;
    run.set_merge(merge);
    run.set_log_io(true);
    run.set_log_time(true);
    run.enable_time_profile(true);
    run.set_pre_callback([&](const StepEvent& event) {
      CHECK(event.outputs.empty());
      entered.push_back(std::string(event.backend.name()) + ":" + event.values.front());
      CHECK(event.is_merged() == event.op.empty());
    });
    run.set_post_callback([&](const StepEvent& event) {
      REQUIRE_FALSE(event.outputs.empty());
      made.push_back(values(event.outputs.front()));
    });
    run.apply();
    const auto outputs = run.forward({input_of_chain()});
    if (merge) {
      CHECK(entered == std::vector<std::string>{"reference:a", "remote:c", "reference:e"});
    } else {
      CHECK(entered ==
            std::vector<std::string>{"reference:a", "remote:c", "remote:d", "reference:e"});
    }
    CHECK(made.front() == values(outputs[1]));
    CHECK(made.back() == values(outputs[0]));
    REQUIRE(run.step_times().size() == entered.size());
    std::chrono::nanoseconds sum{};
    for (const StepTime& time : run.step_times()) {
      CHECK(time.wall >= time.mem);
      CHECK(time.other >= std::chrono::nanoseconds::zero());
      if (time.backend == "remote") CHECK(time.device == std::chrono::microseconds(5));
      sum += time.wall;
    }
    CHECK(sum <= run.total_time());
    CHECK(told.size() == 2 * entered.size());
    CHECK(warnings.size() == 2);  // a and e fall back to the reference
    CHECK(std::ranges::any_of(told, [](const std::string& line) {
            return line.find("merged") != std::string::npos;
          }) == merge);

    expect_error(Errc::call_order, [&] { run.set_merge(true); });
    expect_error(Errc::call_order, [&] { run.set_dump_outputs("x"); });
  }
  set_log_sink(before);
}

TEST_CASE("Session: a callback that throws ends the run, not the session") {
  Session run = session(chain());
  int calls = 0;
  run.set_post_callback([&](const StepEvent&) {
    if (++calls == 2) throw Error(Errc::cancelled, "test", "enough");
  });
  run.set_merge(false);
  expect_error(Errc::cancelled, [&] { run.forward({input_of_chain()}); });
  CHECK(run.forward({input_of_chain()}).size() == 2);
}

TEST_CASE("Session: a trace that a viewer reads") {
  const auto trace = std::make_shared<Trace>();
  const TwoMemories two({"c"});
  Session run(chain(), {.backends = two.backends()});
  run.set_trace(trace);
  run.set_merge(false);
  run.forward({input_of_chain()});
  std::stringstream text;
  trace->write(text);
  const auto json = nlohmann::json::parse(text.str());
  std::vector<std::string> tracks;
  std::size_t steps = 0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "M") {
      tracks.push_back(event.at("args").at("name"));
      continue;
    }
    REQUIRE(event.at("ph") == "X");
    CHECK(event.at("ts").get<double>() >= 0);
    CHECK(event.at("dur").get<double>() >= 0);
    if (event.at("tid") == 1 || event.at("tid") == 3) ++steps;
  }
  CHECK(tracks == std::vector<std::string>{"reference", "copies", "remote"});
  CHECK(steps == 4);  // the permutation is a view
}

TEST_CASE("Session: the outputs of all steps as files") {
  const auto folder = std::filesystem::temp_directory_path() / "tenon_session_dump";
  std::filesystem::remove_all(folder);
  Session run = session(chain());
  run.set_dump_outputs(folder.string());
  const auto outputs = run.forward({input_of_chain()});
  for (const char* name : {"a", "c", "d", "e"}) {
    CHECK(std::filesystem::exists(folder / (std::string(name) + ".raw")));
  }
  std::ifstream in(folder / "e.raw", std::ios::binary);
  std::vector<float> dumped(16);
  in.read(reinterpret_cast<char*>(dumped.data()), 64);
  CHECK(in.gcount() == 64);
  CHECK(dumped == values(outputs[0]));
  // A file stands where the folder should.
  Session nowhere = session(chain());
  nowhere.set_dump_outputs((folder / "e.raw").string());
  CHECK(expect_error(Errc::io_error, [&] {
          nowhere.forward({input_of_chain()});
        }).find("e.raw/a") != std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("Session: some ops as a session of their own") {
  const Program program = chain();
  const Program part = extract(program, 2, 4);
  CHECK(part.main().parameter_count == 2);
  CHECK(part.main().values[0].name == "a");
  CHECK(part.main().values[1].name == "b");
  CHECK(part.main().results.size() == 1);
  Session whole = session(program);
  Session middle = whole.view(2, 4);
  const HostBuffer a = whole.forward({input_of_chain()})[1].to_host();
  const auto d = middle.forward({device(a), device(a.permute(std::vector<int>{1, 0}))});
  CHECK(values(d[0]) == values(whole.step_to("d", {input_of_chain()})));
  expect_error(Errc::out_of_range, [&] { (void)extract(program, 3, 9); });
  CHECK(contains(expect_error(Errc::bad_argument, [&] { (void)extract(program, 3, 3); }),
                 "a view needs at least one op: [3, 3) is empty"));
}

TEST_CASE("Session: forks run from many threads with the same bits") {
  const TwoMemories two({"c"});
  for (const bool remote : {false, true}) {
    Session run(chain(), {.backends = remote ? two.backends() : backends("cpu")});
    const auto want = all_values(run.forward({input_of_chain()}));
    std::vector<Session> forks;
    for (int i = 0; i < 16; ++i) forks.push_back(run.fork());
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (Session& fork : forks) {
      threads.emplace_back([&] {
        const Buffer x = input_of_chain();
        for (int i = 0; i < 1000; ++i) {
          if (all_values(fork.forward({x})) != want) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
}

}  // namespace tenon
