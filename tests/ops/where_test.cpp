#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/where.hpp>

namespace tenon::testing {
namespace {

HostBuffer flags(std::initializer_list<Axis> axes, std::initializer_list<bool> values) {
  return HostBuffer::of<bool>(Shape(axes, boolean), values);
}

TEST_CASE("where: three operands broadcast") {
  const HostBuffer c = flags({2, 1}, {true, false});
  const HostBuffer y = apply(Where{}, {c, floats({3}, {1, 2, 3}), floats({}, {-1})});
  expect_type(y.shape(), "f32[2, 3]");
  expect_equal(y, {1, 2, 3, -1, -1, -1});
}

TEST_CASE("where: bits are copied, whatever the type") {
  const std::int64_t big = (std::int64_t{1} << 62) + 1;
  CHECK(apply(Where{}, {flags({1}, {true}), longs({1}, {big}), longs({1}, {0})})
            .values<std::int64_t>()[0] == big);
  expect_equal(apply(Where{}, {flags({1}, {false}), floats({1}, {0}), floats({1}, {nan})}), {nan});
  expect_type(infer(Where{}, {Shape({{"b", 2}, 1}, boolean), Shape({{"d", 3}}, i8), Shape({}, i8)}),
              "i8[b=2, d=3]");
}

TEST_CASE("where: C1 the condition is not bool") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Where{}, {Shape({2}, i32), Shape({2}, f32), Shape({2}, f32)}); });
}
TEST_CASE("where: C2 dtypes differ") {
  expect_error(Errc::shape_mismatch,
               [] { infer(Where{}, {Shape({2}, boolean), Shape({2}, f32), Shape({2}, f16)}); });
}
TEST_CASE("where: C3 block types") {
  expect_error(Errc::unsupported_dtype, [] {
    infer(Where{}, {Shape({1}, boolean), Shape({32}, DType::q4_0), Shape({32}, DType::q4_0)});
  });
}
TEST_CASE("where: C4 sizes differ") {
  expect_error(Errc::shape_mismatch,
               [] { infer(Where{}, {Shape({2}, boolean), Shape({3}, f32), Shape({3}, f32)}); });
}

TEST_CASE("where: builder") {
  ValuedGraph graph;
  const Tensor c = graph.input(flags({2}, {true, false}));
  expect_equal(
      graph.value(where(c, graph.input(floats({2}, {1, 2})), graph.input(floats({2}, {3, 4})))),
      {1, 4});
}

}  // namespace
}  // namespace tenon::testing
