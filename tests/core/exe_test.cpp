// Models as structs: compiled, bound, called.
#include "core/runs.hpp"
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"
#include "support/op_testing.hpp"
#include "support/remote_backend.hpp"

#include <tenon/exe.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>
#include <tenon/weights_view.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using namespace testing;

template <class T = Tensor>
struct Dense {
  T weight;
  std::optional<T> bias;
  TENON_FIELDS(weight, bias)

  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    return linear(x, weight, bias.value_or(Tensor()));
  }
};

std::vector<std::pair<std::string, Shape>> mlp_weights() {
  return {{"up.weight", Shape({6, 4}, f32)},
          {"up.bias", Shape({6}, f32)},
          {"down.weight", Shape({4, 6}, f32)}};
}

/// x [S, 4] -> [S, 4].
template <class T = Tensor>
struct Mlp {
  Dense<T> up;
  Dense<T> down;
  TENON_FIELDS(up, down)

  static Mlp<> init(const WeightsView& view) {
    return {{view["up"].tensor("weight"), view["up"].find("bias")},
            {view["down"].tensor("weight"), view["down"].find("bias")}};
  }
  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    ++traces;
    return down.forward(relu(up.forward(x)));
  }

  static inline std::atomic<int> traces = 0;
};

template <class T = Tensor>
struct Added {
  TENON_FIELDS()
  Tensor forward(const Tensor& a, const Tensor& b) const { return a + b; }
};

template <class T = Tensor>
struct Named {
  std::map<std::string, Dense<T>> layers;
  TENON_FIELDS(layers)
  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    return layers.at("two").forward(layers.at("one").forward(x));
  }
};

Bufferized<Mlp<>> random_weights(std::uint64_t seed = 1) {
  Random random(seed);
  return {{device(random.uniform(Shape({6, 4}, f32))), device(random.uniform(Shape({6}, f32)))},
          {device(random.uniform(Shape({4, 6}, f32))), std::nullopt}};
}

CompileOptions on(std::string_view backend) {
  CompileOptions options;
  options.backends = backends(backend);
  return options;
}

/// down(relu(up(x))) in plain loops.
std::vector<double> expected(const Bufferized<Mlp<>>& weights, const HostBuffer& x) {
  const HostBuffer up = weights.up.weight.to_host();
  const HostBuffer bias = weights.up.bias->to_host();
  const HostBuffer down = weights.down.weight.to_host();
  std::vector<double> y;
  for (std::int64_t row = 0; row < x.shape()[0]; ++row) {
    std::array<double, 6> hidden{};
    for (std::int64_t h = 0; h < 6; ++h) {
      double sum = bias.at({h});
      for (std::int64_t k = 0; k < 4; ++k) sum += x.at({row, k}) * up.at({h, k});
      hidden[static_cast<std::size_t>(h)] = std::max(sum, 0.0);
    }
    for (std::int64_t n = 0; n < 4; ++n) {
      double sum = 0;
      for (std::int64_t h = 0; h < 6; ++h)
        sum += hidden[static_cast<std::size_t>(h)] * down.at({n, h});
      y.push_back(sum);
    }
  }
  return y;
}

void check_close(const Buffer& got, const std::vector<double>& want) {
  const auto all = values(got);
  REQUIRE(all.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(all[i] == Approx(want[i]).margin(1e-5));
}

/// Uses a weight that its fields do not list.
template <class T = Tensor>
struct Forgetful {
  T weight;
  T forgotten;
  TENON_FIELDS(weight)
  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    return x * weight + forgotten;
  }
};

/// Embedding and output share one tensor.
template <class T = Tensor>
struct Tied {
  T embedding;
  T output;
  TENON_FIELDS(embedding, output)
  Tensor forward(const Tensor& ids) const
    requires std::same_as<T, Tensor>
  {
    return linear(tenon::embedding(ids, embedding), output);
  }
};

template <class T = Tensor>
struct State {
  T cache;
  std::vector<T> extra;
  TENON_FIELDS(cache, extra)
};

/// Returns a result, and the state it has updated.
template <class T = Tensor>
struct Stateful {
  T weight;
  TENON_FIELDS(weight)
  std::tuple<Tensor, State<>> forward(const Tensor& x, const State<>& state,
                                      const Tensor& position) const
    requires std::same_as<T, Tensor>
  {
    State<> next = state;
    next.cache = cache_update(state.cache, full(0, Shape({}, i64)), x, position);
    for (Tensor& extra : next.extra) extra = extra + 1;
    return {x * weight, next};
  }
};

