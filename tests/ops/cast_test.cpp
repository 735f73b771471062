#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/cast.hpp>

#include <limits>

namespace tenon::testing {
namespace {

HostBuffer cast_to(DType dtype, const HostBuffer& x) { return apply(Cast{.dtype = dtype}, {x}); }

TEST_CASE("cast: reals to integers truncate and saturate") {
  const HostBuffer x = floats({7}, {1.9f, -1.9f, 300, -300, inf, -inf, nan});
  expect_equal(cast_to(i8, x), {1, -1, 127, -128, 127, -128, 0});
  expect_equal(cast_to(u8, x), {1, 0, 255, 0, 255, 0, 0});
  CHECK(cast_to(i64, floats({1}, {1e30f})).values<std::int64_t>()[0] ==
        std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("cast: integers saturate, and are exact in i64") {
  expect_equal(cast_to(i8, ints({3}, {5, 1000, -1000})), {5, 127, -128});
  expect_equal(cast_to(u32, ints({2}, {-1, 7})), {0, 7});
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  CHECK(cast_to(i64, longs({1}, {big})).values<std::int64_t>()[0] == big);
}

TEST_CASE("cast: to floating types rounds to nearest even") {
  expect_equal(cast_to(f16, floats({3}, {2049, 2051, 65520})), {2048, 2052, inf});
  expect_equal(cast_to(bf16, floats({2}, {257, 259})), {256, 260});
  expect_equal(cast_to(f32, ints({1}, {16777217})), {16777216});
}

TEST_CASE("cast: bool is x != 0") {
  expect_equal(cast_to(boolean, floats({4}, {0, 0.25f, nan, -1})), {0, 1, 1, 1});
  expect_equal(cast_to(f32, cast_to(boolean, ints({2}, {0, 7}))), {0, 1});
}

TEST_CASE("cast: tags and symbols stay") {
  expect_type(infer(Cast{.dtype = f16}, {Shape({{"b", symbol("B")}, 0}, f32)}), "f16[b=B, 0]");
}

TEST_CASE("cast: C1 from a block type") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Cast{.dtype = f32}, {Shape({32}, DType::q4_0)}); });
}
TEST_CASE("cast: C2 to a block type") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Cast{.dtype = DType::q4_0}, {Shape({32}, f32)}); });
}

TEST_CASE("cast: the builder adds nothing for the same type") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({1}, {1.5f}));
  CHECK(cast(x, f32).op() == "input");
  expect_equal(graph.value(cast(x, i32)), {1});
}

}  // namespace
}  // namespace tenon::testing
