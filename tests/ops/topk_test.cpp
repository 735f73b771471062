#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/topk.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("topk: largest first, the lower index among equals") {
  const HostBuffer x = floats({2, 4}, {1, 3, 3, 2, -1, -1, -5, -1});
  const HostBuffer y = apply(Topk{.k = 3, .axis = 1}, {x});
  expect_type(y.shape(), "i32[2, 3]");
  expect_equal(y, {1, 2, 3, 0, 1, 3});
  expect_equal(apply(Topk{.k = 1, .axis = 0}, {x}), {0, 0, 0, 0});
  expect_equal(apply(Topk{.k = 4, .axis = 1}, {x}), {1, 2, 3, 0, 0, 1, 3, 2});
}

TEST_CASE("topk: a NaN is larger than any number") {
  const float inf = std::numeric_limits<float>::infinity();
  expect_equal(apply(Topk{.k = 4}, {floats({5}, {1, nan, inf, nan, -inf})}), {1, 3, 2, 0});
}

TEST_CASE("topk: integers beyond 2^53, nothing to take, no slices") {
  const std::int64_t big = std::int64_t{1} << 53;
  expect_equal(apply(Topk{.k = 2}, {longs({3}, {big, big + 1, big})}), {1, 0});
  expect_type(apply(Topk{.k = 0}, {floats({2}, {1, 2})}).shape(), "i32[0]");
  expect_type(apply(Topk{.k = 2, .axis = 1}, {floats({0, 2}, {})}).shape(), "i32[0, 2]");
  expect_type(
      infer(Topk{.k = 5, .axis = 1}, {Shape({{"b", symbol("B")}, {"v", symbol("V")}}, f32)}),
      "i32[b=B, v=5]");
}

TEST_CASE("topk: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] { infer(Topk{.axis = 1}, {Shape({2}, f32)}); });
}
TEST_CASE("topk: C2 bool") {
  expect_error(Errc::unsupported_dtype, [] { infer(Topk{}, {Shape({2}, boolean)}); });
}
TEST_CASE("topk: C3 k") {
  expect_error(Errc::out_of_range, [] { infer(Topk{.k = 3}, {Shape({2}, f32)}); });
  expect_error(Errc::out_of_range, [] { infer(Topk{.k = -1}, {Shape({2}, f32)}); });
}
TEST_CASE("topk: C4 more elements than i32 counts") {
  expect_error(Errc::limit_exceeded,
               [] { infer(Topk{}, {Shape({(std::int64_t{1} << 31) + 1}, i8)}); });
}

TEST_CASE("topk: the builder gives values and indices") {
  ValuedGraph graph;
  const TopkResult top = topk(graph.input(floats({{"b", 1}, {"v", 3}}, {1, 3, 2})), 2, "v");
  expect_equal(graph.value(top.values), {3, 2});
  expect_equal(graph.value(top.indices), {1, 2});
  expect_type(top.values.shape(), "f32[b=1, v=2]");
}

}  // namespace
}  // namespace tenon::testing
