// Which values are recomputed per thread. Tests that run networks check that results do not depend
// on the number of threads.
#include "backends/cpu/recomputed_values.hpp"

#include <tenon/graph.hpp>
#include <tenon/lowered.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::cpu {
namespace {

bool is_own(const Operand& operand) { return operand.place.kind == Place::Kind::scratch; }

struct Steps {
  Steps(const Shape& shape, const std::function<std::vector<Tensor>(Graph&, const Tensor&)>& body) {
    Graph graph;
    const Graph::Recording recording(graph);
    const std::vector<Tensor> results = body(graph, graph.input("x", shape));
    const Program program = graph.program(results);
    const std::vector<Shape> shapes{shape, Shape({}, i32)};
    lowered = lower(program, std::span(shapes).first(program.main().parameter_count));
    own = lowered.steps;
    bytes = recompute_small_values(lowered, lowered.steps, own);
  }

  Lowered lowered;
  std::vector<Step> own;
  std::int64_t bytes = 0;
};

TEST_CASE("recompute_small_values: small and cheap values that are read nowhere else") {
  const Steps steps(Shape({1, 64}, f32), [](Graph& graph, const Tensor& x) {
    const Tensor norm = rms_norm(x, graph.constant("scale", Shape({64}, f32)));
    const Tensor y = linear(norm, graph.constant("w", Shape({64, 64}, f32)));
    return std::vector{sigmoid(y) * y};
  });
  REQUIRE(steps.own.size() == 4);
  CHECK(is_own(steps.own[0].output));        // the norm
  CHECK(is_own(steps.own[1].inputs[0]));     // where the linear layer reads it
  CHECK_FALSE(is_own(steps.own[1].output));  // too much work
  CHECK(is_own(steps.own[2].output));
  CHECK(steps.own[3].inputs[0] == steps.own[2].output);
  CHECK_FALSE(is_own(steps.own[3].output));  // the result
  CHECK(steps.bytes == 64 * 4);
}

TEST_CASE("recompute_small_values: memory is used again") {
  const Steps steps(Shape({1, 64}, f32), [](Graph&, const Tensor& x) {
    const Tensor a = exp(x), b = exp(a), c = exp(b);
    return std::vector{exp(c) + a};
  });
  REQUIRE(steps.own.size() == 5);
  const auto place = [&](std::size_t step) { return steps.own[step].output.place.offset; };
  CHECK(place(1) != place(0));  // the first lives to the end
  CHECK(place(2) != place(0));
  CHECK(place(2) != place(1));  // which it reads
  CHECK(place(3) == place(1));
  CHECK(steps.bytes == 3 * 64 * 4);
}

TEST_CASE("recompute_small_values: large values are shared work") {
  const Steps steps(Shape({64, 65}, f32),
                    [](Graph&, const Tensor& x) { return std::vector{relu(exp(x))}; });
  CHECK_FALSE(is_own(steps.own[0].output));
  CHECK(steps.bytes == 0);
}

TEST_CASE("recompute_small_values: not a value that a later step updates in place") {
  const Steps steps(Shape({4, 16}, f32), [](Graph& graph, const Tensor& x) {
    const Tensor index = graph.input("index", Shape({}, i32));
    const Tensor now = exp(x), row = sum(x, {0});
    return std::vector{update_slice(now, index, row) + x};
  });
  REQUIRE(steps.own.size() == 4);
  CHECK_FALSE(is_own(steps.own[0].output));  // what the update leaves is read behind it
  CHECK(steps.own[2].output.place == steps.own[0].output.place);
}

template <class T = Tensor>
struct Layer {
  T scale, weight;
  TENON_FIELDS(scale, weight)
};

TEST_CASE("recompute_small_values: in a loop, but not what the next iteration reads") {
  const Steps steps(Shape({1, 64}, f32), [](Graph& graph, const Tensor& x) {
    std::vector<Layer<>> layers;
    for (int i = 0; i < 3; ++i) {
      const std::string prefix = "blk." + std::to_string(i);
      layers.push_back({graph.constant(prefix + ".scale", Shape({64}, f32)),
                        graph.constant(prefix + ".weight", Shape({64, 64}, f32))});
    }
    const auto body = [](const Layer<>& layer, const Tensor&, const Tensor& carry) {
      return carry + linear(rms_norm(carry, layer.scale), layer.weight);
    };
    return std::vector{repeat(layers, x, body)};
  });
  const auto loop = std::ranges::find(steps.own, Step::Kind::loop, &Step::kind);
  REQUIRE(loop != steps.own.end());
  REQUIRE(loop->body.size() >= 3);
  CHECK(is_own(loop->body[0].output));
  CHECK(is_own(loop->body[1].inputs[0]));
  CHECK_FALSE(is_own(loop->body.back().output));
}

}  // namespace
}  // namespace tenon::cpu
