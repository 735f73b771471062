#include "grad/run_session.hpp"
#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/derivatives.hpp>
#include <tenon/tenon.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

TEST_CASE("derivatives: jvp, vjp and hvp are torch.func's") {
  const io::File file = io::open("tests/train/data/transforms.safetensors");
  Graph graph;
  std::vector<HostBuffer> arrays;
  const auto input = [&](const std::string& name) {
    arrays.push_back(file.at(name).data());
    return graph.input(name, arrays.back().shape());
  };
  const std::array<Tensor, 3> at{input("w"), input("b"), input("x")};
  const std::array<Tensor, 3> along{input("tangent.w"), input("tangent.b"), input("tangent.x")};
  const Tensor u = input("u");
  const auto& [w, b, x] = at;
  const Tensor y = squeeze(matmul(w, unsqueeze(x, 1)), 1) + b;
  const Tensor scores = softmax(tanh(y)), loss = logsumexp(y) + sum(w * w * w);

  std::vector<Tensor> results = jvp({&scores, 1}, at, along);
  for (const Tensor& one : grad({&scores, 1}, {&u, 1}, at)) results.push_back(one);
  results.push_back(hvp(loss, at, along)[0]);
  Session session(graph.program(results), {.backends = default_backends()});
  const auto made = run_session(session, arrays);
  std::size_t i = 0;
  for (const char* name : {"jvp", "vjp.w", "vjp.b", "vjp.x", "hvp"}) {
    INFO(name);
    expect_close(made[i++], file.at(name).data(), 1e-10, 1e-10);
  }
  expect_error(Errc::bad_argument, [&] { jvp({&scores, 1}, at, {&u, 1}); });
  expect_error(Errc::bad_argument, [&] { hvp(loss, at, {&u, 1}); });
}

TEST_CASE("derivatives: 0 where a loss is linear, and of outputs that depend on nothing") {
  ValuedGraph graph;
  const Tensor w = graph.input(floats({2}, {1, 2})), b = graph.input(floats({2}, {3, 4}));
  const std::array<Tensor, 2> at{w, b};
  const std::vector<Tensor> second = hvp(sum(w * w) + sum(b), at, at);
  expect_equal(graph.value(second[0]), {2, 4});
  expect_equal(graph.value(second[1]), {0, 0});
  const std::array<Tensor, 2> outputs{w * 3.0, b * 2.0};
  const std::vector<Tensor> along = jvp(outputs, {&w, 1}, {&b, 1});
  expect_equal(graph.value(along[0]), {9, 12});
  expect_equal(graph.value(along[1]), {0, 0});
}

TEST_CASE("derivatives: a power with a number takes no second power for a square") {
  const auto powers_of = [](double exponent) {
    Graph graph;
    const Tensor x = graph.input("x", Shape({3}, f32));
    const Tensor slope = grad(sum(pow(x, scalar_like(x, exponent))), x);
    const Program program = graph.program({&slope, 1});
    const std::vector<Instruction>& body = program.main().body;
    return std::count_if(body.begin(), body.end(), [](const Instruction& one) {
      return one.kind == Instruction::Kind::op && one.op.def()->name == "pow";
    });
  };
  CHECK(powers_of(1) == 0);
  CHECK(powers_of(2) == 0);
  CHECK(powers_of(3) == 1);
}

TEST_CASE("derivatives: along a loop") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({1}, f64)), t = graph.input("t", Shape({1}, f64));
  const Tensor y = repeat(5, x, [&](const Tensor&, const Tensor& now) { return now * now; });
  const std::vector<Tensor> results = jvp({&y, 1}, {&x, 1}, {&t, 1});
  Session session(graph.program(results), {.backends = default_backends()});
  const auto number = [](double value) { return HostBuffer::of<double>(Shape({1}, f64), {value}); };
  const HostBuffer made = run_session(session, {number(1.1), number(2)})[0];
  CHECK(elements(made)[0] == Approx(2 * 32 * std::pow(1.1, 31)));  // x^32
}

}  // namespace
}  // namespace tenon::testing
