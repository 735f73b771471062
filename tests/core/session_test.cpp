// Running programs: checks of inputs, shared memory, cached plans.
#include "core/runs.hpp"
#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"

#include <tenon/ops.hpp>
#include <tenon/program_view.hpp>
#include <tenon/repeat.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace testing;

/// y = x w^T + x2, with x: f32[S, 4], w a constant.
Program sample() {
  Graph graph;
  const Tensor x = graph.input("x", Shape({symbol("S"), 4}, f32));
  const Tensor bias = graph.input("bias", Shape({symbol("S"), 4}, f32));
  const Tensor y = linear(x, graph.constant("w", Shape({4, 4}, f32))) + bias;
  return graph.program({&y, 1});
}

std::map<std::string, Buffer> sample_weights() {
  return {{"w", device(Random(1).uniform(Shape({4, 4}, f32)))}};
}

Buffer filled(std::int64_t rows, float value) {
  HostBuffer host = HostBuffer::zeros(Shape({rows, 4}, f32));
  std::ranges::fill(host.mutable_values<float>(), value);
  return device(host);
}

/// The reference backend, that counts what it compiles and can be held up while it runs.
class WatchedBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "watched"; }
  MemRegion& region() const override { return inner_->region(); }
  std::optional<std::string> refuses(const Step& step) const override {
    if (step.kind == Step::Kind::op && step.op.def()->name == refused) return "on holiday";
    return std::nullopt;
  }
  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override {
    ++compiled;
    return std::make_unique<Watched>(*this, inner_->compile(program, steps), nullptr);
  }

  mutable std::atomic<int> compiled = 0;
  mutable std::vector<std::string> keys;  ///< of the constants of each bind()
  mutable std::atomic<bool> entered = false;
  std::atomic<bool> hold = false;
  std::string refused;

 private:
  class Watched final : public Partition, public BoundPartition {
   public:
    Watched(const WatchedBackend& owner, std::unique_ptr<Partition> partition,
            std::unique_ptr<BoundPartition> bound)
        : owner_(owner), partition_(std::move(partition)), bound_(std::move(bound)) {}
    std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
      for (std::size_t i = 0; i < constants.buffers.size(); ++i) {
        owner_.keys.push_back(constants.key(i));
      }
      return std::make_unique<Watched>(owner_, nullptr, partition_->bind(constants));
    }
    void run(HostFrame& frame) const override {
      owner_.entered = true;
      while (owner_.hold) std::this_thread::yield();
      bound_->run(frame);
    }

   private:
    const WatchedBackend& owner_;
    std::unique_ptr<Partition> partition_;
    std::unique_ptr<BoundPartition> bound_;
  };

  BackendPtr inner_ = backends("reference")[0];
};

/// A backend that is not finished: it takes every step, and makes nothing of it.
class IdleBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "idle"; }
  MemRegion& region() const override { return cpu_device()->default_mem_region(); }
  std::optional<std::string> refuses(const Step&) const override { return std::nullopt; }
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step>) const override {
    return compiles ? std::make_unique<Idle>() : nullptr;
  }
  bool compiles = false;

 private:
  struct Idle final : Partition {
    std::unique_ptr<BoundPartition> bind(const BoundConstants&) const override { return nullptr; }
  };
};

}  // namespace

TEST_CASE("Session: plans share what is made of a program's own arrays") {
  using Strings = std::vector<std::string>;
  Program program = program_of(
      "def forward(x: f32[S, 4]):\n"
      "    table: f32[4] = const(\"folded:table\")\n"
      "    weight: f32[4] = const(\"weight\")\n"
      "    sizes: f32[4] = abs(table)\n"
      "    sum: f32[S, 4] = add(x, sizes)\n"
      "    shifted: f32[S, 4] = add(sum, table)\n"
      "    y: f32[S, 4] = mul(shifted, weight)\n"
      "    return y\n");
  const auto weights = std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"weight", device(floats({4}, {2, 2, 2, 2}))}});
  const auto watched = std::make_shared<WatchedBackend>();
  const auto bound = [&](float first) {
    program.folded.insert_or_assign("folded:table", floats({4}, {first, 0, -1, 2}));
    Session session(program, {.backends = {watched}});
    session.bind(weights);
    return session;
  };
  Session session = bound(-3);
  const auto keys = [&](Session& run, std::int64_t rows) {
    watched->keys.clear();
    const auto got = values(run.forward({filled(rows, 1)})[0]);
    CHECK(got.back() == 10);
    return Strings(watched->keys);
  };
  // Of the constant part, which is computed once; and of the plan: table, what is computed, weight.
  const Strings first = keys(session, 1);
  REQUIRE(first.size() == 4);
  CHECK(watched->compiled == 2);
  const Strings second = keys(session, 2);
  CHECK(watched->compiled == 3);
  CHECK(second == Strings(first.begin() + 1, first.end()));
  CHECK(std::ranges::count(second, "weight") == 1);

  // Other arrays of the same names have other keys, equal ones the same.
  Session equal = bound(-3), other = bound(5);
  CHECK(keys(equal, 1) == first);
  const Strings others = keys(other, 1);
  REQUIRE(others.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK((others[i] == first[i]) == (first[i] == "weight"));
}