/// Reads rows of a table into a cache, as a language model does.
template <class T = Tensor>
struct Reader {
  T table;  // f32[8, 2]
  TENON_FIELDS(table)
  std::tuple<Tensor, Tensor> forward(const Tensor& ids, const Tensor& past,
                                     const Tensor& cache) const
    requires std::same_as<T, Tensor>
  {
    const Tensor rows = tenon::embedding(ids, table);  // [1, S, 2]
    const Tensor kept = cache_update(cache, full(0, Shape({}, i64)), unsqueeze(rows, 2), past);
    return {sum(kept, {3}), kept};
  }
};

/// Contracts by name, and gives its result a name.
template <class T = Tensor>
struct Tagged {
  T weight;
  TENON_FIELDS(weight)
  Tensor forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    const Tensor w = weight.with_tags({"out", "in"});
    return dot(x, w, "in");
  }
};

/// A plain value as an argument.
template <class T = Tensor>
struct Scaled {
  TENON_FIELDS()
  Tensor forward(const Tensor& x, int times) const { return x * times; }
};

/// Plain values beside a tensor.
template <class T = Tensor>
struct Counted {
  T sum;
  int steps = 0;
  std::string name;
  std::vector<int> sizes;
  double limit = 0;
  TENON_FIELDS(sum, steps, name, sizes, limit)
};
template <class T = Tensor>
struct Counting {
  TENON_FIELDS()
  std::vector<Counted<>> forward(std::vector<Counted<>> states) const {
    for (Counted<>& state : states) {
      state.sum = state.sum + state.steps;
      ++state.steps;
    }
    return states;
  }
};

/// As many results as x has rows.
template <class T = Tensor>
struct Splitter {
  T weight;
  TENON_FIELDS(weight)
  std::vector<Tensor> forward(const Tensor& x) const
    requires std::same_as<T, Tensor>
  {
    std::vector<Tensor> rows;
    for (std::int64_t i = 0; i < x.dim(0); ++i) rows.push_back(slice(x, 0, i, i + 1) * weight);
    return rows;
  }
};

}  // namespace

TEST_CASE("Exe: compiled, bound and called like a function") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  for (const char* backend : {"reference", "cpu"}) {
    INFO(backend);
    const auto exe = compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)}, on(backend));
    const auto weights = random_weights();
    auto run = exe.bind(weights);
    const HostBuffer x = Random(5).uniform(Shape({2, 4}, f32));
    check_close(run(device(x)), expected(weights, x));
    // Another binding of the same program.
    const auto others = random_weights(2);
    auto again = exe.bind(others);
    check_close(again(device(x)), expected(others, x));
    check_close(run(device(x)), expected(weights, x));
    CHECK(exe.report().slab_bytes <= exe.report().activation_bytes);
    CHECK(exe.program().main().parameter_count == 1);
  }
}

TEST_CASE("Exe: calls with other shapes are traced once each") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  const int before = Mlp<>::traces;
  const auto exe = compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)}, on("cpu"));
  CHECK(Mlp<>::traces == before + 1);
  const auto weights = random_weights();
  auto run = exe.bind(weights);
  for (const std::int64_t rows : {2, 5, 1, 5, 2, 0, 5}) {
    const HostBuffer x = Random(6).uniform(Shape({rows, 4}, f32));
    const Buffer y = run(device(x));
    CHECK(y.shape() == Shape({rows, 4}, f32));
    check_close(y, expected(weights, x));
  }
  CHECK(Mlp<>::traces == before + 4);  // 2, 5, 1, 0
  auto fork = run.fork();
  fork(device(Random(6).uniform(Shape({5, 4}, f32))));
  CHECK(Mlp<>::traces == before + 4);
  // What the model cannot do is an error of the call, and the next call works.
  const std::string what = expect_error(
      Errc::shape_mismatch, [&] { run(device(HostBuffer::zeros(Shape({2, 3}, f32)))); });
  CHECK(what.find("f32[2, 3]") != std::string::npos);
  const HostBuffer x = Random(6).uniform(Shape({2, 4}, f32));
  check_close(run(device(x)), expected(weights, x));
}

TEST_CASE("Exe: bindings that do not fit the model") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  const auto exe =
      compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)}, on("reference"));
  auto weights = random_weights();
  weights.down.weight = Buffer();
  const std::string what = expect_error(Errc::bad_argument, [&] { exe.bind(weights); });
  CHECK(what.find("'down.weight'") != std::string::npos);
  weights = random_weights();
  weights.up.bias.reset();
  check_contains(expect_error(Errc::bad_argument, [&] { exe.bind(weights); }), {"lack 'up.bias'"});
  // As many, but in another place.
  weights.down.bias = random_weights().up.bias;
  check_contains(expect_error(Errc::bad_argument, [&] { exe.bind(weights); }), {"lack 'up.bias'"});
  weights = random_weights();
  weights.down.bias = weights.up.bias;
  check_contains(expect_error(Errc::bad_argument, [&] { exe.bind(weights); }),
                 {"have 'down.bias'"});
  weights = random_weights();
  weights.down.weight = device(HostBuffer::zeros(Shape({4, 5}, f32)));
  auto run = exe.bind(weights);
  const std::string shape = expect_error(
      Errc::shape_mismatch, [&] { run(device(HostBuffer::zeros(Shape({2, 4}, f32)))); });
  for (const char* part : {"'down.weight'", "f32[4, 6]", "f32[4, 5]"}) {
    INFO(shape << " should hold " << part);
    CHECK(shape.find(part) != std::string::npos);
  }
}

