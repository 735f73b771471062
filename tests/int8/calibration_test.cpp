// Ranges collected on a session's own backends.
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/calibration.hpp>
#include <tenon/control.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {
namespace {

struct Net {
  Net() {
    Random random;
    const Graph::Recording recording(graph);
    const Shape filter({6, 3, 3, 3}, f32);
    weights["w"] = random.uniform(filter, -1, 1).to_device(cpu_device());
    const Tensor y = relu(conv2d(graph.input("x", shape), graph.constant("w", filter)));
    program = graph.program({&y, 1});
    samples = {{random.uniform(shape, -1, 1)}, {random.uniform(shape, -2, 3)}};
  }
  Session session() const {
    register_cpu_backend();
    Session result(program, {.backends = {make_backend("cpu", {.threads = 2})}});
    result.bind(std::make_shared<const WeightSet>(weights));
    return result;
  }

  Shape shape = Shape({1, 3, 8, 9}, f32);
  Graph graph;
  Program program;
  std::map<std::string, Buffer> weights;
  std::vector<std::vector<HostBuffer>> samples;
};

TEST_CASE("calibrate: a session sees the values that the reference kernels make") {
  const Net net;
  const auto want = quant::calibrate(net.program, WeightSet(net.weights), net.samples);
  const auto got = quant::calibrate(net.session(), net.samples);
  REQUIRE(got.values.size() == want.values.size());
  CHECK(got.values.size() == 3);
  for (const auto& [name, range] : want.values) {
    INFO(name);
    const quant::ValueRange* found = got.find(name);
    REQUIRE(found != nullptr);
    CHECK(found->tensor.min == Approx(range.tensor.min).margin(1e-5));
    CHECK(found->tensor.max == Approx(range.tensor.max).margin(1e-5));
  }
}

TEST_CASE("calibrate: branches of other sizes whose functions have values of the same names") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({2, 3}, f32)), y = graph.input("y", Shape({2, 5}, f32));
  const auto halved = [](const Tensor& z) {
    return cond(
        gt(sum(z), full(0, Shape({}, f32))), [&] { return z * 0.5; }, [&] { return z * 3.0; });
  };
  const std::vector<Tensor> results{relu(halved(x)), relu(halved(y))};
  const Program program = graph.program(results);
  Random random;
  const std::vector<std::vector<HostBuffer>> samples{
      {random.uniform(x.shape(), 1, 2), random.uniform(y.shape(), -9, -8)}};
  const quant::CalibrationOptions options{.observer = {}, .per_channel = true};
  const auto table = quant::calibrate(program, WeightSet({}), samples, options);
  CHECK(table.find("x")->channels.size() == 3);
  CHECK(table.find("y")->channels.size() == 5);

  register_cpu_backend();
  Session session(program, {.backends = {make_backend("cpu")}});
  const auto by_session = quant::calibrate(std::move(session), samples, options);
  REQUIRE(by_session.values.size() == table.values.size());
  for (const auto& [name, range] : table.values) {
    INFO(name);
    REQUIRE(by_session.find(name) != nullptr);
    CHECK(by_session.find(name)->tensor.min == range.tensor.min);
    CHECK(by_session.find(name)->tensor.max == range.tensor.max);
  }
}

TEST_CASE("calibrate: a session that is used before and after, with a callback of its own") {
  const Net net;
  const std::vector<Buffer> input{net.samples[0][0].to_device(cpu_device())};
  Session session = net.session();
  int seen = 0;
  session.set_post_callback([&](const StepEvent&) { ++seen; });
  session.forward(input);
  const int each = seen;
  REQUIRE(each > 0);
  const auto table = quant::calibrate(session, net.samples);
  CHECK(table.values.size() == 3);
  const std::vector<std::vector<HostBuffer>> wrong{{Random().uniform(Shape({1}, f32))}};
  CHECK_THROWS_AS(quant::calibrate(session, wrong), Error);
  CHECK(seen == each);
  session.forward(input);
  CHECK(seen == 2 * each);
}

TEST_CASE("calibrate: a session without samples") {
  const Net net;
  expect_error(Errc::bad_argument, [&] { quant::calibrate(net.session(), {}); });
  expect_error(Errc::bad_argument, [] { quant::Calibration().observe("x", HostBuffer().view()); });
  expect_error(Errc::bad_argument, [] { quant::Observer().observe(HostBuffer().view()); });
}

}  // namespace
}  // namespace tenon::testing
