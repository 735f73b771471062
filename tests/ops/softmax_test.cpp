#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/log_softmax.hpp>
#include <tenon/ops/softmax.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("softmax: rows of a matrix") {
  const HostBuffer x = floats({2, 2}, {0, 0, 1, 0});
  expect_near(apply(Softmax{.axis = 1}, {x}), {0.5, 0.5, 0.73105858, 0.26894142});
  expect_near(apply(LogSoftmax{.axis = 1}, {x}),
              {-0.69314718, -0.69314718, -0.31326169, -1.31326169});
  expect_near(apply(Softmax{.axis = 0}, {x}), {0.26894142, 0.5, 0.73105858, 0.5});
}

TEST_CASE("softmax: far from zero") {
  expect_near(apply(Softmax{}, {floats({3}, {1000, 1000, -1000})}), {0.5, 0.5, 0});
  expect_near(apply(LogSoftmax{}, {floats({2}, {1000, 0})}), {0, -1000});
  expect_equal(apply(Softmax{}, {floats({2}, {0, -inf})}), {1, 0});
  expect_equal(apply(LogSoftmax{}, {floats({2}, {0, -inf})}), {0, -inf});
}

TEST_CASE("softmax: a NaN, +inf, or nothing but -inf makes the slice NaN") {
  const HostBuffer x = floats({3, 2}, {nan, 1, inf, 1, -inf, -inf});
  expect_equal(apply(Softmax{.axis = 1}, {x}), {nan, nan, nan, nan, nan, nan});
  expect_equal(apply(LogSoftmax{.axis = 1}, {x}), {nan, nan, nan, nan, nan, nan});
}

TEST_CASE("softmax: types, tags, zero sizes") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    expect_equal(apply(Softmax{}, {floats({2}, {3, 3}).to(dtype)}), {0.5, 0.5});
  }
  expect_type(infer(LogSoftmax{.axis = 1}, {Shape({{"b", symbol("B")}, {"v", 8}}, f16)}),
              "f16[b=B, v=8]");
  expect_type(apply(Softmax{.axis = 1}, {floats({2, 0}, {})}).shape(), "f32[2, 0]");
  expect_type(apply(LogSoftmax{.axis = 1}, {floats({0, 2}, {})}).shape(), "f32[0, 2]");
}

TEST_CASE("softmax: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] { infer(Softmax{.axis = 2}, {Shape({2, 2}, f32)}); });
  expect_error(Errc::axis_out_of_range,
               [] { infer(LogSoftmax{.axis = -1}, {Shape({2, 2}, f32)}); });
}
TEST_CASE("softmax: C2 integers") {
  expect_error(Errc::unsupported_dtype, [] { infer(Softmax{}, {Shape({2}, i32)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(LogSoftmax{}, {Shape({2}, i32)}); });
}

TEST_CASE("softmax: builders take the axis by index or tag") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 2}, {"v", 1}}, {0, 0}));
  expect_equal(graph.value(softmax(x)), {1, 1});
  expect_equal(graph.value(softmax(x, "b")), {0.5, 0.5});
  expect_near(graph.value(log_softmax(x, -2)), {-0.69314718, -0.69314718});
  expect_error(Errc::axis_out_of_range, [&] { log_softmax(x, "s"); });
}

}  // namespace
}  // namespace tenon::testing
