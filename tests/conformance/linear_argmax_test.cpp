// Argmax of a linear layer, computed together with the tiles of its result: equal to the argmax of
// the stored result, for any number of threads.
#include "support/op_testing.hpp"
#include "support/rounds.hpp"
#include "support/small_graph.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

constexpr std::int64_t inputs = 256;

using Weights = std::map<std::string, Buffer>;
using Outputs = std::function<std::vector<Tensor>(Graph& graph, const Tensor& x)>;

HostBuffer run(const HostBuffer& x, const Weights& weights, const BackendPtr& backend,
               const Outputs& outputs) {
  Graph graph(small_graph_bytes);
  const Graph::Recording recording(graph);
  const Program program = graph.program(outputs(graph, graph.input("x", x.shape())));
  Session session(program, {.backends = {backend}});
  session.bind(std::make_shared<const WeightSet>(weights));
  return session.forward({x.to_device(cpu_device())}).at(0).to_host();
}

/// Effect of the bias on some of the sums: none, or it makes them equal, infinite or NaN.
enum class Special { none, equal, infinite, minus_infinite, nan };

struct ArgmaxCase {
  DType type;
  std::int64_t rows, outputs, columns;  // argmax of the first `columns`
  Special special;
  bool has_residual;
};

class Layer {
 public:
  Layer(const ArgmaxCase& chosen, Random& random) : case_(chosen) {
    x_ = random.uniform(Shape({case_.rows, inputs}, f32), -1, 1);
    weights_["w"] = random.uniform(Shape({case_.outputs, inputs}, f32), -1, 1)
                        .to(case_.type)
                        .to_device(cpu_device());
    HostBuffer bias = random.uniform(Shape({case_.outputs}, f32), -1, 1);
    const auto values = bias.mutable_values<float>();
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (int i = 0; i < 5; ++i) {
      float& some = values[static_cast<std::size_t>(random.integer(0, case_.outputs - 1))];
      if (case_.special == Special::equal) some = 1e30f;  // which absorbs the rest of the sum
      if (case_.special == Special::infinite) some = infinity;
      if (case_.special == Special::minus_infinite) some = -infinity;
      if (case_.special == Special::nan) some = std::nanf("");
    }
    weights_["bias"] = bias.to_device(cpu_device());
    weights_["residual"] =
        random.uniform(Shape({case_.rows, case_.outputs}, f32), -1, 1).to_device(cpu_device());
  }

  HostBuffer sums(const BackendPtr& backend) const {
    return run(x_, weights_, backend,
               [&](Graph& graph, const Tensor& x) { return std::vector{layer(graph, x)}; });
  }
  std::vector<std::int64_t> greatest(const BackendPtr& backend, DType dtype) const {
    const HostBuffer got = run(x_, weights_, backend, [&](Graph& graph, const Tensor& x) {
      return std::vector{argmax(slice(layer(graph, x), 1, 0, case_.columns), 1, false, dtype)};
    });
    std::vector<std::int64_t> places;
    for (std::int64_t row = 0; row < case_.rows; ++row) {
      places.push_back(static_cast<std::int64_t>(got.at({row})));
    }
    return places;
  }

 private:
  Tensor layer(Graph& graph, const Tensor& x) const {
    const auto constant = [&](const char* name) {
      return graph.constant(name, weights_.at(name).shape());
    };
    const Tensor sums = linear(x, constant("w"), constant("bias"));
    return case_.has_residual ? sums + constant("residual") : sums;
  }

  ArgmaxCase case_;
  HostBuffer x_;
  Weights weights_;
};

/// The first NaN of each row, or the first of its greatest elements.
std::vector<std::int64_t> looked_up(const HostBuffer& sums, std::int64_t columns) {
  std::vector<std::int64_t> places;
  for (std::int64_t row = 0; row < sums.shape()[0]; ++row) {
    std::int64_t best = 0;
    for (std::int64_t i = 0; i < columns && !std::isnan(sums.at({row, best})); ++i) {
      const double value = sums.at({row, i});
      if (std::isnan(value) || value > sums.at({row, best})) best = i;
    }
    places.push_back(best);
  }
  return places;
}