TEST_CASE("Session: what is made of constants differs in each of four loops inside each other") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({1}, f32));
  const Tensor w = graph.constant("w", Shape({2, 2, 2, 2}, f32));
  const std::function<Tensor(const Tensor&, const Tensor&)> plus_sizes = [&](const Tensor& sum,
                                                                             const Tensor& part) {
    if (part.rank() == 0) return sum + abs(part);
    return repeat(std::int64_t{2}, sum, [&](const Tensor& index, const Tensor& now) {
      return plus_sizes(now, select(part, index));
    });
  };
  const Tensor y = plus_sizes(x, w);
  HostBuffer numbers = HostBuffer::zeros(Shape({2, 2, 2, 2}, f32));
  float number = 1;
  for (float& value : numbers.mutable_values<float>()) value = (number *= -2);
  for (const char* name : {"cpu", "reference"}) {
    Session run = session(graph.program({&y, 1}), {{"w", device(numbers)}}, name);
    CHECK(values(run.forward({device(floats({1}, {1}))})[0]) == std::vector<float>{131071});
  }
}

TEST_CASE("Session: a backend that makes nothing of its steps is an error, not a crash") {
  const Buffer x = filled(2, 1);
  for (const bool compiles : {false, true}) {
    const auto backend = std::make_shared<IdleBackend>();
    backend->compiles = compiles;
    Session run(sample(), {.backends = {backend}});
    run.bind(std::make_shared<const WeightSet>(sample_weights()));
    check_contains(expect_error(Errc::internal, [&] { run.forward({x, x}); }),
                   {compiles ? "Partition::bind" : "idle: Backend::compile"});
  }
}

TEST_CASE("Session: an input that does not fit is named, with both types") {
  Session run = session(sample(), sample_weights());
  const Buffer good = filled(2, 1);
  const auto refused = [&](std::vector<Buffer> inputs) {
    return expect_error(Errc::bad_input, [&] { run.forward(std::move(inputs)); });
  };
  check_contains(refused({good}), {"1 inputs", "2 expected"});
  check_contains(refused({good, good, good}), {"3 inputs", "2 expected"});
  check_contains(refused({}), {"0 inputs"});
  check_contains(refused({device(HostBuffer::zeros(Shape({2, 5}, f32))), good}),
                 {"'x'", "f32[2, 5]", "f32[S, 4]"});
  check_contains(refused({device(HostBuffer::zeros(Shape({8}, f32))), good}), {"'x'", "f32[8]"});
  check_contains(refused({good, device(HostBuffer::zeros(Shape({2, 4}, f16)))}),
                 {"'bias'", "f16[2, 4]"});
  check_contains(refused({good, filled(3, 1)}), {"'bias'", "f32[3, 4]", "S = 2"});
  check_contains(refused({good, Buffer()}), {"'bias'", "no data"});
  check_contains(refused({Buffer(Shape({2, 4}, f32)), good}), {"'x'", "no data"});
  CHECK(run.forward({good, good}).size() == 1);  // and none of it has hurt
}

TEST_CASE("Session: weights that are missing or misshapen are named") {
  const Buffer x = filled(1, 1);
  Session run(sample(), {.backends = backends("reference")});
  check_contains(expect_error(Errc::bad_reference, [&] { run.forward({x, x}); }),
                 {"'w'", "bind() was given none"});
  run.bind(std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"W", device(HostBuffer::zeros(Shape({4, 4}, f32)))}}));
  check_contains(expect_error(Errc::bad_reference, [&] { run.forward({x, x}); }),
                 {"'w'", "did you mean 'W'?"});
  run.bind(std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"w", device(HostBuffer::zeros(Shape({4, 3}, f32)))}}));
  check_contains(expect_error(Errc::shape_mismatch, [&] { run.forward({x, x}); }),
                 {"'w'", "f32[4, 4]", "f32[4, 3]"});
  run.bind(std::make_shared<const WeightSet>(sample_weights()));
  const auto before = values(run.forward({x, x})[0]);
  auto doubled = sample_weights();
  doubled["w"] = device(HostBuffer::zeros(Shape({4, 4}, f32)));
  run.bind(std::make_shared<const WeightSet>(doubled));
  CHECK(values(run.forward({x, x})[0]) == std::vector<float>(4, 1));
  CHECK(before != std::vector<float>(4, 1));
}

