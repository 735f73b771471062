#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/grad.hpp>
#include <tenon/ops/cumulative.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/reduce.hpp>

namespace tenon::testing {
namespace {

template <class Op>
Op along(std::int64_t axis) {
  Op op;
  op.axis = axis;
  return op;
}

TEST_CASE("cumulative: running products, maxima and minima") {
  const HostBuffer x = floats({2, 3}, {1, 3, 2, -4, 5, 6});
  expect_equal(apply(along<Cumprod>(1), {x}), {1, 3, 6, -4, -20, -120});
  expect_equal(apply(along<Cumprod>(0), {x}), {1, 3, 2, -4, 15, 12});
  expect_equal(apply(along<Cummax>(1), {x}), {1, 3, 3, -4, 5, 6});
  expect_equal(apply(along<Cummin>(1), {x}), {1, 1, 1, -4, -4, -4});
  expect_type(apply(along<Cummax>(1), {floats({2, 0}, {})}).shape(), "f32[2, 0]");
}

TEST_CASE("cumulative: a NaN stays") {
  const HostBuffer x = floats({4}, {1, nan, 2, 3});
  expect_equal(apply(Cumprod{}, {x}), {1, nan, nan, nan});
  expect_equal(apply(Cummax{}, {x}), {1, nan, nan, nan});
  expect_equal(apply(Cummin{}, {x}), {1, nan, nan, nan});
}

TEST_CASE("cumulative: products of whole numbers in i64, modulo 2^64") {
  const HostBuffer y =
      apply(Cumprod{}, {HostBuffer::of<std::int8_t>(Shape({3}, i8), {100, 100, -1})});
  expect_type(y.shape(), "i64[3]");
  expect_equal(y, {100, 10000, -10000});
  constexpr std::int64_t half = std::int64_t{1} << 62;
  CHECK(apply(Cumprod{}, {longs({3}, {half, 2, 2})}).values<std::int64_t>()[2] == 0);
  expect_type(apply(Cummax{}, {HostBuffer::of<std::int8_t>(Shape({1}, i8), {1})}).shape(), "i8[1]");
}

TEST_CASE("cumulative: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] { infer(along<Cumprod>(1), {Shape({2}, f32)}); });
}
TEST_CASE("cumulative: C2 block types, and extremes of bool") {
  expect_error(Errc::unsupported_dtype, [] { infer(Cumprod{}, {Shape({32}, DType::q8_0)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Cummax{}, {Shape({2}, boolean)}); });
}

TEST_CASE("cumulative: builders, and gradients at zeros and equals") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 1}, {"s", 4}}, {2, 0, 3, 0}));
  expect_equal(graph.value(cumprod(x, "s")), {2, 0, 0, 0});
  // y = [a, ab, abc, abcd]: dL/da = 1 + b + bc + bcd, dL/db = a + ac + acd, ..
  expect_equal(graph.value(grad(sum(cumprod(x, "s")), x)), {1, 8, 0, 0});
  // d2L/da db = 1 + c + cd, d2L/db dc = a + ad, d2L/db dd = ac, d2L/da dc = b + bd, d2L/da dd = bc,
  // d2L/dc dd = ab: rows of the Hessian times 1, 10, 100, 1000.
  const Tensor toward = graph.input(floats({4}, {1, 10, 100, 1000}));
  const Tensor along = sum(grad(sum(cumprod(x, "s")), x) * toward);
  expect_equal(graph.value(grad(along, x)), {40, 6204, 20, 60});
  const Tensor z = graph.input(floats({4}, {1, 3, 3, 2}));
  expect_equal(graph.value(grad(sum(cummax(z)), z)), {1, 1, 2, 0});
  expect_equal(graph.value(cummin(z)), {1, 1, 1, 1});
}

}  // namespace
}  // namespace tenon::testing