/// With 1, 2 and 7 threads.
std::vector<BackendPtr> cpu_backends(bool exact) {
  register_cpu_backend();
  std::vector<BackendPtr> backends;
  for (const int threads : {1, 2, 7}) {
    backends.push_back(make_backend("cpu", {.threads = threads, .exact = exact}));
  }
  return backends;
}

TEST_CASE("linear and argmax: what a loop over the sums finds, of every type of weights") {
  register_reference_backend();
  const BackendPtr reference = make_backend("reference");
  const auto fast = cpu_backends(false), exact = cpu_backends(true);
  Random random;
  EveryThird third;
  for (const DType type : {f32, f16, bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                           DType::q8_0, DType::iq4_nl, DType::q4_k, DType::q6_k, DType::iq3_s,
                           DType::mxfp4, DType::nvfp4, DType::q1_0, DType::q2_0}) {
    if (third.skips()) continue;
    for (const Special special : {Special::none, Special::equal, Special::infinite,
                                  Special::minus_infinite, Special::nan}) {
      // They choose no other code.
      if ((seeks_races || seeks_bad_accesses) && special != Special::none) continue;
      // One row, few, and as many as sums are not stored for, or one more.
      for (const std::int64_t rows :
           {std::int64_t{1}, random.integer(2, 33), random.integer(64, 65)}) {
        const std::int64_t sizes[] = {1, 16, 40, 333, 2065};
        const std::int64_t outputs = sizes[random.integer(0, rows < 33 ? 4 : 3)];
        const ArgmaxCase chosen{
            type,    rows,
            outputs, random.integer(std::max<std::int64_t>(outputs - 40, 1), outputs),
            special, random.integer(0, 1) == 1};
        INFO(name(type) << ", rows " << rows << ", outputs " << outputs << ", of them "
                        << chosen.columns << ", special " << static_cast<int>(special)
                        << ", residual " << chosen.has_residual);
        const Layer layer(chosen, random);
        for (const auto* backends : {&fast, &exact}) {
          const auto want = looked_up(layer.sums(backends->front()), chosen.columns);
          for (const BackendPtr& backend : *backends) CHECK(layer.greatest(backend, i32) == want);
        }
        if (special == Special::none || special == Special::minus_infinite) continue;
        CHECK(layer.greatest(exact.back(), i64) == layer.greatest(reference, i64));
      }
    }
  }
}

struct Choice {
  Tensor weight, table;
  TENON_FIELDS(weight, table)
};

TEST_CASE("linear and argmax: in a loop, from run to run") {
  register_reference_backend();
  Random random;
  constexpr std::int64_t rows = 4, outputs = 77;
  constexpr int layers = 6;
  // Integers, whose sums every backend computes without rounding; few of them, so that some are
  // equal.
  const auto integers = [&](const Shape& shape) {
    HostBuffer made = random.uniform(shape, -2, 3);
    for (float& value : made.mutable_values<float>()) value = std::floor(value);
    return made;
  };
  const HostBuffer x = integers(Shape({rows, 32}, f32));
  const Shape shape({outputs, 32}, f32);
  const auto name = [](int i, const char* part) {
    return "layer." + std::to_string(i) + "." + part;
  };
  Weights weights;
  for (int i = 0; i < layers; ++i) {
    for (const char* part : {"weight", "table"}) {
      weights[name(i, part)] = integers(shape).to_device(cpu_device());
    }
  }
  const Outputs chain = [&](Graph& graph, const Tensor& first) {
    std::vector<Choice> choices;
    for (int i = 0; i < layers; ++i) {
      choices.push_back(
          {graph.constant(name(i, "weight"), shape), graph.constant(name(i, "table"), shape)});
    }
    return std::vector{
        repeat(choices, first, [](const Choice& choice, const Tensor&, const Tensor& carried) {
          return embedding(argmax(linear(carried, choice.weight)), choice.table);
        })};
  };
  const HostBuffer want = run(x, weights, make_backend("reference"), chain);
  for (const BackendPtr& backend : cpu_backends(false)) {
    for (int i = 0; i < 3; ++i) expect_close(run(x, weights, backend, chain), want, 0, 0);
  }
}

}  // namespace
}  // namespace tenon::testing
