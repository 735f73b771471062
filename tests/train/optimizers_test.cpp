#include "io/temp_folder.hpp"
#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/tenon.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tenon::testing {
namespace {

template <class T = Tensor>
struct Mlp {
  nn::Linear<T> up, down;
  TENON_FIELDS(up, down)
  Tensor forward(const Tensor& x) const { return down.forward(tanh(up.forward(x))); }
};

/// The state of an optimiser of an Mlp.
template <class Optimizer, class M>
using State = rebind_t<decltype(std::declval<const Optimizer&>().start(std::declval<Mlp<Buffer>>(),
                                                                       std::declval<DevicePtr>())),
                       leaf_of_t<M>>;

template <class Optimizer>
struct OptimizerTraining {
  Optimizer optimizer;
  double max_norm = 0;
  TENON_FIELDS()
  std::tuple<Mlp<Tensor>, State<Optimizer, Mlp<Tensor>>, Tensor> step(
      Mlp<Tensor> net, State<Optimizer, Mlp<Tensor>> state, Tensor x, Tensor labels,
      Tensor rate) const {
    const Tensor loss = cross_entropy(net.forward(x), labels);
    Mlp<Tensor> gradients = grad(loss, net);
    if (max_norm > 0) gradients = train::clip_norm(gradients, max_norm).first;
    auto [next, next_state] = optimizer.update(net, gradients, state, rate);
    return {next, next_state, loss};
  }
};

const io::File& oracle() {
  static const io::File file = io::open("tests/train/data/optimizers.safetensors");
  return file;
}

Mlp<Shape> shapes_of(const io::File& file, const std::string& prefix) {
  Mlp<Shape> shapes;
  shapes.up.bias.emplace();
  shapes.down.bias.emplace();
  visit_fields(
      shapes, [&](const std::string& path, Shape& shape) { shape = file.at(prefix + path).shape; });
  return shapes;
}

Mlp<Buffer> parameters(const io::File& file, const std::string& prefix) {
  return map_fields<Buffer>(shapes_of(file, prefix), [&](const std::string& path, const Shape&) {
    return file.at(prefix + path).data().to_device(cpu_device());
  });
}

template <class Optimizer>
void check(const std::string& name, OptimizerTraining<Optimizer> training, double at = 0.05) {
  INFO(name);
  const io::File& file = oracle();
  Mlp<Buffer> net = parameters(file, "start.");
  auto state = training.optimizer.start(net, cpu_device());
  const Buffer x = file.at("x").data().to_device(cpu_device());
  const Buffer labels = file.at("labels").data().to_device(cpu_device());
  const Buffer rate = train::scalar(at, f64, cpu_device());
  auto run =
      compile<&OptimizerTraining<Optimizer>::step>(
          training,
          {train::shapes_of(net), train::shapes_of(state), x.shape(), labels.shape(), rate.shape()},
          cpu_device())
          .bind(training);
  const HostBuffer want = file.at(name + ".losses").data();
  for (const double loss : elements(want)) {
    Buffer got;
    std::tie(net, state, got) = run(std::move(net), std::move(state), x, labels, rate);
    CHECK(elements(got.to_host())[0] == Approx(loss).epsilon(1e-6));
  }
  visit_fields(net, [&](const std::string& path, const Buffer& parameter) {
    INFO(path);
    expect_close(parameter.to_host(), file.at(name + "." + path).data(), 1e-6, 1e-5);
  });
}

TEST_CASE("train: state that is not used is empty") {
  const Mlp<Buffer> net = parameters(oracle(), "start.");
  const auto bytes = [](const auto& state) {
    std::int64_t sum = 0;
    visit_fields(state, [&](const std::string&, const Buffer& b) { sum += b.shape().bytes(); });
    return sum;
  };
  const std::int64_t once = bytes(net);
  CHECK(bytes(train::Sgd{}.start(net, cpu_device())) == 0);
  CHECK(bytes(train::Sgd{.momentum = 0.9}.start(net, cpu_device())) == once);
  CHECK(bytes(train::RmsProp{}.start(net, cpu_device())) == once);
  CHECK(bytes(train::RmsProp{.momentum = 0.9}.start(net, cpu_device())) == 2 * once);
  CHECK(bytes(train::RmsProp{.centered = true}.start(net, cpu_device())) == 2 * once);
}

TEST_CASE("train: optimisers do what PyTorch's do") {
  check<train::Sgd>("sgd", {});
  check<train::Sgd>("momentum", {.optimizer = {.momentum = 0.9, .weight_decay = 0.01}});
  check<train::Sgd>("nesterov", {.optimizer = {.momentum = 0.9, .nesterov = true}});
  check<train::Adam>("adam", {.optimizer = {.weight_decay = 0.01}});
  check<train::Adam>("adamw", {.optimizer = train::adamw(0.1)});
  check<train::Lion>("lion", {.optimizer = {.weight_decay = 0.1}});
  check<train::Sgd>("clipped", {.optimizer = {}, .max_norm = 0.1});
  check<train::RmsProp>("rmsprop", {.optimizer = {.weight_decay = 0.01}});
  check<train::RmsProp>("rmsprop_centered", {.optimizer = {.momentum = 0.8, .centered = true}});
  check<train::Adagrad>("adagrad",
                        {.optimizer = {.rate_decay = 0.1, .weight_decay = 0.01, .initial = 0.2}});
  check<train::Adadelta>("adadelta", {.optimizer = {.weight_decay = 0.01}}, 1);
  check<train::Adamax>("adamax", {.optimizer = {.weight_decay = 0.01}});
  check<train::NAdam>("nadam", {.optimizer = {.weight_decay = 0.01}});
  check<train::NAdam>("nadamw", {.optimizer = {.weight_decay = 0.1, .decoupled = true}});
  check<train::RAdam>("radam", {.optimizer = {.weight_decay = 0.01}});
  check<train::RAdam>("radamw", {.optimizer = {.weight_decay = 0.1, .decoupled = true}});
  check<train::Adafactor>("adafactor", {.optimizer = {.smallest = 0x1p-23, .weight_decay = 0.1}},
                          0.1);
}

TEST_CASE("train: clipped values and averages of parameters") {
  ValuedGraph graph;
  const std::vector<Tensor> g{graph.input(floats({3}, {-3, 0.5, 2}))};
  expect_equal(graph.value(train::clip_value(g, 1)[0]), {-1, 0.5, 1});
  const std::vector<Tensor> p{graph.input(floats({3}, {1, 1, 1}))};
  expect_equal(graph.value(train::averaged(g, p, 0.75)[0]), {-2, 0.625, 1.75});
}

TEST_CASE("train: norms that f32 does not hold") {
  ValuedGraph graph;
  const std::vector<Tensor> g{graph.input(HostBuffer::of<double>(Shape({2}, f64), {3e30, 4e30})),
                              graph.input(floats({1}, {0}))};
  const auto [clipped, norm] = train::clip_norm(g, 10);
  expect_close(graph.value(clipped[0]), HostBuffer::of<double>(Shape({2}, f64), {6, 8}), 0, 1e-12);
  CHECK(norm.shape().dtype() == f32);
  expect_close(graph.value(norm), floats({}, {5e30F}), 0, 1e-6);
  expect_error(Errc::bad_argument, [] { train::global_norm(std::vector<Tensor>()); });
}

TEST_CASE("train: squares of f16 that f16 does not hold") {
  ValuedGraph graph;
  const std::vector<Tensor> g{graph.input(floats({2}, {300, 400}).to(f16)),
                              graph.input(floats({1}, {1200}).to(f16))};
  expect_equal(graph.value(train::global_norm(g)), {1300});
  expect_close(graph.value(train::clip_norm(g, 13).first[1]), floats({1}, {12}).to(f16), 0, 1e-3);

  // p -= max(eps, rms(p)) / max(1, rms(u)) u, where u has ones only: the change is rms(p).
  const std::vector<Tensor> p{graph.input(floats({2}, {600, 800}).to(f16))};
  const Tensor one = graph.input(floats({}, {1}));
  const std::vector<Tensor> zero{graph.input(floats({2}, {0, 0}).to(f16))};
  const std::vector<Tensor> none{graph.input(floats({}, {0}).to(f16))};
  const std::vector<Tensor> unit{graph.input(floats({2}, {1, 1}).to(f16))};
  const train::AdafactorState<std::vector<Tensor>> state{zero, none, one * 0};
  expect_close(graph.value(train::Adafactor{}.update(p, unit, state, one).first[0]),
               floats({2}, {600 - 707.1, 800 - 707.1}).to(f16), 1, 0);

  const std::vector<Tensor> matrix{graph.input(floats({1, 2}, {600, 800}).to(f16))};
  const train::AdafactorState<std::vector<Tensor>> wide{
      {graph.input(floats({1, 1}, {0}))}, {graph.input(floats({1, 2}, {0, 0}))}, one * 0};
  expect_close(graph.value(train::Adafactor{}.update(matrix, matrix, wide, one).first[0]),
               floats({1, 2}, {600 - 707.1, 800 - 707.1}).to(f16), 1, 0);
  const train::MuonState<std::vector<Tensor>> start{{graph.input(floats({1, 2}, {0, 0}).to(f16))}};
  const train::Muon muon{.momentum = 0, .weight_decay = 0, .steps = 0};
  expect_close(graph.value(muon.update(matrix, matrix, start, one).first[0]),
               floats({1, 2}, {599.4, 799.2}).to(f16), 0.3, 0);
}

TEST_CASE("train: Adam's first step is the rate, whatever beta2 is") {
  ValuedGraph graph;
  const std::vector<Tensor> p{graph.input(floats({1}, {0}))};
  const std::vector<Tensor> g{graph.input(floats({1}, {2}))};
  const Tensor rate = graph.input(floats({}, {1}));
  const train::AdamState<std::vector<Tensor>> state{p, p, rate * 0};
  const train::Adam adam{.beta2 = 0.99999};
  expect_close(graph.value(adam.update(p, g, state, rate).first[0]), floats({1}, {-1}), 1e-6, 0);
}

TEST_CASE("train: groups of parameters") {
  const auto rule = [](const std::string&, const Shape& shape) -> std::size_t {
    return shape.rank() == 2 ? 0 : 1;
  };
  train::Groups both(rule, train::Muon{}, train::Sgd{.momentum = 0.9});
  both.factors[1] = 0.1;
  check<decltype(both)>("muon", {.optimizer = both});

  // Parameters of no group stay as they are.
  const train::Groups weights(
      [](const std::string& path, const Shape&) -> std::size_t {
        return path == "up.weight" ? 0 : 1;
      },
      train::Sgd{});
  Graph graph;
  const Mlp<Shape> shapes = shapes_of(oracle(), "start.");
  const auto inputs = map_fields<Tensor>(shapes, [&](const std::string& path, const Shape& shape) {
    return graph.input(path, shape);
  });
  const Tensor rate = graph.input("rate", Shape({}, f64));
  const train::Groups<train::Sgd>::State<Tensor> state{{{{inputs.up.weight}}}};
  const auto [next, after] = weights.update(inputs, inputs, state, rate);
  CHECK(next.up.weight.op() == "sub");
  CHECK(next.down.weight.op() == "input");
  CHECK(next.up.bias->op() == "input");
  expect_error(Errc::bad_argument, [&, &mlp = inputs] {
    train::Muon{}.update(mlp, mlp, train::MuonState<Mlp<Tensor>>{mlp}, rate);
  });
}

TEST_CASE("train: initial values") {
  const Shape weight({64, 256}, f32), vector({64}, f32);
  CHECK(elements(train::initial_values("a.bias", vector, train::he_uniform("a.bias", vector),
                                       1))[3] == 0);
  CHECK(elements(train::initial_values("n.weight", vector, train::he_uniform("n.weight", vector),
                                       1))[3] == 1);
  for (const char* name : {"cell.bias_ih", "cell.bias_hh", "experts.up_bias", "n.running_mean"}) {
    INFO(name);
    CHECK(train::he_uniform(name, vector).value == 0);
  }
  CHECK(train::he_uniform("up_bias", weight).value == 0);  // of experts
  CHECK(train::he_uniform("n.running_var", vector).value == 1);
  const train::Initial initial = train::he_uniform("a.weight", weight);
  const double bound = std::sqrt(6.0 / 256);
  CHECK(initial.value == Approx(bound));
  const HostBuffer a = train::initial_values("a.weight", weight, initial, 1);
  double sum = 0, squares = 0, largest = 0;
  for (const double x : elements(a)) {
    sum += x;
    squares += x * x;
    largest = std::max(largest, std::fabs(x));
  }
  const double count = 64 * 256;
  CHECK(largest < bound);
  CHECK(std::fabs(sum / count) < 0.05 * bound);
  CHECK(std::sqrt(squares / count) == Approx(bound / std::sqrt(3.0)).epsilon(0.03));
  expect_close(train::initial_values("a.weight", weight, initial, 1), a, 0, 0);
  CHECK(elements(train::initial_values("b.weight", weight, initial, 1)) != elements(a));
  CHECK(elements(train::initial_values("a.weight", weight, initial, 2)) != elements(a));
  const HostBuffer n = train::initial_values("e", weight, {train::Initial::Kind::normal, 0.02}, 3);
  squares = 0;
  for (const double x : elements(n)) squares += x * x;
  CHECK(std::sqrt(squares / count) == Approx(0.02).epsilon(0.03));
}

TEST_CASE("train: parameters and state are written and read back") {
  const TempFolder folder;
  const Mlp<Buffer> net = parameters(oracle(), "start.");
  const auto both = std::tuple(net, train::Adam{}.start(net, cpu_device()));
  const Mlp<Buffer> empty;
  check_contains(
      expect_error(Errc::call_order, [&] { train::save(folder / "empty.safetensors", empty); }),
      {"train::save: '", "' has no data"});
  train::save(folder / "state.safetensors", both,
              {{"epoch", HostBuffer::of<float>(Shape({1}, f32), {3.0F})}});
  const io::File file = io::open(folder / "state.safetensors");
  CHECK(elements(file.at("epoch").data())[0] == 3);
  const auto read = train::load(file, both, cpu_device());
  expect_close(std::get<0>(read).up.weight.to_host(), net.up.weight.to_host(), 0, 0);
  Mlp<Buffer> other = net;
  other.up.weight = net.down.weight;
  expect_error(Errc::shape_mismatch, [&] { train::load(file, std::tuple(other), cpu_device()); });
  expect_error(Errc::bad_reference, [&] { train::load(file, other, cpu_device()); });
}

TEST_CASE("train: a scalar has every digit of its dtype") {
  CHECK(train::scalar(0.1, f64, cpu_device()).to_host().at({}) == 0.1);
  CHECK(train::scalar(0.1, f32, cpu_device()).to_host().at({}) == 0.1F);
  CHECK(train::scalar(16777217, i32, cpu_device()).to_host().at({}) == 16777217);
}

TEST_CASE("train: schedules") {
  const train::WarmupCosine rate{.peak = 2, .floor = 0.5, .warmup = 4, .total = 12};
  CHECK(rate.at(0) == Approx(0.5));
  CHECK(rate.at(3) == Approx(2));
  CHECK(rate.at(4) == Approx(2));
  CHECK(rate.at(8) == Approx(1.25));
  CHECK(rate.at(12) == Approx(0.5));
  CHECK(train::StepDecay{.start = 1, .factor = 0.5, .every = 3}.at(7) == Approx(0.25));
  CHECK(train::StepDecay{.start = 1, .factor = 0.5, .every = 0}.at(2) == Approx(0.25));
}

template <class Rates>
void check_rates(const std::string& name, const Rates& rates) {
  INFO(name);
  std::int64_t step = 0;
  const HostBuffer want = oracle().at("rates." + name).data();
  for (const double rate : elements(want)) CHECK(rates.at(step++) == Approx(rate).epsilon(1e-10));
}

void check_plateau(const std::string& name, const train::PlateauDecay::Options& options) {
  INFO(name);
  train::PlateauDecay rate(0.5, options);
  CHECK(rate.now() == 0.5);
  const HostBuffer want = oracle().at("rates." + name).data();
  const HostBuffer measures = oracle().at("rates.plateau.measures").data();
  const auto seen = elements(measures);
  std::size_t i = 0;
  for (const double one : elements(want)) CHECK(rate.see(seen[i++]) == Approx(one).epsilon(1e-10));
}

TEST_CASE("train: schedules are PyTorch's") {
  check_rates("milestones", train::MilestoneDecay{0.5, 0.3, {3, 4, 17}});
  check_rates("steps", train::StepDecay{0.5, 0.3, 7});
  check_rates("exponential", train::ExponentialDecay{0.5, 0.9});
  check_rates("polynomial", train::PolynomialDecay{0.5, 0, 1.7, 20});
  check_rates("restarts", train::CosineRestarts{0.5, 0.01, 4, 2});
  check_rates("same_restarts", train::CosineRestarts{0.5, 0.01, 7});
  check_rates("one_cycle", train::OneCycle{.peak = 0.5, .total = 30});
  check_rates("one_cycle_lines", train::OneCycle{0.5, 30, 0.45, 10, 100, true});
  train::PlateauDecay::Options options{
      .factor = 0.4, .patience = 3, .cooldown = 2, .floor = 0.01, .largest = false};
  check_plateau("plateau", options);
  options.largest = true;
  options.cooldown = 1;
  check_plateau("plateau_most_relative", options);
  options.threshold = 0.01;
  options.relative = false;
  options.cooldown = 2;
  check_plateau("plateau_most", options);
  const train::Warmup<train::ExponentialDecay> warm{{1, 0.5}, 3};
  CHECK(warm.at(0) == Approx(0.25));
  CHECK(warm.at(3) == Approx(1));
  CHECK(warm.at(4) == Approx(0.5));
}

}  // namespace
}  // namespace tenon::testing
