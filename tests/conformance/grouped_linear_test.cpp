// Layers that rows choose from: each row has the bits of the linear layer that it chose, whatever
// the others choose, for any number of threads.
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"
#include "support/small_graph.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace tenon::testing {
namespace {

using Weights = std::map<std::string, Buffer>;

struct Layers {
  HostBuffer x;  // [T, 1 or J, K]
  HostBuffer w;  // [G, N, K]
  HostBuffer bias;
  HostBuffer group;  // [T, J]
};

/// What `make` records of x and constants w and bias.
template <class Make>
HostBuffer run(const std::vector<HostBuffer>& arrays, const HostBuffer& w, const HostBuffer& bias,
               const BackendPtr& backend, const Make& make) {
  Graph graph(small_graph_bytes);
  const Graph::Recording recording(graph);
  std::vector<Tensor> inputs;
  std::vector<Buffer> values;
  std::vector<Shape> shapes;
  for (const HostBuffer& array : arrays) {
    shapes.push_back(array.shape());
    inputs.push_back(graph.input(fmt::format("x{}", inputs.size()), array.shape()));
    values.push_back(array.to_device(cpu_device()));
  }
  const std::vector<Tensor> outputs{
      make(inputs, graph.constant("w", w.shape()), graph.constant("b", bias.shape()))};
  Session session(graph.program(outputs), {.backends = {backend}});
  CHECK(session.report(shapes).fallbacks.empty());
  session.bind(std::make_shared<const WeightSet>(
      Weights{{"w", w.to_device(cpu_device())}, {"b", bias.to_device(cpu_device())}}));
  return session.forward(std::move(values)).at(0).to_host();
}

HostBuffer run(const Layers& layers, const BackendPtr& backend) {
  return run({layers.x, layers.group}, layers.w, layers.bias, backend,
             [](const std::vector<Tensor>& in, const Tensor& w, const Tensor& bias) {
               return grouped_linear(in[0], w, in[1], bias);
             });
}

/// One row by one group's weights.
HostBuffer run_row(const Layers& layers, std::int64_t t, std::int64_t j,
                   const BackendPtr& backend) {
  const auto group = static_cast<std::int64_t>(layers.group.at({t, j}));
  const std::int64_t own = layers.x.shape()[1] == 1 ? 0 : j;
  const std::int64_t k = layers.x.shape()[2], n = layers.w.shape()[1];
  const HostBuffer x =
      layers.x.slice(0, t, t + 1).slice(1, own, own + 1).contiguous().reshape({1, k});
  const HostBuffer w = layers.w.slice(0, group, group + 1).contiguous().reshape({n, k});
  const HostBuffer bias = layers.bias.slice(0, group, group + 1).contiguous().reshape({n});
  return run({x}, w, bias, backend,
             [](const std::vector<Tensor>& in, const Tensor& weights, const Tensor& added) {
               return linear(in[0], weights, added);
             });
}

TEST_CASE("grouped linear: every row has the bits of its own layer") {
  register_cpu_backend();
  Random random;
  const DType types[] = {f32, f16, bf16, DType::q8_0, DType::q4_k, DType::q5_1, DType::iq4_xs};
  for (int round = 0; round < rounds(40); ++round) {
    const DType type = types[round % 7];
    const std::int64_t t = random.integer(1, round % 4 == 0 ? 400 : 6), j = random.integer(1, 4);
    const std::int64_t g = random.integer(1, 9), n = 16 * random.integer(1, 9);
    const std::int64_t k = is_block(type) ? 256 * random.integer(1, 2) : random.integer(1, 90);
    Layers layers;
    layers.x = random.uniform(Shape({t, random.integer(0, 1) == 0 ? 1 : j, k}, f32), -1, 1);
    layers.w = random.uniform(Shape({g, n, k}, f32), -1, 1).to(type);
    layers.bias = random.uniform(Shape({g, n}, f32), -1, 1);
    layers.group = HostBuffer::zeros(Shape({t, j}, i32));
    for (auto& id : layers.group.mutable_values<std::int32_t>()) {
      id = static_cast<std::int32_t>(random.integer(0, g - 1));
    }
    for (const bool exact : {false, true}) {
      CAPTURE(round, name(type), t, j, g, n, k, exact);
      const HostBuffer y = run(layers, make_backend("cpu", {.threads = 1, .exact = exact}));
      for (const int threads : {2, 7}) {
        const HostBuffer other =
            run(layers, make_backend("cpu", {.threads = threads, .exact = exact}));
        CHECK(std::ranges::equal(other.values<float>(), y.values<float>()));
      }
      for (int sample = 0; sample < 5; ++sample) {
        const std::int64_t row = random.integer(0, t - 1), choice = random.integer(0, j - 1);
        const HostBuffer own =
            run_row(layers, row, choice, make_backend("cpu", {.threads = 1, .exact = exact}));
        const auto all = y.values<float>().subspan(static_cast<std::size_t>((row * j + choice) * n),
                                                   static_cast<std::size_t>(n));
        CHECK(std::ranges::equal(own.values<float>(), all));
      }
    }
  }
}

TEST_CASE("grouped linear: a group out of range is an error, and the next run is right") {
  register_cpu_backend();
  Random random;
  Layers layers{random.uniform(Shape({3, 1, 32}, f32)), random.uniform(Shape({4, 16, 32}, f32)),
                random.uniform(Shape({4, 16}, f32)), HostBuffer::zeros(Shape({3, 2}, i32))};
  const BackendPtr backend = make_backend("cpu", {.threads = 2});
  for (const std::int32_t wrong : {-1, 4, 1 << 30}) {
    layers.group.mutable_values<std::int32_t>()[3] = wrong;
    const std::string text = expect_error(Errc::out_of_range, [&] { run(layers, backend); });
    CHECK(text.find(std::to_string(wrong)) != std::string::npos);
    layers.group.mutable_values<std::int32_t>()[3] = 2;
    CHECK(run(layers, backend).shape().elements() == 96);
  }
}

}  // namespace
}  // namespace tenon::testing
