// Submitted runs: results that become ready, state from run to run, errors, interrupts.
#include "core/runs.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"
#include "support/remote_backend.hpp"

#include <tenon/session.hpp>
#include <tenon/trace.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace tenon {
namespace {

using namespace testing;

MemRegion& host_region() { return cpu_device()->default_mem_region(); }

Program doubled() {
  return program_of(R"(def forward(x: f32[4]):
    y = add(x, x)
    return y
)");
}

/// Ids may lie outside of the table.
Program picked() {
  return program_of(R"(def forward(t: f32[3, 2], i: i32[2]):
    y = embedding(i, t)
    return y
)");
}

Program counted() {
  return program_of(R"(def forward(c: f32[1, 1, 1, 64, 1], x: f32[1, 1, 1, 1], pos: i32):
    n: i64[] = full(dtype="i64")
    d = cache_update(c, n, x, pos)
    s = sum(d, axes=[0, 1, 2, 3, 4])
    return d, s
)");
}

/// A session whose runs begin when they are let.
struct Held {
  explicit Held(Program program, std::string_view backend = "reference")
      : session(std::move(program), {.backends = backends(backend)}) {
    session.set_pre_callback([this](const StepEvent&) { gate.get_future().wait(); });
  }
  void release() { gate.set_value(); }

  std::promise<void> gate;
  Session session;
};

Buffer own(std::initializer_list<float> values) {
  const HostBuffer host = floats({static_cast<std::int64_t>(values.size())}, values);
  Buffer buffer = Buffer::allocate(host.shape(), host_region());
  buffer.chunk().write(host.bytes(), 0, static_cast<std::uint64_t>(host.shape().bytes()));
  return buffer;
}

Buffer scalar(std::int32_t value) {
  return device(HostBuffer::of<std::int32_t>(Shape({}, i32), {value}));
}

}  // namespace

TEST_CASE("submit: results become ready when the run ends") {
  Held held(doubled());
  const std::vector<Buffer> results = held.session.submit({device(floats({4}, {1, 2, 3, 4}))});
  REQUIRE(results.size() == 1);
  CHECK(results[0].shape() == Shape({4}, f32));
  CHECK_FALSE(results[0].is_ready());
  CHECK_FALSE(results[0].wait_for(std::chrono::milliseconds(1)));
  held.release();
  CHECK(values(results[0]) == std::vector<float>{2, 4, 6, 8});
  CHECK(results[0].is_ready());
  CHECK(held.session.total_time().count() > 0);
}

TEST_CASE("submit: a weight that an earlier run of the session still makes") {
  // A plan binds the weight, which is ready when that run has ended.
  Session run(program_of(R"(def forward(x: f32[4]):
    w: f32[4] = const("w")
    y = add(x, w)
    return y
)"),
              {.backends = backends("reference")});
  const auto bind = [&](const Buffer& weight) {
    run.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>{{"w", weight}}));
  };
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  run.set_pre_callback([&](const StepEvent&) { opened.wait(); });
  bind(device(floats({4}, {1, 1, 1, 1})));
  const Buffer first = run.submit({device(floats({4}, {1, 2, 3, 4}))})[0];
  bind(first);
  const std::jthread opening([&] {  // once submit() waits for the weight
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.set_value();
  });
  const Buffer last = run.submit({device(floats({4}, {10, 10, 10, 10}))})[0];
  CHECK(values(last) == std::vector<float>{12, 13, 14, 15});
}

TEST_CASE("submit: runs follow one another, and forward() follows them") {
  for (const char* backend : {"reference", "cpu"}) {
    Session run(doubled(), {.backends = backends(backend)});
    Buffer x = own({1, 2, 3, 4});
    const MemPtr begin = x.data();
    for (int i = 0; i < 20; ++i) {
      std::vector<Buffer> inputs;
      inputs.push_back(std::move(x));
      x = std::move(run.submit(std::move(inputs))[0]);
      CHECK(x.data() == begin);  // in place from run to run, whether or not they have ended
    }
    std::vector<Buffer> inputs;
    inputs.push_back(std::move(x));
    const Buffer last = run.forward(std::move(inputs))[0];
    CHECK(last.is_ready());
    CHECK(values(last)[3] == 4.0F * static_cast<float>(1 << 21));
    CHECK(last.is_unique());
  }
}

