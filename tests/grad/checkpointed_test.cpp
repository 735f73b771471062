// checkpointed(): the same gradients, in less memory.
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/optimize.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

struct Outcome {
  std::vector<std::vector<double>> values;
  std::int64_t slab_bytes = 0;
  std::size_t instructions = 0;
};

using Build = std::function<std::vector<Tensor>(Graph& graph)>;
using Inputs = std::vector<HostBuffer>;

/// Runs what `build` records on a backend: as it is, for the values; the memory is that of the
/// optimised program.
Outcome run_on(const std::string& backend, const Build& build, const Inputs& inputs,
               const std::map<std::string, HostBuffer>& constants = {}) {
  register_cpu_backend();
  register_reference_backend();
  Graph graph;
  const Graph::Recording recording(graph);
  Program program = graph.program(build(graph));
  Outcome result;
  result.instructions = program.main().body.size();
  const std::vector<BackendPtr> backends{make_backend(backend, {.threads = 2})};
  Session session(program, {.backends = backends});
  std::map<std::string, Buffer> weights;
  for (const auto& [name, value] : constants) weights[name] = value.to_device(cpu_device());
  const auto bound = std::make_shared<const WeightSet>(std::move(weights));
  session.bind(bound);
  std::vector<Buffer> buffers;
  std::vector<Shape> shapes;
  for (const HostBuffer& input : inputs) {
    buffers.push_back(input.to_device(cpu_device()));
    shapes.push_back(input.shape());
  }
  for (const Buffer& output : session.forward(buffers)) {
    result.values.push_back(elements(output.to_host()));
  }
  optimize(program);
  Session optimised(std::move(program), {.backends = backends});
  optimised.bind(bound);
  const std::vector<Buffer> outputs = optimised.forward(buffers);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<double> got = elements(outputs[i].to_host());
    for (std::size_t k = 0; k < got.size(); ++k) {
      if (std::fabs(got[k] - result.values[i][k]) > 1e-5) FAIL_CHECK("result " << i);
    }
  }
  result.slab_bytes = optimised.report(shapes).slab_bytes;
  return result;
}

/// A body with many values that its gradient reads.
Tensor block(const Tensor& x, const Tensor& w) {
  const Tensor h = tanh(matmul(x, w));
  return exp(sin(h) * cos(h)) * sigmoid(h * h + x);
}

TEST_CASE("checkpointed: the same gradients from less memory") {
  constexpr int layers = 6;
  Random random;
  const Inputs inputs{random.uniform(Shape({64, 48}, f32), -1, 1),
                      random.uniform(Shape({48, 48}, f32), -0.2, 0.2)};
  const auto build = [&](bool is_checkpointed) {
    return [=](Graph& graph) {
      const Tensor x = graph.input("x", Shape({64, 48}, f32));
      const Tensor w = graph.input("w", Shape({48, 48}, f32));
      Tensor y = x;
      for (int i = 0; i < layers; ++i) {
        y = is_checkpointed ? checkpointed([&] { return block(y, w); }) : block(y, w);
      }
      const Tensor loss = mean(y * y);
      return std::vector<Tensor>{loss, grad(loss, x), grad(loss, w)};
    };
  };
  for (const std::string backend : {"reference", "cpu"}) {
    INFO(backend);
    const Outcome plain = run_on(backend, build(false), inputs);
    const Outcome again = run_on(backend, build(true), inputs);
    CHECK(again.values == plain.values);
    INFO(plain.slab_bytes << " bytes, checkpointed " << again.slab_bytes);
    CHECK(2 * again.slab_bytes < plain.slab_bytes);
    CHECK(again.instructions > plain.instructions + 30);
  }
}

struct Layer {
  Tensor w;
  TENON_FIELDS(w)
};

TEST_CASE("checkpointed: a region for each layer of a repeat; second gradients; nesting") {
  constexpr std::int64_t layers = 5, width = 16;
  Random random;
  std::map<std::string, HostBuffer> weights;
  for (std::int64_t i = 0; i < layers; ++i) {
    weights["blk." + std::to_string(i) + ".w"] =
        random.uniform(Shape({width, width}, f32), -0.3, 0.3);
  }
  const Inputs inputs{random.uniform(Shape({32, width}, f32), -1, 1)};
  const auto build = [&](int mode, bool twice) {
    return [=](Graph& graph) {
      const Tensor x = graph.input("x", Shape({32, width}, f32));
      std::vector<Layer> stack;
      for (std::int64_t i = 0; i < layers; ++i) {
        stack.push_back(
            {graph.constant("blk." + std::to_string(i) + ".w", Shape({width, width}, f32))});
      }
      const Tensor y =
          repeat(stack, x, [&](const Layer& layer, const Tensor&, const Tensor& carry) {
            if (mode == 0) return block(carry, layer.w);
            return checkpointed([&] {
              if (mode == 1) return block(carry, layer.w);
              return checkpointed([&] { return block(carry, layer.w); });
            });
          });
      const Tensor loss = mean(y);
      const Tensor slope = grad(loss, x);
      if (twice) return std::vector<Tensor>{slope, grad(mean(slope * slope), x)};
      return std::vector<Tensor>{slope, grad(loss, stack[2].w)};
    };
  };
  for (const int mode : {1, 2}) {
    for (const bool twice : {false, true}) {
      const Outcome plain = run_on("reference", build(0, twice), inputs, weights);
      const Outcome again = run_on("reference", build(mode, twice), inputs, weights);
      if (twice) {  // what is computed twice has two gradients, which are added in another order
        for (std::size_t k = 0; k < plain.values[1].size(); ++k) {
          if (std::fabs(again.values[1][k] - plain.values[1][k]) > 1e-7)
            FAIL_CHECK("element " << k);
        }
        continue;
      }
      CHECK(again.values == plain.values);
      CHECK(again.slab_bytes < plain.slab_bytes);
    }
  }
}

TEST_CASE("checkpointed: inside a region without gradients nothing changes; updates are refused") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({4, 3}, f32));
  const Tensor y = checkpointed([&] { return relu(x) + 1.0; });
  const Tensor z = relu(x) + 1.0;
  const Program a = graph.program({&y, 1}), b = graph.program({&z, 1});
  CHECK(a.main().body.size() == b.main().body.size());

  const Tensor index = graph.input("i", Shape({}, i32));
  const Tensor updated = checkpointed(
      [&] { return update_slice(y, index, graph.input("row", Shape({3}, f32)) * 2.0); });
  expect_error(Errc::unsupported, [&] { grad(sum(updated), x); });
}

TEST_CASE("after: x, in a place of its own in the order") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({{"n", 2}}, f32)), e = graph.input("e", Shape({3}, i32));
  const Tensor y = after(x, e);
  CHECK(y.shape().tag(0) == "n");
  Program program = graph.program(std::vector{exp(x) + exp(y)});
  optimize(program);
  const std::string text = print(program);
  CHECK(text.find("exp(x)") != std::string::npos);
  CHECK(text.find("after(x, e)") != std::string::npos);
}

}  // namespace
}  // namespace tenon::testing
