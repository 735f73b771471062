#include "grad/run_session.hpp"
#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/call.hpp>
#include <tenon/tenon.hpp>

#include <string>
#include <vector>

namespace tenon::testing {
namespace {

Program model() {
  return parse(R"(# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("model", opset=1)

def half(x: f32[N, 3]):
    c: f32 = full(value=0.5)
    y: f32[N, 3] = mul(x, c)
    return y

def forward(x: f32[N, 2]):
    w: f32[3, 2] = const("w")
    b: f32[3] = const("b")
    y0: f32[N, 3] = linear(x, w, b, has_bias=True)
    y1: f32[N, 3] = half(y0)
    return y1
)");
}

TEST_CASE("call: a program in another one, with weights of that") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({1, 2}, f32));
  const Tensor w = graph.input("weight", Shape({3, 2}, f32));
  const std::vector<Tensor> made = call(graph, model(), {&x, 1}, {{"w", w}});
  REQUIRE(made.size() == 1);
  expect_type(made[0].shape(), "f32[1, 3]");
  const Tensor loss = sum(square(made[0]));
  const std::vector<Tensor> results{loss, grad(loss, w)};
  const Program program = graph.program(results);
  CHECK(constant_names(program) == std::vector<std::string>{"b"});
  Session session(program, {.backends = default_backends()});
  std::map<std::string, Buffer> weights;
  weights.emplace("b", floats({3}, {0, 1, 2}).to_device(cpu_device()));
  session.bind(std::make_shared<const WeightSet>(std::move(weights)));
  const auto values =
      run_session(session, {floats({1, 2}, {1, 2}), floats({3, 2}, {1, 0, 0, 1, 1, 1})});
  // y = (1, 3, 5) / 2, so dL/dw = y x.
  expect_equal(values[0], {8.75});
  expect_equal(values[1], {0.5, 1, 1.5, 3, 2.5, 5});
}

TEST_CASE("call: what it refuses") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({1, 2}, f32));
  const std::vector<Tensor> two{x, x};
  const auto refused = [&](Errc code, std::span<const Tensor> inputs,
                           const std::map<std::string, Tensor>& weights, const char* says) {
    const std::string text = expect_error(code, [&] { call(graph, model(), inputs, weights); });
    INFO(text);
    CHECK(text.find(says) != std::string::npos);
  };
  refused(Errc::bad_argument, two, {}, "2 inputs for 'model', which has 1 parameters");
  refused(Errc::bad_argument, {&x, 1}, {{"v", x}}, "the program has no constant 'v'");
  refused(Errc::shape_mismatch, {&x, 1}, {{"w", x}},
          "weight 'w' is f32[1, 2], the program's is f32[3, 2]");
  const Tensor wide = graph.input("wide", Shape({1, 3}, f32));
  refused(Errc::shape_mismatch, {&wide, 1}, {},
          "input 'x' is f32[1, 3], the program's is f32[N, 2]");
}

}  // namespace
}  // namespace tenon::testing
