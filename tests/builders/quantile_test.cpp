#include "support/literals.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/interpolation.hpp>
#include <tenon/ops/quantile.hpp>
#include <tenon/ops/statistics.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

// Against NumPy: python/tests/package/test_statistics.py.

TEST_CASE("quantile: places between elements") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2, 4}, {4, 1, 3, 2, 10, 40, 30, 20}));
  expect_equal(graph.value(quantile(x, 0.5, -1)), {2.5, 25});
  expect_equal(graph.value(quantile(x, 0.5, -1, {.method = QuantileMethod::lower})), {2, 20});
  expect_equal(graph.value(quantile(x, 0.5, -1, {.method = QuantileMethod::higher})), {3, 30});
  expect_equal(graph.value(quantile(x, 0.5, -1, {.method = QuantileMethod::nearest})), {3, 30});
  const std::array<double, 2> ends{0, 1};
  const Tensor both = quantile(x, ends, 1, {.keep_dims = true});
  expect_type(both.shape(), "f32[2, 2, 1]");
  expect_equal(graph.value(both), {1, 10, 4, 40});
  expect_equal(graph.value(median(x)), {7});
}
TEST_CASE("quantile: NaN") {
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2, 3}, {unknown, 1, 2, 3, 4, 5}));
  CHECK(std::isnan(elements(graph.value(median(x, -1)))[0]));
  expect_equal(graph.value(median(x, -1, {.ignore_nan = true})), {1.5, 4});
  expect_equal(graph.value(nansum(x, -1)), {3, 12});
  expect_equal(graph.value(nanmean(x, -1)), {1.5, 4});
}
TEST_CASE("quantile: what is refused") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({0, 3}, {}));
  const Tensor ids = graph.input(HostBuffer::of<std::int64_t>(Shape({1}, i64), {0}));
  expect_error(Errc::bad_argument, [&] { quantile(x, -0.1); });
  expect_error(Errc::bad_argument, [&] { quantile(x, std::span<const double>()); });
  expect_error(Errc::bad_shape, [&] { quantile(x, 0.5, 0); });
  expect_error(Errc::unsupported_dtype, [&] { median(ids); });
}
TEST_CASE("histogram, interp, trapezoid, cdist: examples") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({5}, {0, 1, 2, 3, 4}));
  const HistogramResult halves = histogram(x, 2);
  expect_equal(graph.value(halves.counts), {2, 3});
  expect_equal(graph.value(halves.edges), {0, 2, 4});
  expect_near(graph.value(histogram(x, 2, {.low = 1, .high = 3, .density = true}).counts),
              {1.0 / 3, 2.0 / 3});
  const Tensor xs = graph.input(floats({2}, {0, 2})), ys = graph.input(floats({2}, {10, 20}));
  expect_equal(graph.value(interp(x, xs, ys, {}, 0.0)), {10, 15, 20, 0, 0});
  expect_equal(graph.value(trapezoid(x)), {8});
  expect_equal(graph.value(trapezoid(ys, xs)), {30});
  const Tensor a = graph.input(floats({1, 2}, {0, 0})),
               b = graph.input(floats({2, 2}, {3, 4, 0, 1}));
  expect_equal(graph.value(cdist(a, b)), {5, 1});
  expect_equal(graph.value(cov(b)), {0.5, 0.5, 0.5, 0.5});
  expect_error(Errc::bad_argument, [&] { histogram(x, 0); });
  expect_error(Errc::shape_mismatch, [&] { histogram(x, 2, {.weights = xs}); });
  expect_error(Errc::shape_mismatch, [&] { interp(x, xs, x); });
  expect_error(Errc::shape_mismatch, [&] { trapezoid(x, xs); });
  expect_error(Errc::bad_shape, [&] { cdist(x, b); });
  expect_error(Errc::bad_shape, [&] { cov(graph.input(floats({1, 1, 1}, {0}))); });
}

}  // namespace
}  // namespace tenon::testing
