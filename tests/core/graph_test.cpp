// Recording tensors: what a graph refuses, and what its messages tell.
#include "support/expect_error.hpp"

#include <tenon/control.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/program.hpp>
#include <tenon/weights_view.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::check_contains;
using testing::expect_error;

std::string here(int line) { return "graph_test.cpp:" + std::to_string(line); }

}  // namespace

TEST_CASE("Graph: a handle knows its type, its op and the line that wrote it") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({Axis("b", 2), Axis("d", 3)}, f32));
  const int line = __LINE__ + 1;
  const Tensor y = exp(x);
  CHECK(x.op() == "input");
  CHECK(x.name() == "x");
  CHECK(y.op() == "exp");
  CHECK(y.name().empty());
  CHECK(static_cast<int>(y.where().line()) == line);
  CHECK(y.shape() == x.shape());
  CHECK(y.dim("d") == 3);
  CHECK(y.rename("d", "k").dim("k") == 3);
  CHECK(y.dim("d") == 3);  // a handle's tags are its own
  CHECK_FALSE(y.with_tags({}).shape().has_tags());
  expect_error(Errc::axis_out_of_range, [&] { y.dim("z"); });
  CHECK(Tensor().is_empty());
  static_assert(sizeof(Tensor) <= 24);
}

TEST_CASE("Graph: a shape error tells the op, both types with tags, and the lines") {
  Graph graph;
  const int x_line = __LINE__ + 1;
  const Tensor x = graph.input("pixels", Shape({Axis("b", 8), Axis("d", 784)}, f32));
  const Tensor w = graph.constant("fc1.weight", Shape({Axis("h", 64), Axis("d", 783)}, f32));
  int line = 0;
  const std::string what = expect_error(Errc::shape_mismatch, [&] {
    line = __LINE__ + 1;
    linear(x, w);
  });
  check_contains(what, {here(line), "linear", "f32[b=8, d=784]", "f32[h=64, d=783]", here(x_line),
                        "'pixels'", "'fc1.weight'"});

  const std::string sum = expect_error(Errc::shape_mismatch, [&] {
    line = __LINE__ + 1;
    x + graph.input("y", Shape({8, 5}, f32));
  });
  check_contains(sum, {here(line), "add", "f32[b=8, d=784]", "f32[8, 5]"});
  const std::string types =
      expect_error(Errc::shape_mismatch, [&] { add(x, graph.input("ids", Shape({8, 784}, i32))); });
  check_contains(types, {"f32[b=8, d=784]", "i32[8, 784]"});
}

TEST_CASE("Graph: what an op refuses leaves the graph as it was") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({4}, f32));
  const Tensor y = x * 2;
  expect_error(Errc::shape_mismatch, [&] { matmul(x, graph.input("m", Shape({5, 2}, f32))); });
  const Tensor z = y + x;
  const Program program = graph.program({&z, 1});
  std::vector<std::string_view> ops;
  for (const Instruction& instruction : program.main().body)
    ops.push_back(instruction.op.def()->name);
  CHECK(ops == std::vector<std::string_view>{"full", "mul", "add"});
}

TEST_CASE("Graph: tensors of two graphs do not mix") {
  Graph one;
  Graph two;
  const Tensor a = one.input("a", Shape({2}, f32));
  const Tensor b = two.input("b", Shape({2}, f32));
  const int line = __LINE__ + 1;
  const std::string what = expect_error(Errc::context_mismatch, [&] { a + b; });
  check_contains(what, {here(line), "add", "'a'", "'b'"});
  expect_error(Errc::context_mismatch, [&] { concat({a, b}, 0); });
  CHECK_NOTHROW(a + a);
  check_contains(expect_error(Errc::context_mismatch, [&] { one.program({&b, 1}); }), {"'b'"});
}