TEST_CASE("Exe: a weight that no field lists is named") {
  const std::vector<std::pair<std::string, Shape>> list{{"w", Shape({4}, f32)},
                                                        {"b", Shape({4}, f32)}};
  const WeightsView view("net.gguf", list);
  const Forgetful<> model{view.tensor("w"), view.tensor("b")};
  const std::string what = expect_error(Errc::bad_reference, [&] {
    compile<&Forgetful<>::forward>(model, {Shape({4}, f32)}, on("reference"));
  });
  for (const char* part : {"'b'", "net.gguf", "TENON_FIELDS"}) {
    INFO(what << " should hold " << part);
    CHECK(what.find(part) != std::string::npos);
  }
}

TEST_CASE("Exe: one tensor under two fields is one weight") {
  const std::vector<std::pair<std::string, Shape>> list{{"embed", Shape({3, 2}, f32)}};
  const WeightsView view("tied.gguf", list);
  const Tied<> model{view.tensor("embed"), view.tensor("embed")};
  const auto exe = compile<&Tied<>::forward>(model, {Shape({2}, i32)}, on("cpu"));
  const Buffer table = device(floats({3, 2}, {1, 0, 0, 1, 2, 3}));
  auto run = exe.bind({table, table});
  CHECK(values(run(device(ints({2}, {2, 0})))) == std::vector<float>{2, 3, 13, 1, 0, 2});
  // Equal ones may lie in two places; other ones are no weight of this model.
  auto equal = exe.bind({table, device(floats({3, 2}, {1, 0, 0, 1, 2, 3}))});
  CHECK(values(equal(device(ints({2}, {2, 0})))) == std::vector<float>{2, 3, 13, 1, 0, 2});
  for (const Buffer& other :
       {device(floats({3, 2}, {1, 0, 0, 1, 2, 4})), device(floats({6}, {1, 0, 0, 1, 2, 3}))}) {
    try {
      exe.bind({table, other});
      FAIL("bound");
    } catch (const Error& error) {
      CHECK(error.code() == Errc::bad_argument);
      CHECK(std::string_view(error.what()).find("'embed', but have other") !=
            std::string_view::npos);
    }
  }
}

TEST_CASE("Exe: state goes in and comes back in its form") {
  const std::vector<std::pair<std::string, Shape>> list{{"w", Shape({2}, f32)}};
  const WeightsView view("state.gguf", list);
  const Shape cache({1, 1, 1, 3, 2}, f32);
  const Shape scalar(std::span<const Axis>(), i32);
  const auto exe = compile<&Stateful<>::forward>(
      Stateful<>{view.tensor("w")},
      {Shape({1, 1, 1, 2}, f32), State<Shape>{cache, {Shape({1}, f32), Shape({1}, f32)}}, scalar},
      on("cpu"));
  auto run = exe.bind({device(floats({2}, {10, 100}))});

  MemRegion& host = cpu_device()->default_mem_region();
  State<Buffer> state{Buffer::allocate(cache, host),
                      {device(floats({1}, {5})), device(floats({1}, {7}))}};
  copy_elements(HostBuffer::zeros(cache).view(), state.cache.host_view());
  const std::byte* memory = state.cache.data().cptr();
  for (std::int32_t step = 0; step < 3; ++step) {
    const auto value = static_cast<float>(step + 1);
    auto [y, next] = run(device(floats({1, 1, 1, 2}, {value, -value})), std::move(state),
                         device(HostBuffer::of<std::int32_t>(scalar, {step})));
    CHECK(values(y) == std::vector<float>{10 * value, -100 * value});
    state = std::move(next);
    CHECK(state.cache.data().cptr() == memory);  // in place all along
  }
  CHECK(values(state.cache) == std::vector<float>{1, -1, 2, -2, 3, -3});
  REQUIRE(state.extra.size() == 2);
  CHECK(values(state.extra[0]) == std::vector<float>{8});
  CHECK(values(state.extra[1]) == std::vector<float>{10});
}

