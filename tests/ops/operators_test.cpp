#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/operators.hpp>

#include <string>

namespace tenon::testing {
namespace {

TEST_CASE("operators: arithmetic as it is written") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2}, {1, 4})), y = graph.input(floats({2}, {2, 2}));
  expect_equal(graph.value(x + y), {3, 6});
  expect_equal(graph.value(x - y), {-1, 2});
  expect_equal(graph.value(x * y), {2, 8});
  expect_equal(graph.value(x / y), {0.5, 2});
  expect_equal(graph.value(-x), {-1, -4});
  expect_equal(graph.value(-(x + y) * x), {-3, -24});
}

TEST_CASE("operators: scalars on either side take the tensor's dtype") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2}, {1, 4}).to(f16)), n = graph.input(ints({1}, {7}));
  expect_equal(graph.value(x + 0.5), {1.5, 4.5});
  expect_equal(graph.value(x - 1), {0, 3});
  expect_equal(graph.value(x * 2), {2, 8});
  expect_equal(graph.value(x / 4), {0.25, 1});
  expect_equal(graph.value(1 + x), {2, 5});
  expect_equal(graph.value(1 - x), {0, -3});
  expect_equal(graph.value(2 * x), {2, 8});
  expect_equal(graph.value(4 / x), {4, 1});
  CHECK((x + 0.5).dtype() == f16);
  expect_equal(graph.value(n / 2), {3});
  expect_error(Errc::bad_attribute, [&] { n + 0.5; });
}

TEST_CASE("operators: an error names the line and both operands") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"d", 2}}, {1, 4})), y = graph.input(floats({3}, {1, 2, 3}));
  const std::string line = "operators_test.cpp:" + std::to_string(__LINE__ + 1);
  const std::string text = expect_error(Errc::shape_mismatch, [&] { x* y; });
  CHECK(text.find(line) != std::string::npos);
  CHECK(text.find("f32[d=2] and f32[3]") != std::string::npos);
}

TEST_CASE("operators: tensors of two graphs do not mix") {
  ValuedGraph first, second;
  const Tensor x = first.input(floats({1}, {1})), y = second.input(floats({1}, {1}));
  expect_error(Errc::context_mismatch, [&] { x + y; });
  expect_error(Errc::stale_handle, [&] { x + Tensor(); });
}

}  // namespace
}  // namespace tenon::testing