TEST_CASE("submit: state goes from run to run in its own memory") {
  Session run(counted(), {.backends = backends("cpu")});
  Buffer state = Buffer::allocate(Shape({1, 1, 1, 64, 1}, f32), host_region());
  state.fill<float>([](std::size_t) { return 0.0F; });
  const MemPtr begin = state.data();
  std::vector<Buffer> sums;
  for (int i = 0; i < 64; ++i) {
    std::vector<Buffer> inputs;
    inputs.push_back(std::move(state));
    inputs.push_back(device(floats({1, 1, 1, 1}, {1})));
    inputs.push_back(scalar(i));
    std::vector<Buffer> results = run.submit(std::move(inputs));
    state = std::move(results[0]);
    sums.push_back(std::move(results[1]));
    CHECK(state.data() == begin);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    CHECK(values(sums[i]) == std::vector<float>{static_cast<float>(i + 1)});
  }
  // A handle that the caller keeps is a state of its own.
  state.wait();
  const Buffer kept = state;
  std::vector<Buffer> inputs;
  inputs.push_back(std::move(state));
  inputs.push_back(device(floats({1, 1, 1, 1}, {5})));
  inputs.push_back(scalar(0));
  CHECK(values(run.submit(std::move(inputs))[1]) == std::vector<float>{68});
  CHECK(values(kept)[0] == 1);
}

TEST_CASE("submit: a run that fails gives its error to all that needs its results") {
  for (const char* backend : {"reference", "cpu"}) {
    Session pick(picked(), {.backends = backends(backend)});
    const Buffer table = device(floats({3, 2}, {1, 2, 3, 4, 5, 6}));
    const Buffer bad = pick.submit({table, device(ints({2}, {0, 7}))})[0];
    expect_error(Errc::out_of_range, [&] { bad.wait(); });
    expect_error(Errc::out_of_range, [&] { static_cast<void>(bad.to_host()); });
    Session twice(program_of(R"(def forward(x: f32[2, 2]):
    y = add(x, x)
    return y
)"),
                  {.backends = backends(backend)});
    const Buffer after = twice.submit({bad})[0];
    expect_error(Errc::out_of_range, [&] { after.wait(); });
    // The sessions work on.
    CHECK(values(pick.submit({table, device(ints({2}, {0, 2}))})[0]) ==
          std::vector<float>{1, 2, 5, 6});
    CHECK(values(twice.forward({device(floats({2, 2}, {1, 2, 3, 4}))})[0]) ==
          std::vector<float>{2, 4, 6, 8});
  }
  // What can be told at once is.
  Session pick(picked(), {.backends = backends("reference")});
  expect_error(Errc::bad_input, [&] { pick.submit({device(ints({2}, {0, 7}))}); });
}

TEST_CASE("submit: inputs are given back where it throws, and consumed where it does not") {
  Session run(doubled(), {.backends = backends("reference")});
  std::vector<Buffer> inputs{own({1, 2, 3})};
  expect_error(Errc::bad_input, [&] { run.submit(std::move(inputs)); });
  REQUIRE(inputs.size() == 1);
  CHECK(values(inputs[0]) == std::vector<float>{1, 2, 3});
  inputs = {own({1, 2, 3, 4})};
  const std::vector<Buffer> kept = inputs;
  const Buffer first = run.submit(kept)[0], second = run.submit(std::move(inputs))[0];
  CHECK(inputs.empty());
  CHECK(kept[0].has_data());
  CHECK(values(first) == values(second));
}

TEST_CASE("submit: sessions wait for one another's results, and for events") {
  Held first(doubled());
  Session second(doubled(), {.backends = backends("cpu")});
  EventSource source;
  const Buffer middle = first.session.submit({device(floats({4}, {1, 2, 3, 4}))})[0];
  const Buffer last = second.submit({middle}, {.after = {source.event()}})[0];
  CHECK_FALSE(last.is_ready());
  first.release();
  CHECK(values(middle) == std::vector<float>{2, 4, 6, 8});
  CHECK_FALSE(last.wait_for(std::chrono::milliseconds(1)));
  source.set();
  CHECK(values(last) == std::vector<float>{4, 8, 12, 16});

  Buffer never;
  {
    const EventSource given_up;
    never = second.submit({middle}, {.after = {given_up.event()}})[0];
  }
  expect_error(Errc::cancelled, [&] { never.wait(); });
}