TEST_CASE("Session: a constant whose type only its weights tell takes no other weights") {
  const Program program = program_of(R"(def forward(x: f32[4]):
    w = const("w")
    s = sum(w, axes=[0])
    y = add(x, s)
    return y
)");
  const auto rows = [](std::int64_t count) {
    const HostBuffer w = HostBuffer::zeros(Shape({count, 4}, f32));
    return std::make_shared<const WeightSet>(std::map<std::string, Buffer>{{"w", device(w)}});
  };
  const Buffer x = device(floats({4}, {1, 2, 3, 4}));
  for (const char* backend : {"reference", "cpu"}) {
    Session run(program, {.backends = backends(backend)});
    run.bind(rows(300));
    CHECK(values(run.forward({x})[0]) == std::vector<float>{1, 2, 3, 4});
    // The plan reads 300 rows.
    run.bind(rows(2));
    check_contains(expect_error(Errc::shape_mismatch, [&] { run.forward({x}); }),
                   {"'w'", "f32[300, 4]", "f32[2, 4]"});
    run.bind(rows(300));
    CHECK(values(run.forward({x})[0]) == std::vector<float>{1, 2, 3, 4});
    run.bind(std::make_shared<const WeightSet>(
        std::map<std::string, Buffer>{{"w", Buffer(Shape({300, 4}, f32))}}));
    check_contains(expect_error(Errc::call_order, [&] { run.forward({x}); }), {"'w'", "no data"});
  }
}

TEST_CASE("Session: into memory of the caller") {
  Session run = session(sample(), sample_weights());
  const Buffer x = filled(2, 0.5F);
  const auto want = values(run.forward({x, x})[0]);

  std::vector<Buffer> outputs{filled(2, -7)};
  const std::byte* memory = outputs[0].data().cptr();
  run.forward({x, x}, outputs);
  CHECK(outputs[0].data().cptr() == memory);
  CHECK(values(outputs[0]) == want);

  // On a device that the CPU cannot address.
  const auto fake = std::make_shared<FakeDevice>();
  std::vector<Buffer> far{Buffer::allocate(Shape({2, 4}, f32), fake->dram())};
  run.forward({x.to(fake->dram()), x}, far);
  CHECK(values(far[0]) == want);

  std::vector<Buffer> narrow{device(HostBuffer::zeros(Shape({2, 3}, f32)))};
  check_contains(expect_error(Errc::bad_input, [&] { run.forward({x, x}, narrow); }),
                 {"output 0", "f32[2, 4]", "f32[2, 3]"});
  CHECK(values(narrow[0]) == std::vector<float>(6, 0));  // unchanged
  std::vector<Buffer> two{filled(2, 3), filled(2, 3)};
  expect_error(Errc::bad_input, [&] { run.forward({x, x}, two); });
  CHECK(values(two[0]) == std::vector<float>(8, 3));
  expect_error(Errc::bad_argument, [&] { run.forward({x, x}, std::span<Buffer>()); });
}

TEST_CASE("Session: inputs and results are the caller's") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({2, 4}, f32));
  const Tensor e = exp(x);
  const Tensor results[] = {x, e, e, transpose(e), neg(e)};
  Session run = session(graph.program(results));
  const Buffer given = filled(2, 1);
  const auto first = run.forward({given});
  REQUIRE(first.size() == 5);
  CHECK(values(first[0]) == values(given));
  CHECK(values(first[1]) == values(first[2]));
  CHECK(first[3].shape() == Shape({4, 2}, f32));
  // Every result has memory of its own, the next run leaves it alone.
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK_FALSE(first[i].chunk() == given.chunk());
    for (std::size_t j = 0; j < i; ++j) CHECK_FALSE(first[i].chunk() == first[j].chunk());
  }
  const auto kept = values(first[4]);
  run.forward({filled(2, 3)});
  CHECK(values(first[4]) == kept);
  CHECK(values(given) == std::vector<float>(8, 1));
}

TEST_CASE("Session: the memory of large results serves the next run once it came back") {
  constexpr std::int64_t rows = std::int64_t{9} << 18;
  Graph graph;
  const Tensor y = broadcast_to(graph.input("x", Shape({1, 4}, f32)), {rows, 4});
  const Program program = graph.program({&y, 1});
  Session run = session(program);
  const auto one = [&](float value) { return run.forward({filled(1, value)})[0]; };
  const auto last = [](const Buffer& result) { return result.to_host().at({rows - 1, 3}); };
  Buffer first = one(1);
  CHECK(first.is_unique());
  CHECK(one(2).data().cptr() != first.data().cptr());  // the first is still the caller's
  CHECK(last(first) == 1);
  HostBuffer held = first.to_host();
  first = {};
  static_cast<void>(one(3));
  CHECK(held.at({rows - 1, 3}) == 1);  // an array of it keeps it, too
  held = {};
  const std::byte* const back = one(4).data().cptr();
  // Nobody else gets what came back.
  const MemChunk other =
      cpu_device()->default_mem_region().malloc(static_cast<std::uint64_t>(y.shape().bytes()) + 64);
  CHECK(other.begin().cptr() != back);
  const Buffer third = one(4);
  CHECK(third.data().cptr() == back);
  run = session(program);  // a result outlives its session
  CHECK(last(third) == 4);
}

