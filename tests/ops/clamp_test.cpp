#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/clamp.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("clamp: limits reals, keeps NaN") {
  const Clamp op{.min = -1, .max = 2.5};
  expect_equal(apply(op, {floats({5}, {-inf, -1, 0, 3, nan})}), {-1, -1, 0, 2.5, nan});
  expect_type(infer(op, {Shape({{"d", symbol("D")}}, f16)}), "f16[d=D]");
}

TEST_CASE("clamp: integers stay within the interval") {
  expect_equal(apply(Clamp{.min = -1.5, .max = 2.5}, {ints({4}, {-9, -1, 2, 9})}), {-1, -1, 2, 2});
  expect_equal(apply(Clamp{.min = 1.5, .max = 2}, {ints({1}, {1})}), {2});
  expect_equal(apply(Clamp{.min = -3, .max = -1.5}, {ints({1}, {0})}), {-2});
  expect_equal(apply(Clamp{.max = 0}, {ints({2}, {std::numeric_limits<std::int32_t>::min(), 7})}),
               {-2147483648.0, 0});
}

TEST_CASE("clamp: C1 bool") {
  expect_error(Errc::unsupported_dtype, [] { infer(Clamp{}, {Shape({2}, boolean)}); });
}
TEST_CASE("clamp: C2 no interval") {
  expect_error(Errc::bad_attribute, [] { infer(Clamp{.min = 2, .max = 1}, {Shape({2}, f32)}); });
  expect_error(Errc::bad_attribute, [] { infer(Clamp{.min = double{nan}}, {Shape({2}, f32)}); });
}

TEST_CASE("clamp: builder") {
  ValuedGraph graph;
  expect_equal(graph.value(clamp(graph.input(floats({3}, {-1, 1, 3})), 0, 2)), {0, 1, 2});
}

}  // namespace
}  // namespace tenon::testing