TEST_CASE("Exe: compiled, bound and called from several threads at once") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  const auto exe = compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)}, on("cpu"));
  const auto weights = random_weights();
  const auto bound = exe.bind(weights);
  std::vector<HostBuffer> inputs;
  std::vector<HostBuffer> want;
  for (std::int64_t rows = 1; rows <= 4; ++rows) {
    inputs.push_back(Random(8).uniform(Shape({rows, 4}, f32)));
    auto run = bound.fork();
    want.push_back(run(device(inputs.back())).to_host());
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      try {
        // Half share one compiled program, half compile their own from the same view.
        auto run = t % 2 == 0 ? bound.fork()
                              : compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)},
                                                         on("cpu"))
                                    .bind(weights);
        for (std::size_t i = 0; i < 20; ++i) {
          const std::size_t size = (t + i) % inputs.size();
          if (!same_bits(run(device(inputs[size])).to_host(), want[size])) ++wrong;
        }
      } catch (const Error& error) {
        ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("Exe: devices without a backend are refused") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  const DevicePtr fake = std::make_shared<FakeDevice>();
  const auto compile_on = [&](const DevicePtr& device, CompileOptions options = {}) {
    return compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)}, device,
                                    std::move(options));
  };
  const std::string what = expect_error(Errc::unavailable, [&] { compile_on(fake); });
  CHECK(what.find("no backend serves devices 'fake:'; there are backends for: cpu") !=
        std::string::npos);
  expect_error(Errc::bad_argument, [&] { compile_on(nullptr); });
  CHECK_NOTHROW(compile_on(cpu_device(), on("cpu")));
  CHECK_NOTHROW(compile_on(fake, on("cpu")));  // whoever names backends knows why
}

TEST_CASE("Exe: what no backend of a device runs is found while compiling, unless the CPU may") {
  class Picky final : public Backend {
   public:
    std::string_view name() const noexcept override { return "picky"; }
    MemRegion& region() const override { return cpu_device()->default_mem_region(); }
    std::optional<std::string> refuses(const Step&) const override { return "too hard"; }
    std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step>) const override {
      throw Error(Errc::internal, "picky", "was never asked to");
    }
  };
  class PickyDevice final : public FakeDevice {
   public:
    PickyDevice() : FakeDevice(nullptr, "picky://1") {}
  };
  const DeviceBackendFactory factory = [](const DevicePtr&, const BackendOptions&) -> BackendPtr {
    return std::make_shared<const Picky>();
  };
  register_device_backend("picky", factory);
  CHECK_NOTHROW(register_device_backend("picky", factory));
  const DeviceBackendFactory other = [](const DevicePtr&, const BackendOptions&) {
    return BackendPtr();
  };
  expect_error(Errc::duplicate_name, [&] { register_device_backend("picky", other); });
  expect_error(Errc::duplicate_name, [&] { register_device_backend("cpu", other); });
  expect_error(Errc::bad_argument, [&] { register_device_backend("", other); });
  expect_error(Errc::bad_argument, [] { register_backend("picky", nullptr); });
  expect_error(Errc::bad_argument,
               [] { register_backend("", [](const BackendOptions&) { return BackendPtr(); }); });

  static_cast<void>(backends("cpu"));  // registered
  const WeightsView view("mlp.safetensors", mlp_weights());
  const DevicePtr device = std::make_shared<PickyDevice>();
  const auto compile_with = [&](CompileOptions options) {
    return compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)}, device,
                                    std::move(options));
  };
  CHECK(expect_error(Errc::unsupported, [&] { compile_with({}); }).find("picky: too hard") !=
        std::string::npos);
  CompileOptions options;
  options.cpu_fallback = true;
  const auto exe = compile_with(options);
  for (const PlanReport::Part& part : exe.report().parts) CHECK(part.backend != "picky");
}

TEST_CASE("Exe: what was moved from says so") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  auto exe = compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)}, on("reference"));
  auto run = exe.bind(random_weights());
  const Buffer x = device(HostBuffer::zeros(Shape({2, 4}, f32)));
  run(x);
  auto other_run = std::move(run);
  expect_error(Errc::call_order, [&] { run(x); });
  expect_error(Errc::call_order, [&] { run.fork(); });
  expect_error(Errc::call_order, [&] { static_cast<void>(run.weights()); });
  expect_error(Errc::call_order, [&] { run.report(); });
  auto other = std::move(exe);
  check_contains(expect_error(Errc::call_order, [&] { exe.bind(random_weights()); }),
                 {"Exe", "moved from"});
  expect_error(Errc::call_order, [&] { exe.bind(other_run.shared_weights()); });
  expect_error(Errc::call_order, [&] { exe.program(); });
  expect_error(Errc::call_order, [&] { exe.report(); });
  CHECK_NOTHROW(other_run(x));
  run = other.bind(random_weights());
  CHECK_NOTHROW(run(x));
  expect_error(Errc::bad_argument, [&] { other.bind(std::shared_ptr<const WeightSet>()); });
}

