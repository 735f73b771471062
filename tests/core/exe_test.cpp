// Models as structs: compiled, bound, called.
#include "core/runs.hpp"
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"
#include "support/op_testing.hpp"

#include <tenon/exe.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>
#include <tenon/weights_view.hpp>

#include <algorithm>
#include <array>
#include <atomic>
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
    next.cache =
        cache_update(state.cache, full(0, Shape(std::span<const Axis>(), i64)), x, position);
    for (Tensor& extra : next.extra) extra = extra + 1;
    return {x * weight, next};
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
  expect_error(Errc::bad_argument, [&] { exe.bind(weights); });
  weights = random_weights();
  weights.down.bias = weights.up.bias;
  expect_error(Errc::bad_argument, [&] { exe.bind(weights); });
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

}  // namespace tenon
