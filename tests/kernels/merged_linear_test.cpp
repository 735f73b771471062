// Which linear layers become one step with the activation or the argmax behind them.
#include "backends/cpu/matmul/merged_linear.hpp"

#include "core/runs.hpp"
#include "support/op_testing.hpp"
#include "support/program_text.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/graph.hpp>
#include <tenon/lowered.hpp>
#include <tenon/nn.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::cpu {
namespace {

using Results = std::vector<Tensor>;

/// The merged steps of `make`'s results for x [rows, 32] and a weight of [32, 32], loops included.
std::size_t merged(const std::function<Results(Graph&, const Tensor& x)>& make,
                   std::int64_t rows = 4) {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({rows, 32}, f32));
  const Results results = make(graph, x);
  const Shape input = x.shape();
  const Lowered lowered = lower(graph.program(results), {&input, 1});
  std::vector<Step> own = lowered.steps;
  merge_linears(lowered, lowered.steps, own);
  const std::function<std::size_t(const std::vector<Step>&)> count =
      [&](const std::vector<Step>& steps) {
        std::size_t found = 0;
        for (const Step& step : steps) {
          if (step.kind == Step::Kind::loop) {
            found += count(step.body);
          } else if (step.op.as<MergedLinear>() != nullptr ||
                     step.op.as<LinearArgmax>() != nullptr) {
            ++found;
          }
        }
        return found;
      };
  return count(own);
}

Tensor layer(Graph& graph, const Tensor& x, const char* name) {
  return linear(x, graph.constant(name, Shape({32, 32}, f32)));
}

TEST_CASE("merge_linears: a layer takes over the activation that alone reads it") {
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          const Tensor h = gelu(layer(graph, x, "w1"));
          return {layer(graph, h, "w2") + h};
        }) == 1);
}

TEST_CASE("merge_linears: a result that others read stays") {
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          const Tensor sums = layer(graph, x, "w1");
          return {relu(sums) + sums};
        }) == 0);
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          const Tensor sums = layer(graph, x, "w1");
          return {relu(sums), sums};
        }) == 0);
}

TEST_CASE("merge_linears: not what takes rows for its input") {
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          return {softmax(layer(graph, x, "w1"), -1)};
        }) == 0);
}

TEST_CASE("merge_linears: the argmax of rows, or of the first elements of each") {
  const auto of_rows = [](Graph& graph, const Tensor& x) -> Results {
    return {argmax(layer(graph, x, "w1"), 1)};
  };
  CHECK(merged(of_rows) == 1);
  CHECK(merged(of_rows, LinearArgmax::max_rows) == 1);
  CHECK(merged(of_rows, LinearArgmax::max_rows + 1) == 0);
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          return {argmax(slice(layer(graph, x, "w1"), 1, 0, 27), 1, true, i64)};
        }) == 1);
}

TEST_CASE("merge_linears: not the argmax of other elements, nor of sums that others read") {
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          return {argmax(layer(graph, x, "w1"), 0)};
        }) == 0);
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          return {argmax(slice(layer(graph, x, "w1"), 1, 1, 32), 1)};
        }) == 0);
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          return {argmax(slice(layer(graph, x, "w1"), 0, 0, 3), 1)};
        }) == 0);
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          const Tensor sums = layer(graph, x, "w1");
          return {argmax(sums, 1), sums};
        }) == 0);
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          const Tensor sums = layer(graph, x, "w1");
          return {argmax(sums, 1), argmax(slice(sums, 1, 0, 5), 1)};
        }) == 0);
}

/// gelu(x W^T + b), where b is an input, in whose memory a run may compute.
HostBuffer activated(bool gives_up) {
  const Program program = testing::program_of(R"(def forward(x: f32[64], b: f32[32]):
    w: f32[32, 64] = const("w")
    sums = linear(x, w, b, has_bias=True)
    y = gelu(sums)
    return y
)");
  Session session(program, {.backends = {make_backend("cpu", {.threads = 1})}});
  testing::Random random(5);
  session.bind(std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"w", testing::device(random.uniform(Shape({32, 64}, f32)))}}));
  std::vector<Buffer> given{testing::device(random.uniform(Shape({64}, f32))),
                            testing::device(random.uniform(Shape({32}, f32)))};
  const std::vector<Buffer> kept = gives_up ? std::vector<Buffer>() : given;
  return session.forward(std::move(given))[0].to_host();
}

TEST_CASE("merge_linears: in the memory of an input that is given up, with the same bits") {
  register_cpu_backend();
  CHECK(testing::same_bits(activated(true), activated(false)));
}

struct DenseLayer {
  Tensor weight;
  TENON_FIELDS(weight)
};

TEST_CASE("merge_linears: layers that repeat are merged in their loop") {
  CHECK(merged([](Graph& graph, const Tensor& x) -> Results {
          std::vector<DenseLayer> layers;
          for (const char* name : {"layer.0.w", "layer.1.w", "layer.2.w"}) {
            layers.push_back({graph.constant(name, Shape({32, 32}, f32))});
          }
          return {repeat(layers, x, [](const DenseLayer& l, const Tensor&, const Tensor& carried) {
            return gelu(linear(carried, l.weight)) + carried;
          })};
        }) == 1);
}

}  // namespace
}  // namespace tenon::cpu