TEST_CASE("Exe: a call that throws leaves the caller its state") {
  const std::vector<std::pair<std::string, Shape>> list{{"table", Shape({8, 2}, f32)}};
  const WeightsView view("reader.gguf", list);
  const Shape ids({1, 2}, i32), past(std::span<const Axis>(), i32), cache({1, 1, 1, 4, 2}, f32);
  const auto ids_of = [&](std::int32_t a, std::int32_t b) {
    return device(HostBuffer::of<std::int32_t>(ids, {a, b}));
  };
  const auto at = [&](std::int32_t position) {
    return device(HostBuffer::of<std::int32_t>(past, {position}));
  };
  for (const char* backend : {"reference", "cpu"}) {
    INFO(backend);
    const auto exe = compile<&Reader<>::forward>(Reader<>{view.tensor("table")}, {ids, past, cache},
                                                 on(backend));
    auto run = exe.bind({device(Random(3).uniform(Shape({8, 2}, f32)))});
    const auto fresh = [&] {
      Buffer made = Buffer::allocate(cache, cpu_device()->default_mem_region());
      copy_elements(HostBuffer::zeros(cache).view(), made.host_view());
      return made;
    };
    Buffer want_state = fresh();
    std::tie(std::ignore, want_state) = run(ids_of(1, 2), at(0), std::move(want_state));
    auto [want, want_after] = run(ids_of(5, 7), at(2), std::move(want_state));

    Buffer state = fresh();
    const std::byte* const memory = state.data().cptr();
    std::tie(std::ignore, state) = run(ids_of(1, 2), at(0), std::move(state));
    const std::vector<float> before = values(state);
    // Ids that the table does not have, and then arguments that do not fit.
    for (const std::int32_t bad : {-1, 8, 1 << 30}) {
      expect_error(Errc::out_of_range, [&] { run(ids_of(5, bad), at(2), std::move(state)); });
      REQUIRE(state.has_data());
      CHECK(state.data().cptr() == memory);
      // What was read before is still there.
      const std::vector<float> now = values(state);
      CHECK(std::equal(before.begin(), before.begin() + 4, now.begin()));
    }
    expect_error(Errc::bad_input, [&] { run(Buffer(), at(2), std::move(state)); });
    CHECK(state.has_data());
    expect_error(Errc::bad_input, [&] { run(ids_of(1, 2), Buffer(past), std::move(state)); });
    CHECK(state.has_data());
    // And the call can be made again, still in place.
    auto [got, after] = run(ids_of(5, 7), at(2), std::move(state));
    CHECK(same_bits(got.to_host(), want.to_host()));
    CHECK(same_bits(after.to_host(), want_after.to_host()));
    CHECK(after.data().cptr() == memory);
  }
}

TEST_CASE("Exe: axis tags hold for other sizes, and come with results") {
  const std::vector<std::pair<std::string, Shape>> list{{"w", Shape({3, 4}, f32)}};
  const WeightsView view("tagged.gguf", list);
  const auto exe = compile<&Tagged<>::forward>(Tagged<>{view.tensor("w")},
                                               {Shape({{"b", 2}, {"in", 4}}, f32)}, on("cpu"));
  auto run = exe.bind({device(Random(1).uniform(Shape({3, 4}, f32)))});
  for (const std::int64_t rows : {2, 5, 1}) {
    const HostBuffer x = Random(2).uniform(Shape({rows, 4}, f32));
    const Buffer y = run(device(x));
    CHECK(to_string(y.shape()) == "f32[b=" + std::to_string(rows) + ", out=3]");
    // The same tags, none, or some: all are welcome.
    CHECK_NOTHROW(run(device(x.with_shape(Shape({{"b", rows}, {"in", 4}}, f32)))));
    CHECK_NOTHROW(run(device(x.with_shape(Shape({{"b", rows}, 4}, f32)))));
    check_contains(
        expect_error(Errc::bad_input,
                     [&] { run(device(x.with_shape(Shape({{"in", rows}, {"b", 4}}, f32)))); }),
        {"argument 0", "in=" + std::to_string(rows), "in=4"});
  }
}

TEST_CASE("Exe: results have the form that forward gave them for their sizes") {
  const std::vector<std::pair<std::string, Shape>> list{{"w", Shape({2}, f32)}};
  const WeightsView view("split.gguf", list);
  const auto exe =
      compile<&Splitter<>::forward>(Splitter<>{view.tensor("w")}, {Shape({1, 2}, f32)}, on("cpu"));
  auto run = exe.bind({device(floats({2}, {1, 10}))});
  for (const std::int64_t rows : {3, 1, 3, 2, 1}) {
    const auto parts = run(device(Random(2).uniform(Shape({rows, 2}, f32))));
    CHECK(parts.size() == static_cast<std::size_t>(rows));
  }
}

