#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/compare.hpp>

#include <array>

namespace tenon::testing {
namespace {

TEST_CASE("compare: six orders") {
  const HostBuffer a = floats({3}, {1, 2, 3}), b = floats({3}, {2, 2, 2});
  expect_equal(apply(Eq{}, {a, b}), {0, 1, 0});
  expect_equal(apply(Ne{}, {a, b}), {1, 0, 1});
  expect_equal(apply(Lt{}, {a, b}), {1, 0, 0});
  expect_equal(apply(Le{}, {a, b}), {1, 1, 0});
  expect_equal(apply(Gt{}, {a, b}), {0, 0, 1});
  expect_equal(apply(Ge{}, {a, b}), {0, 1, 1});
}

TEST_CASE("compare: a NaN equals nothing and is in no order") {
  const HostBuffer a = floats({2}, {nan, nan}), b = floats({2}, {nan, 1});
  expect_equal(apply(Eq{}, {a, b}), {0, 0});
  expect_equal(apply(Ne{}, {a, b}), {1, 1});
  expect_equal(apply(Le{}, {a, b}), {0, 0});
  expect_equal(apply(Ge{}, {a, b}), {0, 0});
}

TEST_CASE("compare: i64 is exact beyond 2^53") {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  expect_equal(apply(Gt{}, {longs({1}, {big}), longs({1}, {big - 1})}), {1});
}

TEST_CASE("compare: bool, broadcasting, tags") {
  const bool values[] = {false, true};
  const HostBuffer flags = HostBuffer::of<bool>(Shape({2}, boolean), std::span<const bool>(values));
  expect_equal(apply(Lt{}, {flags.reshape(std::array<std::int64_t, 2>{2, 1}), flags}),
               {0, 1, 0, 0});
  expect_type(infer(Lt{}, {Shape({{"b", 2}, 1}, i8), Shape({{"d", 3}}, i8)}), "bool[b=2, d=3]");
}

TEST_CASE("compare: C1 dtypes differ") {
  expect_error(Errc::shape_mismatch, [] { infer(Eq{}, {Shape({2}, f32), Shape({2}, i32)}); });
}
TEST_CASE("compare: C2 block types") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Eq{}, {Shape({32}, DType::q4_0), Shape({32}, DType::q4_0)}); });
}
TEST_CASE("compare: C3 sizes differ") {
  expect_error(Errc::shape_mismatch, [] { infer(Eq{}, {Shape({2}, f32), Shape({3}, f32)}); });
}

TEST_CASE("compare: builders") {
  ValuedGraph graph;
  const Tensor a = graph.input(ints({2}, {1, 2})), b = graph.input(ints({2}, {2, 2}));
  expect_equal(graph.value(eq(a, b)), {0, 1});
  expect_equal(graph.value(ne(a, b)), {1, 0});
  expect_equal(graph.value(lt(a, b)), {1, 0});
  expect_equal(graph.value(le(a, b)), {1, 1});
  expect_equal(graph.value(gt(a, b)), {0, 0});
  expect_equal(graph.value(ge(a, b)), {0, 1});
}

}  // namespace
}  // namespace tenon::testing
