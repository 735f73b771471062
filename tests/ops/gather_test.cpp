#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/gather.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("gather: slices picked along an axis") {
  const HostBuffer x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const HostBuffer rows = apply(Gather{.axis = 0}, {x, ints({3}, {1, 0, 1})});
  expect_type(rows.shape(), "f32[3, 3]");
  expect_equal(rows, {4, 5, 6, 1, 2, 3, 4, 5, 6});
  expect_equal(apply(Gather{.axis = 1}, {x, longs({}, {2})}), {3, 6});
  expect_type(apply(Gather{.axis = 1}, {x, ints({2, 2}, {0, 1, 2, 0})}).shape(), "f32[2, 2, 2]");
  expect_type(apply(Gather{.axis = 0}, {x, ints({0}, {})}).shape(), "f32[0, 3]");
  expect_type(apply(Gather{.axis = 0}, {floats({2, 0}, {}), ints({1}, {1})}).shape(), "f32[1, 0]");
}

TEST_CASE("take_along: an element of each slice") {
  const HostBuffer x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expect_equal(apply(TakeAlong{.axis = 1}, {x, ints({2, 2}, {2, 0, 1, 1})}), {3, 1, 5, 5});
  expect_equal(apply(TakeAlong{.axis = 0}, {x, longs({1, 3}, {1, 0, 1})}), {4, 2, 6});
  expect_type(apply(TakeAlong{.axis = 1}, {x, ints({2, 0}, {})}).shape(), "f32[2, 0]");
}

TEST_CASE("gather and take_along: tags and sizes that are not known yet") {
  const Shape x({{"v", symbol("V")}, {"d", 4}}, f16);
  expect_type(infer(Gather{.axis = 0}, {x, Shape({{"b", symbol("B")}}, i32)}), "f16[b=B, d=4]");
  expect_type(infer(TakeAlong{.axis = 0}, {x, Shape({2, symbol("D")}, i32)}), "f16[v=2, d=4]");
}

TEST_CASE("gather and take_along: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range,
               [] { infer(Gather{.axis = 1}, {Shape({2}, f32), Shape({1}, i32)}); });
  expect_error(Errc::axis_out_of_range,
               [] { infer(TakeAlong{.axis = 1}, {Shape({2}, f32), Shape({1}, i32)}); });
}
TEST_CASE("gather and take_along: C2 indices of another type") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Gather{}, {Shape({2}, f32), Shape({1}, f32)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(TakeAlong{}, {Shape({2}, f32), Shape({1}, i8)}); });
}
TEST_CASE("gather and take_along: C3 block types") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Gather{}, {Shape({2, 32}, DType::q8_0), Shape({1}, i32)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(TakeAlong{}, {Shape({32}, DType::q8_0), Shape({1}, i32)}); });
}
TEST_CASE("gather: C4 rank, or a tag twice") {
  const Shape eight({1, 1, 1, 1, 1, 1, 1, 1}, f32);
  expect_error(Errc::bad_shape, [&] { infer(Gather{}, {eight, Shape({1, 1}, i32)}); });
  expect_error(Errc::bad_shape,
               [] { infer(Gather{}, {Shape({2, {"d", 2}}, f32), Shape({{"d", 1}}, i32)}); });
}
TEST_CASE("take_along: C4 ranks, sizes or tags differ") {
  const Shape x({2, {"d", 3}}, f32);
  expect_error(Errc::shape_mismatch, [&] { infer(TakeAlong{.axis = 1}, {x, Shape({2}, i32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(TakeAlong{.axis = 1}, {x, Shape({1, 3}, i32)}); });
  expect_error(Errc::shape_mismatch,
               [&] { infer(TakeAlong{.axis = 1}, {x, Shape({2, {"k", 1}}, i32)}); });
}

TEST_CASE("gather and take_along: an index out of range") {
  const HostBuffer x = floats({3}, {1, 2, 3});
  for (const std::int64_t index :
       {std::int64_t{-1}, std::int64_t{3}, std::numeric_limits<std::int64_t>::min()}) {
    for (const OpInstance& op : {OpInstance(Gather{}), OpInstance(TakeAlong{})}) {
      const HostBuffer inputs[] = {x, longs({1}, {index})};
      const std::string text = expect_error(Errc::out_of_range, [&] { run_reference(op, inputs); });
      CHECK(text.find(std::to_string(index)) != std::string::npos);
      CHECK(text.find("[0, 3)") != std::string::npos);
    }
  }
}

TEST_CASE("gather and take_along: builders") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"v", 2}, {"d", 2}}, {1, 2, 3, 4}));
  expect_equal(graph.value(gather(x, graph.input(ints({1}, {1})))), {3, 4});
  expect_equal(graph.value(gather(x, graph.input(ints({1}, {1})), "d")), {2, 4});
  expect_equal(graph.value(take_along(x, graph.input(ints({2, 1}, {1, 0})))), {2, 3});
}

}  // namespace
}  // namespace tenon::testing
