#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/arg_reduce.hpp>
#include <tenon/ops/statistics.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("statistics: reductions of a matrix") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 2}, {"d", 2}}, {3, -4, 0, 2}));
  expect_near(graph.value(norm(x, 2, "d")), {5, 2});
  expect_near(graph.value(norm(x, 1, "d")), {7, 2});
  expect_near(graph.value(norm(x, inf, "d", true)), {4, 2});
  expect_near(graph.value(norm(x, -inf, "d")), {3, 0});
  expect_near(graph.value(norm(x, 0, "d")), {2, 1});
  expect_near(graph.value(norm(x, 3)), {4.626065});
  expect_near(graph.value(norm(x, -1, "d")), {12.0 / 7, 0});
  expect_near(graph.value(variance(x, "d")), {24.5, 2});
  expect_near(graph.value(variance(x, "d", 0)), {12.25, 1});
  expect_near(graph.value(standard_deviation(x, "d", 0)), {3.5, 1});
  expect_near(graph.value(variance(x, "d", 2)), {inf, inf});
  expect_near(graph.value(logsumexp(x)), {3.349655});
  expect_type(norm(x, 2, "d", true).shape(), "f32[b=2, d=1]");
  const Tensor counts = count_nonzero(x, "b");
  expect_type(counts.shape(), "i64[d=2]");
  expect_equal(graph.value(counts), {1, 2});
}

TEST_CASE("statistics: sizes that are not known yet, and halves") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({{"b", symbol("B")}, {"d", 2}}, f16));
  expect_type(variance(x, "b").shape(), "f16[d=2]");
  expect_type(logsumexp(x, "d").shape(), "f16[b=B]");
  expect_type(argmax(x, "b", Ties::last).shape(), "i32[d=2]");
}

TEST_CASE("statistics: gradients, where they are easily lost too") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2}, {3, -4})), zeros = graph.input(floats({2}, {0, 0}));
  expect_near(graph.value(grad(norm(x), x)), {0.6, -0.8});
  expect_near(graph.value(grad(norm(x, 1), x)), {1, -1});
  expect_near(graph.value(grad(norm(x, inf), x)), {0, -1});
  expect_near(graph.value(grad(norm(x, 3), x)), {0.444851, -0.790848}, 1e-4);
  for (const double p : {0.5, 1.0, 1.5, 2.0, 3.0})
    expect_equal(graph.value(grad(norm(zeros, p), zeros)), {0, 0});
  const Tensor one = graph.input(floats({2}, {0, 4}));
  expect_near(graph.value(grad(norm(one, 0.5), one)), {0, 1});
  expect_near(graph.value(grad(logsumexp(x), x)), {0.9990889, 0.0009110512});
  expect_near(graph.value(grad(variance(x), x)), {7, -7});
  expect_near(graph.value(grad(standard_deviation(x, {}, 0), x)), {0.5, -0.5});
  expect_equal(graph.value(grad(standard_deviation(zeros), zeros)), {0, 0});
}

TEST_CASE("statistics: the last of equal extremes") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2, 4}, {1, 3, 3, 1, nan, 2, nan, 0}));
  expect_equal(graph.value(argmax(x, 1, Ties::first)), {1, 0});
  const Tensor last = argmax(x, 1, Ties::last, true, i64);
  expect_type(last.shape(), "i64[2, 1]");
  expect_equal(graph.value(last), {2, 2});
  expect_equal(graph.value(argmin(x, 1, Ties::last)), {3, 2});
}

TEST_CASE("statistics: errors") {
  ValuedGraph graph;
  const Tensor whole = graph.input(ints({2}, {1, 2})), x = graph.input(floats({2}, {1, 2}));
  const Tensor none = graph.input(floats({0}, {}));
  expect_error(Errc::unsupported_dtype, [&] { logsumexp(whole); });
  expect_error(Errc::unsupported_dtype, [&] { variance(whole); });
  expect_error(Errc::unsupported_dtype, [&] { standard_deviation(whole); });
  expect_error(Errc::unsupported_dtype, [&] { norm(whole); });
  expect_error(Errc::bad_argument, [&] { norm(x, nan); });
  expect_error(Errc::bad_shape, [&] { norm(none, inf); });
  expect_error(Errc::bad_shape, [&] { logsumexp(none); });
  expect_error(Errc::axis_out_of_range, [&] { variance(x, 1); });
  expect_equal(graph.value(norm(none)), {0});
  expect_equal(graph.value(variance(none)), {nan});
}

}  // namespace
}  // namespace tenon::testing