TEST_CASE("Exe: symbols for sizes, with a device and without") {
  static_cast<void>(backends("cpu"));  // registered
  const WeightsView view("mlp.safetensors", mlp_weights());
  const auto weights = random_weights();
  const HostBuffer x = Random(5).uniform(Shape({3, 4}, f32));
  const Shape open({symbol("S"), 4}, f32);
  for (const bool with_device : {false, true}) {
    INFO(with_device);
    const auto exe =
        with_device ? compile<&Mlp<>::forward>(Mlp<>::init(view), {open}, cpu_device(), on("cpu"))
                    : compile<&Mlp<>::forward>(Mlp<>::init(view), {open}, on("cpu"));
    CHECK_FALSE(exe.is_static());
    auto run = exe.bind(weights);
    check_close(run(device(x)), expected(weights, x));
    expect_error(Errc::bad_input, [&] { exe.report(); });
    expect_error(Errc::bad_input, [&] { run.report(); });
    Session session = run.session({x.shape()});
    CHECK(session.report(std::vector{x.shape()}).parts.size() == 1);
    check_close(session.forward({device(x)})[0], expected(weights, x));
  }
}

TEST_CASE("Exe: weights may lie where the CPU cannot address them") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  const auto fake = std::make_shared<FakeDevice>();
  const auto weights = random_weights();
  Bufferized<Mlp<>> there;
  transform_fields(weights, there, [&](const std::string&, const Buffer& from, Buffer& to) {
    to = from.to(fake->default_mem_region());
  });
  CHECK_FALSE(there.up.weight.data().has_cptr());
  const HostBuffer x = Random(5).uniform(Shape({2, 4}, f32));
  CompileOptions remote;
  remote.backends = {std::make_shared<RemoteBackend>(fake), backends("reference")[0]};
  for (const CompileOptions& options : {on("cpu"), on("reference"), remote}) {
    const auto exe = compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)}, options);
    auto run = exe.bind(there);
    check_close(run(device(x)), expected(weights, x));
    check_close(run(x.to_device(fake)), expected(weights, x));
    const PlanReport report = run.report();
    if (options.backends == remote.backends) {  // which reads them where they are
      CHECK(report.weight_copies.empty());
      continue;
    }
    REQUIRE(report.weight_copies.size() == 3);
    std::int64_t bytes = 0;
    for (const auto& copy : report.weight_copies) {
      bytes += copy.bytes;
      CHECK(copy.from == fake->default_mem_region().name());
      CHECK(copy.to == cpu_device()->default_mem_region().name());
    }
    CHECK(bytes == (24 + 6 + 24) * 4);
    CHECK(exe.bind(weights).report().weight_copies.empty());
  }
}

TEST_CASE("Exe: keeps what declared its model") {
  std::optional<WeightsView> view(std::in_place, "mlp.safetensors", mlp_weights());
  const auto exe = compile<&Mlp<>::forward>(Mlp<>::init(*view), {Shape({2, 4}, f32)}, on("cpu"));
  view.reset();
  const auto weights = random_weights();
  auto run = exe.bind(weights);
  const HostBuffer x = Random(5).uniform(Shape({7, 4}, f32));
  check_close(run(device(x)), expected(weights, x));
  // A model alone does not.
  Mlp<> stale;
  {
    const WeightsView gone("gone.safetensors", mlp_weights());
    stale = Mlp<>::init(gone);
  }
  check_contains(
      expect_error(Errc::stale_handle,
                   [&] { compile<&Mlp<>::forward>(stale, {Shape({2, 4}, f32)}, on("reference")); }),
      {"field 'up.weight'", "WeightsView", "outlive"});
}

TEST_CASE("Exe: closed shapes are all that is accepted") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  CompileOptions options = on("reference");
  options.closed_shapes = true;
  options.arguments = {"x"};
  const auto exe =
      compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({symbol("B"), 4}, f32)}, options);
  auto run = exe.bind(random_weights());
  for (const std::int64_t rows : {1, 3}) {
    CHECK(run(device(HostBuffer::zeros(Shape({rows, 4}, f32)))).shape() == Shape({rows, 4}, f32));
  }
  for (const Shape& shape : {Shape({3, 5}, f32), Shape({4}, f32), Shape({3, 4}, f16)}) {
    check_contains(expect_error(Errc::bad_input, [&] { run(device(HostBuffer::zeros(shape))); }),
                   {"'x' is " + to_string(shape), "compiled for f32[B, 4]", "closed_shapes"});
    expect_error(Errc::bad_input, [&] { run.prepare({shape}); });
  }
}