TEST_CASE("Session: empty and scalar arrays run") {
  Session run = session(sample(), sample_weights());
  CHECK(run.forward({filled(0, 1), filled(0, 1)})[0].shape() == Shape({0, 4}, f32));
  Graph graph;
  const Tensor x = graph.input("x", Shape({}, f32));
  const Tensor y = x * x;
  Session square = session(graph.program({&y, 1}));
  CHECK(values(square.forward({device(HostBuffer::of<float>(Shape({}, f32), {3}))})[0]) ==
        std::vector<float>{9});
}

TEST_CASE("Session: positions along an axis whose size only the inputs tell") {
  Program program = program_of(R"(def forward(x: f32[B, S, 3]):
    p: i32[S] = iota(x, axis=1, start=2)
    n: i64[B] = iota(x, dtype="i64")
    q: f32[S] = cast(p)
    f: f32[S, 1] = unsqueeze(q, axis=1)
    y: f32[B, S, 3] = add(x, f)
    return y, n
)");
  CHECK(print(parse(print(program), "again")) == print(program));
  verify(program);
  for (const std::string backend : {"reference", "cpu"}) {
    Session run = session(program, {}, backend);
    for (const std::int64_t length : {3, 1, 0, 300, 3}) {
      INFO(backend << ", " << length);
      const Shape shape({2, length, 3}, f32);
      const auto outputs = run.forward({device(HostBuffer::zeros(shape))});
      const auto y = values(outputs.at(0));
      REQUIRE(outputs[0].shape() == shape);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto position = static_cast<std::int64_t>(i) / 3 % length;
        if (y[i] != static_cast<float>(position + 2)) FAIL_CHECK("element " << i);
      }
      const HostBuffer n = outputs.at(1).to_host();
      CHECK(n.shape() == Shape({2}, i64));
      CHECK(n.values<std::int64_t>()[1] == 1);
    }
  }
}

TEST_CASE("Session: plans are kept for the shapes last used") {
  const auto watched = std::make_shared<WatchedBackend>();
  Session run(sample(), {.backends = {watched}, .plan_limit = 2});
  run.bind(std::make_shared<const WeightSet>(sample_weights()));
  const auto rows = [&](std::int64_t count) {
    run.forward({filled(count, 1), filled(count, 1)});
    return watched->compiled.load();
  };
  CHECK(rows(1) == 1);
  CHECK(rows(1) == 1);
  CHECK(rows(2) == 2);
  CHECK(rows(1) == 2);
  CHECK(rows(3) == 3);  // the plan for 2 goes
  CHECK(rows(1) == 3);
  CHECK(rows(2) == 4);
  const Session fork = run.fork();
  CHECK(watched->compiled == 4);
}

TEST_CASE("Session: a plan for inputs that are given up is kept beside that which keeps them") {
  const auto watched = std::make_shared<WatchedBackend>();
  Session run(program_of("def forward(x: f32[4]):\n    y = add(x, x)\n    return y\n"),
              {.backends = {watched}, .plan_limit = 1});
  for (int i = 0; i < 3; ++i) {
    std::vector<Buffer> inputs;
    inputs.push_back(Buffer::allocate(Shape({4}, f32), cpu_device()->default_mem_region()));
    run.forward(std::move(inputs));
  }
  CHECK(watched->compiled == 2);
}

TEST_CASE("Session: a loop that leaves all as it is has no step") {
  const char* text = R"(def same(x: f32[4], i: i64, s: Scope):
    return x

def body(x: f32[4], go: bool, i: i64, s: Scope):
    a = relu(x)
    inner = pack(a)
    looped = repeat(same, 3, inner, s)
    y: f32[4] = item(looped, 0)
    no: bool = full(value=0.0, dtype="bool")
    return y, no

def forward(x: f32[4], go: bool):
    s0 = scope("s")
    carry = pack(x, go)
    t = repeat(body, 5, carry, s0, condition=1)
    y: f32[4] = item(t, 0)
    return y
)";
  const TempFolder folder;
  Session run(program_of(text), {.backends = backends("cpu")});
  run.set_merge(false);
  run.set_trace(std::make_shared<Trace>());
  run.set_log_time(true);
  const Buffer go = device(HostBuffer::of<bool>(Shape({}, boolean), {true}));
  CHECK(values(run.forward({device(floats({4}, {-1, 2, -3, 4})), go})[0]) ==
        std::vector<float>{0, 2, 0, 4});
  CHECK_NOTHROW(run.save(folder.path() / "looped.snapshot"));
}

