#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/concat.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("concat: one after the other along an axis") {
  const HostBuffer a = ints({2, 1}, {1, 2}), b = ints({2, 2}, {3, 4, 5, 6}),
                   none = ints({2, 0}, {});
  const HostBuffer y = apply(Concat{.axis = 1}, {a, none, b});
  expect_type(y.shape(), "i32[2, 3]");
  expect_equal(y, {1, 3, 4, 2, 5, 6});
  expect_equal(apply(Concat{.axis = 0}, {b, b}), {3, 4, 5, 6, 3, 4, 5, 6});
  expect_equal(apply(Concat{.axis = 0}, {a}), {1, 2});
}

TEST_CASE("concat: tags of any input, sizes as far as they are known") {
  const Shape a({{"s", symbol("S")}, 4}, f32), b({2, {"d", 4}}, f32), c({3, symbol("D")}, f32);
  expect_type(infer(Concat{.axis = 0}, {a, b}), "f32[s=_, d=4]");
  expect_type(infer(Concat{.axis = 0}, {b, c}), "f32[5, d=4]");
  expect_type(infer(Concat{.axis = 1}, {a, b}), "f32[s=2, d=8]");
}

TEST_CASE("concat: block types, rows and columns") {
  Random random(2);
  const HostBuffer a = random.uniform(Shape({2, 32}, f32)), b = random.uniform(Shape({2, 64}, f32));
  const HostBuffer blocks = apply(Concat{.axis = 1}, {a.to(DType::q8_0), b.to(DType::q8_0)});
  expect_type(blocks.shape(), "q8_0[2, 96]");
  expect_close(blocks.to(f32).slice(1, 0, 32).contiguous(), a.to(DType::q8_0).to(f32), 0, 0);
  expect_close(blocks.to(f32).slice(1, 32, 96).contiguous(), b.to(DType::q8_0).to(f32), 0, 0);
  expect_type(infer(Concat{.axis = 0}, {Shape({2, 32}, DType::q4_0), Shape({3, 32}, DType::q4_0)}),
              "q4_0[5, 32]");
}

TEST_CASE("concat: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] { infer(Concat{.axis = 1}, {Shape({2}, f32)}); });
  expect_error(Errc::axis_out_of_range,
               [] { infer(Concat{.axis = 0}, {Shape({}, f32), Shape({}, f32)}); });
}
TEST_CASE("concat: C2 types or ranks differ") {
  expect_error(Errc::shape_mismatch, [] { infer(Concat{}, {Shape({2}, f32), Shape({2}, f16)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(Concat{}, {Shape({2}, f32), Shape({2, 1}, f32)}); });
}
TEST_CASE("concat: C3 sizes or tags differ") {
  expect_error(Errc::shape_mismatch,
               [] { infer(Concat{}, {Shape({2, 3}, f32), Shape({2, 4}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(Concat{}, {Shape({{"a", 2}}, f32), Shape({{"b", 2}}, f32)}); });
}

TEST_CASE("concat and stack: builders") {
  ValuedGraph graph;
  const Tensor a = graph.input(floats({{"d", 2}}, {1, 2})),
               b = graph.input(floats({{"d", 2}}, {3, 4}));
  expect_equal(graph.value(concat({a, b}, "d")), {1, 2, 3, 4});
  expect_type(stack({a, b}, 0, "b").shape(), "f32[b=2, d=2]");
  expect_equal(graph.value(stack({a, b})), {1, 2, 3, 4});
  expect_equal(graph.value(stack({a, b}, -1)), {1, 3, 2, 4});
  expect_error(Errc::bad_argument, [] { concat({}, 0); });
  expect_error(Errc::bad_argument, [] { stack({}); });
  expect_error(Errc::shape_mismatch, [&] { stack({a, graph.input(floats({1, 2}, {1, 2}))}); });
  expect_error(Errc::axis_out_of_range, [&] { concat({a, b}, "s"); });
}

}  // namespace
}  // namespace tenon::testing
