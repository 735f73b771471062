#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/cumsum.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("cumsum: running sums") {
  const HostBuffer x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expect_equal(apply(Cumsum{.axis = 1}, {x}), {1, 3, 6, 4, 9, 15});
  expect_equal(apply(Cumsum{.axis = 0}, {x}), {1, 2, 3, 5, 7, 9});
  expect_type(apply(Cumsum{.axis = 1}, {floats({2, 0}, {})}).shape(), "f32[2, 0]");
}

TEST_CASE("cumsum: integers and bool count in i64") {
  const HostBuffer y =
      apply(Cumsum{}, {HostBuffer::of<std::int8_t>(Shape({3}, i8), {100, 100, -1})});
  expect_type(y.shape(), "i64[3]");
  expect_equal(y, {100, 200, 199});
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(apply(Cumsum{}, {longs({2}, {most, 1})}).values<std::int64_t>()[1] ==
        std::numeric_limits<std::int64_t>::min());
  expect_equal(apply(Cumsum{}, {HostBuffer::of<bool>(Shape({3}, boolean), {true, false, true})}),
               {1, 1, 2});
}

TEST_CASE("cumsum: small types round once per element, not once per sum") {
  const HostBuffer x = floats({4}, {256, 1, 1, 0}).to(bf16);
  expect_equal(apply(Cumsum{}, {x}), {256, 256, 258, 258});
}

TEST_CASE("cumsum: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] { infer(Cumsum{.axis = 1}, {Shape({2}, f32)}); });
}
TEST_CASE("cumsum: C2 block types") {
  expect_error(Errc::unsupported_dtype, [] { infer(Cumsum{}, {Shape({32}, DType::q8_0)}); });
}

TEST_CASE("cumsum: builder") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 2}, {"s", 2}}, {1, 2, 3, 4}));
  expect_equal(graph.value(cumsum(x)), {1, 3, 3, 7});
  expect_type(cumsum(x, "b").shape(), "f32[b=2, s=2]");
}

}  // namespace
}  // namespace tenon::testing