TEST_CASE("Session: a value in a loop that cannot be dumped is found before the first step") {
  const char* text = R"(def body(x: f32[4], go: bool, i: i64, s: Scope):
    a = relu(x)
    no: bool = full(value=0.0, dtype="bool")
    return a, no

def forward(x: f32[4], go: bool):
    b = cast(x, dtype="i32")
    c = cast(b, dtype="f32")
    s0 = scope("s")
    carry = pack(c, go)
    t = repeat(body, 5, carry, s0, condition=1)
    y: f32[4] = item(t, 0)
    return y
)";
  const TempFolder folder;
  Session run(program_of(text), {.backends = backends("cpu")});
  run.set_dump_outputs(folder.path().string(), "SQT");
  const Buffer go = device(HostBuffer::of<bool>(Shape({}, boolean), {true}));
  const std::string what = expect_error(
      Errc::bad_argument, [&] { run.forward({device(floats({4}, {1, 2, 3, 4})), go}); });
  CHECK(what.find("has no fixed-point values") != std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("Session: one thread at a time, others fork") {
  const auto watched = std::make_shared<WatchedBackend>();
  Session run(sample(), {.backends = {watched}});
  run.bind(std::make_shared<const WeightSet>(sample_weights()));
  const Buffer x = filled(2, 1);
  Session apart = run.fork();
  Session sharing = run.fork(run);
  const auto want = values(run.forward({x, x})[0]);

  watched->entered = false;
  watched->hold = true;
  std::vector<float> got;
  std::thread runner([&] { got = values(run.forward({x, x})[0]); });
  while (!watched->entered) std::this_thread::yield();
  check_contains(expect_error(Errc::busy, [&] { run.forward({x, x}); }), {"fork"});
  expect_error(Errc::busy, [&] { sharing.forward({x, x}); });  // runs on the same activations
  watched->entered = false;
  std::vector<float> meanwhile;
  std::thread other([&] { meanwhile = values(apart.forward({x, x})[0]); });
  while (!watched->entered) std::this_thread::yield();  // inside at the same time
  watched->hold = false;
  runner.join();
  other.join();
  CHECK(got == want);
  CHECK(meanwhile == want);
  CHECK(values(run.forward({x, x})[0]) == want);  // free again
  CHECK(values(sharing.forward({x, x})[0]) == want);
}

TEST_CASE("Session: a run that fails frees the session") {
  Graph graph;
  const Tensor table = graph.input("table", Shape({3, 2}, f32));
  const Tensor ids = graph.input("ids", Shape({1}, i32));
  const Tensor y = embedding(ids, table);
  Session run = session(graph.program({&y, 1}));
  const Buffer rows = device(floats({3, 2}, {0, 1, 2, 3, 4, 5}));
  check_contains(
      expect_error(Errc::out_of_range, [&] { run.forward({rows, device(ints({1}, {3}))}); }),
      {"embedding"});
  CHECK(values(run.forward({rows, device(ints({1}, {2}))})[0]) == std::vector<float>{4, 5});
}

TEST_CASE("Session: sixteen threads on forks get what one gets") {
  Graph graph;
  Tensor y = graph.input("x", Shape({symbol("S"), 4}, f32));
  for (int i = 0; i < 4; ++i) {
    const Tensor w = graph.constant("w" + std::to_string(i), Shape({4, 4}, f32));
    y = softmax(linear(y, w)) + tanh(y);
  }
  std::map<std::string, Buffer> weights;
  Random random(9);
  for (int i = 0; i < 4; ++i)
    weights["w" + std::to_string(i)] = device(random.uniform(Shape({4, 4}, f32)));
  Session run = session(graph.program({&y, 1}), weights, "cpu");

  constexpr int sizes = 4;
  std::vector<Buffer> inputs;
  std::vector<HostBuffer> want;
  for (std::int64_t rows = 1; rows <= sizes; ++rows) {
    inputs.push_back(device(random.uniform(Shape({rows, 4}, f32))));
    want.push_back(run.forward({inputs.back()})[0].to_host());
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      Session own = run.fork();
      for (int i = 0; i < 100; ++i) {
        const auto size = static_cast<std::size_t>((t + i) % sizes);
        try {
          if (!same_bits(own.forward({inputs[size]})[0].to_host(), want[size])) ++wrong;
        } catch (const Error&) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("Session: who runs what, and why") {
  const auto watched = std::make_shared<WatchedBackend>();
  watched->refused = "linear";
  Session run(sample(), {.backends = {watched, backends("reference")[0]}});
  run.bind(std::make_shared<const WeightSet>(sample_weights()));
  const Shape shapes[] = {Shape({2, 4}, f32), Shape({2, 4}, f32)};
  const PlanReport report = run.report(shapes);
  REQUIRE(report.parts.size() == 2);
  CHECK(report.parts[0].backend == "reference");
  CHECK(report.parts[0].values == std::vector<std::string>{"linear0"});
  CHECK(report.parts[1].backend == "watched");
  CHECK(report.parts[1].values == std::vector<std::string>{"add0"});
  CHECK(run.explain("linear0", shapes) ==
        std::vector<std::string>{"watched: on holiday", "reference: takes it"});
  CHECK(run.explain("add0", shapes) ==
        std::vector<std::string>{"watched: takes it", "reference: takes it"});
  expect_error(Errc::bad_reference, [&] { run.explain("nothing", shapes); });
  CHECK(values(run.forward({filled(2, 1), filled(2, 1)})[0]) ==
        values(session(sample(), sample_weights()).forward({filled(2, 1), filled(2, 1)})[0]));

  Session alone(sample(), {.backends = {watched}});
  alone.bind(std::make_shared<const WeightSet>(sample_weights()));
  check_contains(
      expect_error(Errc::unsupported, [&] { alone.forward({filled(2, 1), filled(2, 1)}); }),
      {"linear0", "linear", "watched: on holiday"});
}

TEST_CASE("Session: a part of a session that forbids fallbacks forbids them") {
  const auto watched = std::make_shared<WatchedBackend>();
  watched->refused = "linear";
  Session run(sample(), {.backends = {watched, backends("reference")[0]}, .forbid_fallback = true});
  Session part = run.view(0, 2);
  part.bind(std::make_shared<const WeightSet>(sample_weights()));
  check_contains(
      expect_error(Errc::unsupported, [&] { part.forward({filled(2, 1), filled(2, 1)}); }),
      {"linear0", "fallbacks are forbidden", "on holiday"});
}

TEST_CASE("Session: one that was moved from says so") {
  const Buffer x = filled(2, 1);
  Session run = session(sample(), sample_weights());
  run.forward({x, x});
  Session other = std::move(run);
  const std::vector<Shape> shapes{Shape({2, 4}, f32), Shape({2, 4}, f32)};
  std::vector<Buffer> outputs{filled(2, 0)};
  check_contains(expect_error(Errc::call_order, [&] { run.forward({x, x}); }),
                 {"Session", "moved from"});
  expect_error(Errc::call_order, [&] { run.forward({x, x}, outputs); });
  expect_error(Errc::call_order, [&] { run.program(); });
  expect_error(Errc::call_order, [&] { run.backends(); });
  expect_error(Errc::call_order, [&] { run.step_to("y"); });
  expect_error(Errc::call_order, [&] { run.report(shapes); });
  expect_error(Errc::call_order, [&] { run.explain("y", shapes); });
  expect_error(Errc::call_order, [&] { run.set_merge(false); });
  expect_error(Errc::call_order, [&] { run.set_log_io(true); });
  expect_error(Errc::call_order, [&] { run.set_post_callback({}); });
  expect_error(Errc::call_order, [&] { run.apply(); });
  expect_error(Errc::call_order, [&] { run.step_times(); });
  expect_error(Errc::call_order, [&] { run.total_time(); });
  expect_error(Errc::call_order, [&] { run.save("nowhere.snap"); });
  expect_error(Errc::call_order, [&] { run.fork(); });
  expect_error(Errc::call_order, [&] { other.fork(run); });
  expect_error(Errc::call_order, [&] { run.view(0, 1); });
  expect_error(Errc::call_order,
               [&] { run.bind(std::make_shared<const WeightSet>(sample_weights())); });
  CHECK(other.forward({x, x}).size() == 1);

  WeightSet weights(sample_weights());
  const WeightSet kept = std::move(weights);
  CHECK(kept.on_host("w").has_data());
  expect_error(Errc::call_order, [&] { weights.prepared(); });
  CHECK(weights.find("w") == nullptr);
  expect_error(Errc::bad_reference, [&] { weights.on_host("w"); });
}

TEST_CASE("Session: null for weights or a backend is refused") {
  Session run = session(sample(), sample_weights());
  expect_error(Errc::bad_argument, [&] { run.bind(nullptr); });
  CHECK_NOTHROW(run.forward({filled(2, 1), filled(2, 1)}));
  expect_error(Errc::bad_argument, [] { Session(sample(), {.backends = {nullptr}}); });
  expect_error(Errc::bad_argument, [] {
    const Program program = unroll(sample());
    Session(program, std::vector<BoundView>{{nullptr, view(program, 0, op_names(program).size())}});
  });
}

TEST_CASE("Session: a run that throws gives its inputs back") {
  // An updated input, and indices that data may get wrong.
  const Program program = program_of(
      R"(def forward(c: f32[1, 1, 1, 4, 2], x: f32[1, 1, 1, 2], t: f32[3, 2], i: i32[2], pos: i32):
    k = embedding(i, t)
    s = sum(k, axes=[0, 1])
    z = reshape(s, dims=[1, 1, 1, 1])
    v = add(x, z)
    n: i64[] = full(dtype="i64")
    d = cache_update(c, n, v, pos)
    return d
)");
  const Shape scalar(std::span<const Axis>(), i32);
  for (const char* backend : {"reference", "cpu"}) {
    Session run(program, {.backends = backends(backend)});
    const Buffer x = device(floats({1, 1, 1, 2}, {1, 2})),
                 t = device(floats({3, 2}, {1, 2, 3, 4, 5, 6}));
    const auto inputs = [&](std::initializer_list<std::int32_t> ids) {
      std::vector<Buffer> made;
      made.push_back(device(HostBuffer::zeros(Shape({1, 1, 1, 4, 2}, f32)).contiguous()));
      made.push_back(x);
      made.push_back(t);
      made.push_back(device(ints({2}, ids)));
      made.push_back(device(HostBuffer::of<std::int32_t>(scalar, {1})));
      return made;
    };
    std::vector<Buffer> bad = inputs({0, 7});
    std::vector<const std::byte*> places;
    for (const Buffer& input : bad) places.push_back(input.data().cptr());
    expect_error(Errc::out_of_range, [&] { run.forward(std::move(bad)); });
    REQUIRE(bad.size() == places.size());
    for (std::size_t i = 0; i < bad.size(); ++i) {
      REQUIRE(bad[i].has_data());
      CHECK(bad[i].data().cptr() == places[i]);
    }
    // Too few, and one without data: nothing is taken either.
    bad.pop_back();
    expect_error(Errc::bad_input, [&] { run.forward(std::move(bad)); });
    CHECK(bad[0].data().cptr() == places[0]);
    // What succeeds takes them.
    std::vector<Buffer> good = inputs({0, 1});
    CHECK(values(run.forward(std::move(good))[0]) == std::vector<float>{0, 0, 11, 12, 0, 0, 0, 0});
    CHECK(good.empty());
  }
}

TEST_CASE("Session: a loop whose carry is updated later keeps what went in") {
  // Written out, the loop's result is its input, which is read again at the end: a copy is updated.
  const Program program = program_of(R"(def hold(c: f32[1, 1, 1, 2, 2], i: i64, s: Scope):
    return c

def forward(c: f32[1, 1, 1, 2, 2], x: f32[1, 1, 1, 2], pos: i32):
    t = pack(c)
    s = scope("a")
    r = repeat(hold, 2, t, s)
    d = item(r, 0)
    n: i64[] = full(dtype="i64")
    e = cache_update(d, n, x, pos)
    y = sub(e, c)
    return y
)");
  const std::vector<Buffer> inputs{device(floats({1, 1, 1, 2, 2}, {1, 2, 3, 4})),
                                   device(floats({1, 1, 1, 2}, {5, 6})),
                                   device(HostBuffer::of<std::int32_t>(Shape({}, i32), {1}))};
  Session run(program, {.backends = backends("reference")});
  CHECK(values(run.forward(inputs)[0]) == std::vector<float>{0, 0, 2, 2});
  Session steps(program, {.backends = backends("reference")});
  steps.set_merge(false);
  CHECK(values(steps.forward(inputs)[0]) == std::vector<float>{0, 0, 2, 2});
}

TEST_CASE("Session: a value that a loop carries twice is two values") {
  for (const bool is_first_updated : {true, false}) {
    const std::string a = is_first_updated ? "a" : "b", b = is_first_updated ? "b" : "a";
    const Program program = program_of(
        "def step(a: f32[1, 1, 1, 2, 1], b: f32[1, 1, 1, 2, 1], i: i64, s: Scope):\n"
        "    z: i64 = full(dtype=\"i64\")\n    o: f32[1, 1, 1, 1] = full(value=7.0, dims=[1, 1, 1, "
        "1])\n"
        "    p: i32 = cast(i, dtype=\"i32\")\n    c = cache_update(" +
        a +
        ", z, o, p)\n"
        "    d = add(" +
        b + ", " + b + ")\n    return " + (is_first_updated ? "c, d" : "d, c") +
        "\ndef forward(x: f32[1, 1, 1, 2, 1]):\n    y = neg(x)\n    t = pack(y, y)\n"
        "    s = scope(\"l\")\n    l = repeat(step, 1, t, s)\n    u = item(l, 0)\n"
        "    v = item(l, 1)\n    return u, v\n");
    for (const char* backend : {"reference", "cpu"}) {
      CAPTURE(is_first_updated, backend);
      const Buffer x = device(floats({1, 1, 1, 2, 1}, {-1, -2}));
      const std::vector<Buffer> made = session(program, {}, backend).forward({x});
      CHECK(values(made[is_first_updated ? 0 : 1]) == std::vector<float>{7, 2});
      CHECK(values(made[is_first_updated ? 1 : 0]) == std::vector<float>{2, 4});
    }
  }
}

// Nothing that is done for each step may look at all values: with 10,000 of them that was minutes.
TEST_CASE("Session: thousands of values that live to the end") {
  constexpr int count = 10000;
  Graph graph;
  const Tensor x = graph.input("x", Shape({2}, f32));
  std::vector<Tensor> all{x};
  for (int i = 0; i < count; ++i)
    all.push_back(i % 2 == 0 ? cumsum(all.back(), 0) : neg(all.back()));
  Tensor sum = all.back();
  for (auto value = all.rbegin() + 1; value != all.rend(); ++value) sum = minimum(sum, *value);
  const std::vector<Buffer> made =
      session(graph.program({&sum, 1}), {}, "cpu").forward({device(floats({2}, {0, 1}))});
  CHECK(values(made[0]) == std::vector<float>{0, -1});
}

TEST_CASE("Session: what loops copy is copied where they are written out") {
  // A constant, a view, one value twice, and what a loop with a condition is given.
  const Program program = program_of(R"(def put(b: f32[2, 2], a: f32[2, 2], i: i64, s: Scope):
    r = sum(b, axes=[0])
    a1 = update_slice(a, i, r)
    return b, a1

def once(a: f32[2, 2], c: bool, i: i64, s: Scope):
    r = sum(a, axes=[0])
    a1 = update_slice(a, i, r)
    d = logical_not(c)
    return a1, d

def forward(x: f32[2, 2]):
    s = scope("a")
    w: f32[2, 2] = const("w")
    t0 = pack(x, w)
    r0 = repeat(put, 2, t0, s)
    y0 = item(r0, 1)
    x1 = permute(x, order=[1, 0])
    t1 = pack(x, x1)
    r1 = repeat(put, 2, t1, s)
    y1 = item(r1, 1)
    b1 = item(r1, 0)
    zero = full(value=0.0)
    go = le(zero, zero)
    t3 = pack(b1, go)
    r3 = repeat(once, 2, t3, s, condition=1)
    y3 = item(r3, 0)
    t2 = pack(x, x)
    r2 = repeat(put, 2, t2, s)
    y2 = item(r2, 1)
    return y0, y1, y2, y3, w
)");
  std::map<std::string, Buffer> weights;
  weights.emplace("w", device(floats({2, 2}, {5, 6, 7, 8})));
  const auto bound = std::make_shared<const WeightSet>(std::move(weights));
  const std::vector<Buffer> inputs{device(floats({2, 2}, {1, 2, 3, 4}))};
  for (const bool merge : {true, false}) {
    Session session(program, {.backends = backends("reference")});
    session.set_merge(merge);
    session.bind(bound);
    const std::vector<Buffer> results = session.forward(inputs);
    const std::vector<std::vector<float>> wanted{
        {4, 6, 4, 6}, {4, 6, 4, 6}, {4, 6, 4, 6}, {4, 6, 3, 4}, {5, 6, 7, 8}};
    for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(values(results[i]) == wanted[i]);
  }
}

// It compiles: GCC 12 took {.plan_limit = 0} for a vector of views as well.
TEST_CASE("Session: options and views by name, written out, or in a vector") {
  const Program program = program_of("def forward(x: f32[2]):\n    y = neg(x)\n    return y\n");
  const BackendPtr backend = backends("reference").front();
  const BoundView all{backend, view(program, 0, 1)};
  const std::vector<BoundView> views{all};
  const Session sessions[] = {Session(program, {.plan_limit = 0}),
                              Session(program, {.backends = {backend}, .plan_limit = 1}),
                              Session(program, {.forbid_fallback = true}),
                              Session(program, {}),
                              Session(program),
                              Session(program, SessionOptions{.plan_limit = 3}),
                              Session(program, {BoundView{backend, view(program, 0, 1)}}),
                              Session(program, {all}),
                              Session(program, views),
                              Session(program, std::vector<BoundView>{all})};
  for (const Session& session : sessions) CHECK(!session.backends().empty());
}

}  // namespace tenon