TEST_CASE("Graph: a handle that outlives its graph is found out in every use") {
  Tensor stale;
  std::optional<Graph> live(std::in_place);
  const Tensor other = live->input("x", Shape({2}, f32));
  {
    Graph graph;
    stale = graph.input("x", Shape({2}, f32));
  }
  expect_error(Errc::stale_handle, [&] { stale.shape(); });
  expect_error(Errc::stale_handle, [&] { stale.op(); });
  expect_error(Errc::stale_handle, [&] { stale.name(); });
  expect_error(Errc::stale_handle, [&] { stale.where(); });
  expect_error(Errc::stale_handle, [&] { stale.rename(0, "b"); });
  expect_error(Errc::stale_handle, [&] { exp(stale); });
  expect_error(Errc::stale_handle, [&] { other + stale; });
  expect_error(Errc::stale_handle, [&] { live->program({&stale, 1}); });
  const Tensor outputs[] = {other, Tensor()};
  check_contains(expect_error(Errc::stale_handle, [&] { live->program(outputs); }),
                 {"output 1 of 2 is an empty tensor"});
  expect_error(Errc::stale_handle, [] { Tensor().shape(); });
  expect_error(Errc::stale_handle, [&] { other + Tensor(); });
  // A graph at the same address is another graph.
  live.reset();
  live.emplace();
  expect_error(Errc::stale_handle, [&] { other.shape(); });
}

TEST_CASE("Tensor: an empty one names the line that asks it for anything") {
  const Tensor none;
  const auto check = [](int line, std::string_view asked, const std::function<void()>& ask) {
    check_contains(expect_error(Errc::stale_handle, ask),
                   {here(line), std::string(asked), "is empty"});
  };
  check(__LINE__, "Tensor::shape", [&] { none.shape(); });
  check(__LINE__, "Tensor::shape", [&] { none.dtype(); });
  check(__LINE__, "Tensor::shape", [&] { none.rank(); });
  check(__LINE__, "Tensor::shape", [&] { none.dim(0); });
  check(__LINE__, "Tensor::op", [&] { none.op(); });
  check(__LINE__, "Tensor::name", [&] { none.name(); });
  check(__LINE__, "Tensor::where", [&] { none.where(); });
  check(__LINE__, "Tensor::shape", [&] { none.with_tags({"b"}); });
  check(__LINE__, "Tensor::shape", [&] { none.rename(0, "b"); });
  // Builders that look at their operand before they record it pass the line on.
  check(__LINE__, "", [&] { cast(none, f16); });
  check(__LINE__, "", [&] { flatten(none); });
  check(__LINE__, "", [&] { full_like(none, 1); });
  check(__LINE__, "", [&] { chunk(none, 2, 0); });
  check(__LINE__, "", [&] { dot(none, none, "k"); });
}

TEST_CASE("Graph: names of inputs and constants") {
  Graph graph;
  graph.input("x", Shape({2}, f32));
  expect_error(Errc::duplicate_name, [&] { graph.input("x", Shape({3}, f32)); });
  CHECK(graph.input("", Shape({2}, f32)).name() == "x0");
  graph.input("x1", Shape({2}, f32));
  CHECK(graph.input("", Shape({2}, f32)).name() == "x2");  // not one that is taken
  const Tensor w = graph.constant("w", Shape({2}, f32));
  const Tensor again = graph.constant("w", Shape({2}, f32));
  const Tensor both = w + again;
  CHECK(graph.program({&both, 1}).main().body.size() == 2);  // one constant, one add
  check_contains(expect_error(Errc::shape_mismatch, [&] { graph.constant("w", Shape({3}, f32)); }),
                 {"'w'", "f32[2]", "f32[3]"});
}