TEST_CASE("submit: runs outlive their session") {
  Buffer result;
  std::promise<void> gate;
  {
    Session run(doubled(), {.backends = backends("reference")});
    run.set_pre_callback([&](const StepEvent&) { gate.get_future().wait(); });
    result = run.submit({device(floats({4}, {1, 2, 3, 4}))})[0];
    Session ended = std::move(run);
  }
  CHECK_FALSE(result.is_ready());
  gate.set_value();
  CHECK(values(result) == std::vector<float>{2, 4, 6, 8});
  // So do runs whose results nobody wants.
  for (int i = 0; i < 50; ++i) {
    Session run(doubled(), {.backends = backends("cpu")});
    static_cast<void>(run.submit({own({1, 2, 3, 4})}));
  }
}

TEST_CASE("submit: copies to and from a device are made meanwhile") {
  const auto fake = std::make_shared<FakeDevice>();
  const auto remote = std::make_shared<RemoteBackend>(fake);
  Session run(doubled(),
              {.backends = {remote, backends("reference")[0]}, .results_on_device = true});
  const auto trace = std::make_shared<Trace>();
  std::promise<void> gate;
  std::atomic<bool> holds = true;
  run.set_pre_callback([&](const StepEvent&) {
    if (holds.exchange(false)) gate.get_future().wait();
  });
  run.set_trace(trace);
  std::vector<Buffer> far, near;
  const int transfers = fake->dram().transfers;
  for (int i = 0; i < 4; ++i) {
    const float v = static_cast<float>(i);
    far.push_back(run.submit({device(floats({4}, {v, v, v, v}))})[0]);
    near.push_back(far.back().start_copy(host_region()));
    CHECK(far.back().is_on(fake->dram()));
  }
  // All inputs reach the device while the first run is held.
  while (fake->dram().transfers < transfers + 4) std::this_thread::yield();
  for (const Buffer& result : near) CHECK_FALSE(result.is_ready());
  gate.set_value();
  for (int i = 0; i < 4; ++i) {
    const float v = 2 * static_cast<float>(i);
    CHECK(values(near[static_cast<std::size_t>(i)]) == std::vector<float>{v, v, v, v});
  }
  std::ostringstream text;
  trace->write(text);
  CHECK(text.str().find("copies to devices") != std::string::npos);
}

TEST_CASE("submit: inputs on a device that the session does not use") {
  const auto fake = std::make_shared<FakeDevice>();
  const auto other = std::make_shared<FakeDevice>();
  const auto remote = std::make_shared<RemoteBackend>(fake);
  Session run(doubled(), {.backends = {remote, backends("reference")[0]}});
  const Buffer x = floats({4}, {1, 2, 3, 4}).to_device(other);
  const std::vector<float> want{2, 4, 6, 8};
  CHECK(values(run.forward({x})[0]) == want);
  CHECK(values(run.submit({x})[0]) == want);
}

TEST_CASE("start_copy: a copy has the error of what it copies, and waits for nobody else's") {
  const auto fake = std::make_shared<FakeDevice>();
  EventSource slow, failing;
  const Buffer x = own({1, 2, 3, 4});
  const Buffer late = x.ready_at(slow.event()).start_copy(fake->dram());
  const Buffer bad = x.ready_at(failing.event()).start_copy(fake->dram());
  const Buffer good = x.start_copy(fake->dram());
  CHECK(values(good) == std::vector<float>{1, 2, 3, 4});
  failing.fail(std::make_exception_ptr(Error(Errc::device_lost, "test", "gone")));
  expect_error(Errc::device_lost, [&] { bad.wait(); });
  CHECK_FALSE(late.is_ready());
  slow.set();
  CHECK(values(late) == std::vector<float>{1, 2, 3, 4});
  CHECK(x.start_copy(host_region()).data() == x.data());
}

TEST_CASE("Event: happens once, with an error or without") {
  CHECK(Event().is_ready());
  EventSource source;
  const Event event = source.event();
  int calls = 0;
  event.then([&] { ++calls; });
  CHECK(calls == 0);
  CHECK_FALSE(event.is_ready());
  CHECK_FALSE(event.wait_for(std::chrono::microseconds(10)));
  std::thread other([&] { event.wait(); });
  source.set();
  other.join();
  source.fail(std::make_exception_ptr(Error(Errc::internal, "test", "too late")));
  CHECK_NOTHROW(event.wait());
  event.then([&] { ++calls; });
  CHECK(calls == 2);
  Event lost;
  {
    EventSource dropped;
    lost = dropped.event();
    EventSource moved = std::move(dropped);
    CHECK_FALSE(lost.is_ready());
  }
  expect_error(Errc::cancelled, [&] { lost.wait(); });
}