TEST_CASE("Exe: with closed shapes, what a symbol stands for is named") {
  const WeightsView view("mlp.safetensors", std::span<const std::pair<std::string, Shape>>());
  CompileOptions options = on("reference");
  options.closed_shapes = true;
  options.arguments = {"a", "b"};
  auto run = compile<&Added<>::forward>(
                 Added<>(), {Shape({symbol("B"), 4}, f32), Shape({symbol("B"), 4}, f32)}, options)
                 .bind(Added<Buffer>());
  check_contains(expect_error(Errc::bad_input,
                              [&] {
                                run(device(HostBuffer::zeros(Shape({3, 4}, f32))),
                                    device(HostBuffer::zeros(Shape({5, 4}, f32))));
                              }),
                 {"'b' is f32[5, 4], compiled for f32[B, 4] with B = 3"});
}

TEST_CASE("Exe: messages about an input name the line that compiled") {
  const Shape a({2, 3}, f32), b({2, 4}, f32);
  const auto line = std::to_string(__LINE__ + 1);
  const auto fails = [&] { compile<&Added<>::forward>(Added<>(), {a, b}, on("reference")); };
  check_contains(expect_error(Errc::shape_mismatch, fails),
                 {"input 'x0', exe_test.cpp:" + line, "input 'x1', exe_test.cpp:" + line});
}

TEST_CASE("Exe: plain values of arguments are those of then") {
  CompileOptions options = on("reference");
  const Shape two({2}, f32);
  const Buffer x = device(floats({2}, {1, 2}));
  auto run = compile<&Scaled<>::forward>(Scaled<>(), {two, 3}, options).bind({});
  CHECK(values(run(x, 3)) == std::vector<float>{3, 6});
  check_contains(expect_error(Errc::bad_input, [&] { run(x, 5); }),
                 {"argument 1 is 5: forward was compiled with 3"});
  Buffer moved = x;
  expect_error(Errc::bad_input, [&] { run.submit(std::move(moved), 5); });
  CHECK(values(moved) == std::vector<float>{1, 2});
  expect_error(Errc::bad_input, [&] { run.prepare({two, 5}); });
  CHECK(values(run(x, 3)) == std::vector<float>{3, 6});

  options.arguments = {"states"};
  const Counted<Shape> shape{two, 1, "a", {4, 5}, std::nan("")};
  auto count = compile<&Counting<>::forward>(Counting<>(), {{shape, shape}}, options).bind({});
  const Counted<Buffer> counted{x, 1, "a", {4, 5}, std::nan("")};
  const std::vector<Counted<Buffer>> results = count(std::vector{counted, counted});
  CHECK(values(results.at(1).sum) == std::vector<float>{2, 3});
  CHECK(results[1].steps == 2);
  const auto refused = [&](auto&& change, const std::string& says) {
    std::vector<Counted<Buffer>> states{counted, counted};
    change(states[1]);
    check_contains(expect_error(Errc::bad_input, [&] { count(std::move(states)); }), {says});
    CHECK(states.at(1).sum.has_data());  // given back
  };
  refused([](auto& state) { state.steps = 2; },
          "'states.1.steps' is 2: forward was compiled with 1");
  refused([](auto& state) { state.name = "b"; }, "'states.1.name' has another value");
  refused([](auto& state) { state.sizes.push_back(6); }, "'states.1.sizes' has another value");
  refused([](auto& state) { state.limit = 0; }, "'states.1.limit' is 0");
  CHECK_NOTHROW(count(std::vector{counted, counted}));
}

TEST_CASE("Exe: layers in a map") {
  const std::vector<std::pair<std::string, Shape>> list{{"one.weight", Shape({4, 4}, f32)},
                                                        {"two.weight", Shape({4, 4}, f32)}};
  const WeightsView view("map.safetensors", list);
  Named<> model;
  Named<Buffer> weights;
  for (const char* name : {"one", "two"}) {
    model.layers[name].weight = view[name].tensor("weight");
    weights.layers[name].weight = device(Random(weights.layers.size()).uniform(Shape({4, 4}, f32)));
  }
  const auto exe = compile<&Named<>::forward>(model, {Shape({3, 4}, f32)}, on("reference"));
  auto run = exe.bind(weights);
  const Buffer x = device(Random(5).uniform(Shape({3, 4}, f32)));
  const auto of_one = [&](const char* name) {
    const Dense<> layer{view[name].tensor("weight"), std::nullopt};
    return compile<&Dense<>::forward>(layer, {Shape({3, 4}, f32)}, on("reference"))
        .bind({weights.layers.at(name).weight, std::nullopt});
  };
  CHECK(values(run(x)) == values(of_one("two")(of_one("one")(x))));

  weights.layers.erase("two");
  check_contains(expect_error(Errc::bad_argument, [&] { exe.bind(weights); }),
                 {"'layers.two.weight'"});
}

