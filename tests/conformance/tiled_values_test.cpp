// Values that are stored only as bf16 tiles for the next matrix multiplication: results are
// bit-identical to those of a program that also returns them, and so stores them as f32.
#include "backends/cpu/matmul/tiled_values.hpp"

#include "backends/cpu/matmul/merged_linear.hpp"
#include "support/op_testing.hpp"
#include "support/small_graph.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/graph.hpp>
#include <tenon/lowered.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

constexpr std::int64_t width = 96, hidden = 160, batch = 3;

/// What makes a network's operands: constants are random.
class Maker {
 public:
  Maker(Graph& graph, Random& random, std::map<std::string, Buffer>& weights)
      : graph_(graph), random_(random), weights_(weights) {}

  Tensor constant(const Shape& shape, double range) {
    std::string name = std::to_string(weights_.size());
    name.insert(name.begin(), 'c');
    weights_[name] = random_.uniform(shape, -range, range).to_device(cpu_device());
    return graph_.constant(name, shape);
  }
  Tensor layer(const Tensor& x, std::int64_t outputs, DType type = DType::bf16) {
    const std::int64_t inputs = x.shape()[x.shape().rank() - 1];
    const Tensor w =
        constant(Shape({outputs, inputs}, type), 1 / std::sqrt(static_cast<double>(inputs)));
    return linear(x, w, constant(Shape({outputs}, f32), 1));
  }

 private:
  Graph& graph_;
  Random& random_;
  std::map<std::string, Buffer>& weights_;
};

/// y = last(between(x)): `between` is the value in question.
struct Network {
  std::string name;
  std::function<Tensor(Maker& make, const Tensor& x)> between;
  std::function<Tensor(Maker& make, const Tensor& between)> last;
};

class Run {
 public:
  /// Of x [batch, rows, width]. `keeps`: what lies between is a result too.
  Run(const Network& network, std::int64_t rows, std::uint64_t seed, bool keeps) {
    Random random(seed);
    const Shape shape({batch, rows, width}, f32);
    input_ = random.uniform(shape, -2, 2);
    Graph graph(small_graph_bytes);
    const Graph::Recording recording(graph);
    Maker make(graph, random, weights_);
    const Tensor between = network.between(make, graph.input("x", shape));
    std::vector<Tensor> results{network.last(make, between)};
    if (keeps) results.push_back(between);
    program_ = std::make_unique<Program>(graph.program(results));
  }

  HostBuffer operator()(int threads) const {
    register_cpu_backend();
    Session session(*program_, {.backends = {make_backend("cpu", {.threads = threads})}});
    session.bind(std::make_shared<const WeightSet>(weights_));
    return session.forward({input_.to_device(cpu_device())}).at(0).to_host();
  }

  /// The steps whose results are tiles only.
  std::int64_t tiled() const {
    const Shape shape = input_.shape();
    const Lowered lowered = lower(*program_, {&shape, 1});
    std::vector<Step> own = lowered.steps;
    cpu::merge_linears(lowered, lowered.steps, own);
    cpu::keep_values_tiled(lowered, lowered.steps, own, 0);
    return std::ranges::count_if(own, [](const Step& s) { return cpu::is_tiled(s.output); });
  }

 private:
  HostBuffer input_;
  std::map<std::string, Buffer> weights_;
  std::unique_ptr<Program> program_;
};

Tensor down(Maker& make, const Tensor& x) { return make.layer(x, width); }

std::vector<Network> networks() {
  return {
      {"a linear layer", [](Maker& make, const Tensor& x) { return make.layer(x, hidden); }, down},
      {"an activation", [](Maker& make, const Tensor& x) { return gelu(make.layer(x, hidden)); },
       down},
      {"a gate",
       [](Maker& make, const Tensor& x) {
         return glu(make.layer(x, hidden), make.layer(x, hidden));
       },
       down},
      {"rms_norm",
       [](Maker& make, const Tensor& x) {
         return rms_norm(x, make.constant(Shape({width}, f32), 1));
       },
       [](Maker& make, const Tensor& x) { return make.layer(x, hidden) * make.layer(x, hidden); }},
      {"layer_norm",
       [](Maker& make, const Tensor& x) {
         return layer_norm(x, make.constant(Shape({width}, f32), 1),
                           make.constant(Shape({width}, f32), 1));
       },
       down},
      {"attention",
       [](Maker& make, const Tensor& x) {
         const std::int64_t rows = x.shape()[1];
         const auto heads = [&](const Tensor& y) { return reshape(y, {batch, rows, 3, 32}); };
         Attention op;
         op.causal = false;
         return attention(heads(make.layer(x, width)), heads(make.layer(x, width)),
                          heads(make.layer(x, width)), op);
       },
       [](Maker& make, const Tensor& x) {
         return make.layer(reshape(x, {batch, x.shape()[1], width}), width);
       }},
      {"a chain of layers",
       [](Maker& make, const Tensor& x) {
         return relu(make.layer(relu(make.layer(x, hidden)), hidden));
       },
       down},
  };
}

bool same_bits(const HostBuffer& a, const HostBuffer& b) {
  return std::ranges::equal(a.values<float>(), b.values<float>(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

TEST_CASE("tiled values: the bits of values that are kept as f32, on any number of threads") {
  const auto seed = static_cast<std::uint64_t>(Random().integer(0, 1 << 30));
  CAPTURE(seed);
  for (const Network& network : networks()) {
    for (const std::int64_t rows : {1, 7, 16, 37, 100}) {
      CAPTURE(network.name, rows);
      const HostBuffer want = Run(network, rows, seed, true)(1);
      const Run run(network, rows, seed, false);
      for (const int threads : {1, 2, 7}) CHECK(same_bits(run(threads), want));
    }
  }
}

TEST_CASE("tiled values: where matrix multiplications read tiles, and nothing else the value") {
  if (cpu::active_isa() != cpu::Isa::amx) return;
  for (const Network& network : networks()) {
    CAPTURE(network.name);
    CHECK(Run(network, 37, 1, false).tiled() >= 1);
    // With `batch` rows in total, bf16 layers take f32.
    CHECK(Run(network, 1, 1, false).tiled() == 0);
  }
  const Network residual{"a residual",
                         [](Maker& make, const Tensor& x) { return make.layer(x, width); },
                         [](Maker& make, const Tensor& x) { return make.layer(x, width) + x; }};
  CHECK(Run(residual, 37, 1, false).tiled() == 0);
}

}  // namespace
}  // namespace tenon::testing