TEST_CASE("set_interrupt: a call ends when it is cancelled or late, and the session works on") {
  const Shape shape({600, 600}, f32);
  const Program chain = [&] {
    std::string text = "def forward(x: f32[600, 600]):\n    v0 = matmul(x, x)\n";
    for (int i = 1; i < 40; ++i) {
      text += "    v" + std::to_string(i) + " = matmul(v" + std::to_string(i - 1) + ", x)\n";
    }
    return program_of(text + "    return v39\n");
  }();
  const Buffer x = Buffer::allocate(shape, host_region()).fill<float>([](std::size_t i) {
    return static_cast<float>(i % 7) / 1800;
  });
  for (const char* backend : {"reference", "cpu"}) {
    Session run(chain, {.backends = backends(backend, 2)});
    run.prepare(std::vector<Shape>{shape});
    run.set_interrupt({.deadline = std::chrono::steady_clock::now()});
    expect_error(Errc::timeout, [&] { run.forward({x}); });
    std::stop_source source;
    run.set_interrupt({.cancel = source.get_token()});
    const Buffer result = run.submit({x})[0];
    source.request_stop();
    expect_error(Errc::cancelled, [&] { result.wait(); });
    expect_error(Errc::cancelled, [&] { run.forward({x}); });
    run.set_interrupt({});
    // An interrupt of the call alone, and with a deadline of the session's.
    const Interrupt cancelled{.cancel = source.get_token()};
    const Interrupt late{.deadline = std::chrono::steady_clock::now()};
    expect_error(Errc::cancelled, [&] { run.forward({x}, cancelled); });
    expect_error(Errc::timeout, [&] { run.forward({x}, late); });
    run.set_interrupt(late);
    std::stop_source unused;
    expect_error(Errc::timeout, [&] { run.forward({x}, Interrupt{.cancel = unused.get_token()}); });
    run.set_interrupt({});
    if (std::string_view(backend) == "cpu") {
      const std::vector<float> wanted = values(run.forward({x})[0]);
      std::stop_source other;  // one that is never used changes nothing
      run.set_interrupt({.cancel = other.get_token()});
      CHECK(values(run.forward({x})[0]) == wanted);
    }
  }
}

TEST_CASE("set_interrupt: ends the wait for an input that is not ready") {
  Session run(program_of("def forward(x: f32[2]):\n    y = neg(x)\n    return y\n"));
  const Buffer ready =
      Buffer::allocate(Shape({2}, f32), host_region()).fill<float>([](std::size_t) { return 1; });
  const auto late = [] { return std::chrono::steady_clock::now() + std::chrono::milliseconds(20); };
  const Buffer never(ready.shape(), ready.chunk(), 0, [] { return false; });
  run.set_interrupt({.deadline = late()});
  expect_error(Errc::timeout, [&] { run.forward({never}); });
  const EventSource other_work;
  run.set_interrupt({.deadline = late()});
  expect_error(Errc::timeout, [&] { run.forward({ready.ready_at(other_work.event())}); });
  run.set_interrupt({.deadline = late()});
  const Buffer result = run.submit({ready}, {.after = {other_work.event()}})[0];
  expect_error(Errc::timeout, [&] { result.wait(); });
  run.set_interrupt({});
  CHECK(values(run.forward({ready})[0]) == std::vector<float>{-1, -1});
}

TEST_CASE("set_interrupt: ends the wait for runs that were submitted before") {
  Held held(doubled());
  const Buffer first = held.session.submit({own({1, 2, 3, 4})})[0];
  std::stop_source source;
  source.request_stop();
  for (const auto& [interrupt, code] :
       {std::pair(Interrupt{.deadline = std::chrono::steady_clock::now()}, Errc::timeout),
        std::pair(Interrupt{.cancel = source.get_token()}, Errc::cancelled)}) {
    held.session.set_interrupt(interrupt);
    std::vector<Buffer> inputs{own({5, 6, 7, 8})};
    expect_error(code, [&] { held.session.forward(std::move(inputs)); });
    CHECK(inputs.at(0).has_data());
    expect_error(code, [&] { held.session.step_to("y", {own({5, 6, 7, 8})}); });
  }
  CHECK(!first.is_ready());
  held.session.set_interrupt({});
  held.release();
  CHECK(values(first) == std::vector<float>{2, 4, 6, 8});
  expect_error(Errc::timeout, [&] {  // also where nobody waits
    held.session.set_interrupt({.deadline = std::chrono::steady_clock::now()});
    held.session.forward({own({5, 6, 7, 8})});
  });
}

}  // namespace tenon