TEST_CASE("Graph: ops without inputs go where a recording says") {
  expect_error(Errc::call_order, [] { full(1.0, Shape({2}, f32)); });
  Graph outer;
  Graph inner;
  const Graph::Recording outer_recording(outer);
  const Tensor a = full(1.0, Shape({2}, f32));
  {
    const Graph::Recording inner_recording(inner);
    const Tensor b = full(1.0, Shape({2}, f32));
    expect_error(Errc::context_mismatch, [&] { a + b; });
  }
  CHECK_NOTHROW(a + full(2.0, Shape({2}, f32)));  // outer again
}

TEST_CASE("Graph: only admitted weights join") {
  const std::pair<std::string, Shape> weights[] = {{"up", Shape({4}, f32)},
                                                   {"down", Shape({4}, f32)}};
  const WeightsView view("model.gguf", weights);
  Graph graph;
  const Tensor x = graph.input("x", Shape({4}, f32));
  graph.admit_only({"up"});
  CHECK_NOTHROW(x + view.tensor("up"));
  check_contains(expect_error(Errc::bad_reference, [&] { x + view.tensor("down"); }),
                 {"'down'", "model.gguf", "TENON_FIELDS"});
}

TEST_CASE("Graph: a program holds what its results need, and lives on its own") {
  Program program;
  {
    Graph graph;
    const Tensor x = graph.input("x", Shape({symbol("S"), 3}, f32));
    graph.input("unused", Shape({1}, f32));
    exp(x);  // nobody needs it
    const Tensor y = relu(x);
    const Tensor results[] = {y, x, y};
    program = graph.program(results, "answer");
    expect_error(Errc::bad_argument, [&] { graph.program({}); });
  }
  const Function& main = program.main();
  CHECK(main.name == "answer");
  CHECK(main.parameter_count == 2);  // inputs stay, used or not
  REQUIRE(main.body.size() == 1);
  CHECK(main.body[0].op.def()->name == "relu");
  CHECK(main.results.size() == 3);
  CHECK(main.results[0] == main.results[2]);
  CHECK(program.main().body[0].line.file == "graph_test.cpp");
  verify(program);
  CHECK(same_program(parse(print(program)), program));
}

TEST_CASE("Graph: a program has no layer of the name of its entry") {
  Graph graph;
  const Tensor x = graph.input("x", Shape({2}, f32));
  const auto goes_on = [](const Tensor& h) { return lt(sum(h), scalar_like(sum(h), 4)); };
  const Tensor y = while_loop(x, goes_on, [](const Tensor& h) { return exp(h); }, 2);
  const Tensor z = while_loop(y, goes_on, [](const Tensor& h) { return square(h); }, 3);
  Program program = graph.program({&z, 1}, "layer0");
  verify(program);
  std::vector<std::string> names;
  for (const Function& function : program.functions) names.push_back(function.name);
  CHECK(names == std::vector<std::string>{"layer1", "layer2", "layer0"});
}

TEST_CASE("Graph: an arena that runs out leaves what was recorded, and a larger one does") {
  const auto build = [](Graph& graph) {
    Tensor y = graph.input("x", Shape({4}, f32));
    for (int i = 0; i < 200; ++i) y = exp(y);
    return y;
  };
  constexpr std::size_t small = 16 << 10;
  Graph graph(small);
  std::vector<Tensor> made{graph.input("x", Shape({4}, f32))};
  const std::string what = expect_error(Errc::out_of_arena, [&] {
    for (int i = 0; i < 200; ++i) made.push_back(exp(made.back()));
  });
  check_contains(what, {"need", "have", std::to_string(small)});
  REQUIRE(made.size() > 10);
  REQUIRE(made.size() < 200);
  CHECK(graph.used() <= graph.budget());
  for (const Tensor& tensor : made) REQUIRE(tensor.shape() == Shape({4}, f32));
  const Program program = graph.program({&made.back(), 1});
  CHECK(program.main().body.size() == made.size() - 1);

  Graph larger(small * 8);
  const Tensor y = build(larger);
  CHECK(larger.program({&y, 1}).main().body.size() == 200);
}

}  // namespace tenon