TEST_CASE("Exe: arguments of another form, or without data, are named") {
  const std::vector<std::pair<std::string, Shape>> list{{"w", Shape({2}, f32)}};
  const WeightsView view("state.gguf", list);
  const Shape cache({1, 1, 1, 3, 2}, f32), scalar(std::span<const Axis>(), i32);
  CompileOptions options = on("reference");
  const auto twice = [&] {
    options.arguments = {"x", "state", "x"};
    compile<&Stateful<>::forward>(Stateful<>{view.tensor("w")},
                                  {Shape({1, 1, 1, 2}, f32), {cache, {}}, scalar}, options);
  };
  check_contains(expect_error(Errc::bad_argument, twice), {"arguments has 'x' twice"});
  const auto too_many = [&] {
    options.arguments = {"x", "state", "position", "mask", "bias"};
    compile<&Stateful<>::forward>(Stateful<>{view.tensor("w")},
                                  {Shape({1, 1, 1, 2}, f32), {cache, {}}, scalar}, options);
  };
  check_contains(expect_error(Errc::bad_argument, too_many),
                 {"arguments has 5 names", "'mask', 'bias'", "forward takes 3 arguments"});
  options.arguments = {"x", "state", "position"};
  const State<Shape> state_shape{cache, {Shape({1}, f32), Shape({1}, f32)}};
  const auto exe = compile<&Stateful<>::forward>(
      Stateful<>{view.tensor("w")}, {Shape({1, 1, 1, 2}, f32), state_shape, scalar}, options);
  CHECK(exe.program().main().values[1].name == "state_cache");
  auto run = exe.bind({device(floats({2}, {10, 100}))});
  const Buffer x = device(floats({1, 1, 1, 2}, {1, 2}));
  const Buffer zero = device(HostBuffer::of<std::int32_t>(scalar, {0}));
  const State<Buffer> state{device(HostBuffer::zeros(cache)),
                            {device(floats({1}, {5})), device(floats({1}, {7}))}};
  CHECK_NOTHROW(run(x, state, zero));
  const auto refused = [&](auto&& change) {
    State<Buffer> other = state;
    change(other);
    return expect_error(Errc::bad_input, [&] { run(x, other, zero); });
  };
  check_contains(refused([](auto& s) { s.cache = Buffer(); }), {"'state.cache' has no data"});
  check_contains(refused([](auto& s) { s.extra.pop_back(); }), {"'state.extra.1'"});
  check_contains(refused([](auto& s) { s.extra.push_back(s.extra[0]); }), {"'1.extra.2'"});
  CHECK_NOTHROW(run(x, state, zero));
  // Without names, by number.
  options.arguments.clear();
  auto unnamed =
      compile<&Stateful<>::forward>(Stateful<>{view.tensor("w")},
                                    {Shape({1, 1, 1, 2}, f32), state_shape, scalar}, options)
          .bind({device(floats({2}, {10, 100}))});
  check_contains(expect_error(Errc::bad_input,
                              [&] { unnamed(x, State<Buffer>{Buffer(), state.extra}, zero); }),
                 {"'cache' of argument 1 has no data"});
  check_contains(expect_error(Errc::bad_input, [&] { unnamed(Buffer(), state, zero); }),
                 {"argument 0 has no data"});
}

TEST_CASE("Exe: a model's empty tensor, and a full arena, say where and what to do") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  Mlp<> model = Mlp<>::init(view);
  model.down.weight = Tensor();
  check_contains(
      expect_error(Errc::stale_handle,
                   [&] { compile<&Mlp<>::forward>(model, {Shape({2, 4}, f32)}, on("reference")); }),
      {"empty fields of the model: 'down.weight'"});
  CompileOptions small = on("reference");
  small.arena_bytes = 1024;
  check_contains(
      expect_error(
          Errc::out_of_arena,
          [&] { compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({2, 4}, f32)}, small); }),
      {".cpp:", "1024 bytes", "CompileOptions::arena_bytes"});
}

TEST_CASE("Exe: a profile and a trace cover calls of every shape") {
  const WeightsView view("mlp.safetensors", mlp_weights());
  const auto exe =
      compile<&Mlp<>::forward>(Mlp<>::init(view), {Shape({symbol("S"), 4}, f32)}, on("cpu"));
  auto run = exe.bind(random_weights());
  const auto trace = std::make_shared<Trace>();
  run.enable_time_profile(true);
  run.set_trace(trace);
  CHECK(run.step_times().empty());
  for (const std::int64_t rows : {2, 5}) {
    run(device(Random(3).uniform(Shape({rows, 4}, f32))));
    REQUIRE_FALSE(run.step_times().empty());
    CHECK(run.step_times()[0].parts.front().shape[0] == rows);
  }
  CHECK(trace->size() > 2);
  expect_error(Errc::call_order, [&] { run.set_trace(nullptr); });
  CHECK(run.fork().step_times().empty());
}

}  // namespace tenon
