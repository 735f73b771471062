#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/norm.hpp>

#include <cmath>

namespace tenon::testing {
namespace {

TEST_CASE("layer_norm: mean 0 and variance 1 in each row") {
  const HostBuffer x = floats({2, 4}, {1, 2, 3, 4, -1, -1, 1, 1});
  const double r = 1 / std::sqrt(1.25);
  expect_near(apply(LayerNorm{.eps = 0}, {x}),
              {-1.5 * r, -0.5 * r, 0.5 * r, 1.5 * r, -1, -1, 1, 1});
  const HostBuffer w = floats({4}, {1, 2, 3, 4}), b = floats({4}, {10, 20, 30, 40});
  expect_near(apply(LayerNorm{.eps = 0}, {x, w}), {-1.5 * r, -r, 1.5 * r, 6 * r, -1, -2, 3, 4});
  expect_near(apply(LayerNorm{.eps = 0}, {x, w, b}),
              {10 - 1.5 * r, 20 - r, 30 + 1.5 * r, 40 + 6 * r, 9, 18, 33, 44});
}

TEST_CASE("layer_norm: eps keeps a constant row finite") {
  expect_equal(apply(LayerNorm{}, {floats({3}, {7, 7, 7})}), {0, 0, 0});
}

TEST_CASE("rms_norm: root mean square 1 in each row") {
  const HostBuffer x = floats({2, 2}, {3, 4, 0, 0});
  const double r = 1 / std::sqrt(12.5);
  expect_near(apply(RmsNorm{.eps = 0.0}, {floats({2}, {3, 4})}), {3 * r, 4 * r});
  expect_near(apply(RmsNorm{.eps = 0.5}, {x}), {3 / std::sqrt(13.), 4 / std::sqrt(13.), 0, 0});
  expect_near(apply(RmsNorm{.eps = 0.5}, {x, floats({2}, {2, 0.5f})}),
              {6 / std::sqrt(13.), 2 / std::sqrt(13.), 0, 0});
}

TEST_CASE("norms: parameters of another floating type, zero rows, zero columns") {
  const HostBuffer w = floats({2}, {2, 2}).to(f32);
  const HostBuffer y = apply(RmsNorm{.eps = 0}, {floats({1, 2}, {1, 1}).to(bf16), w});
  CHECK(y.shape().dtype() == bf16);
  expect_equal(y, {2, 2});
  expect_type(apply(LayerNorm{}, {floats({0, 2}, {}), w}).shape(), "f32[0, 2]");
  expect_type(apply(RmsNorm{}, {floats({2, 0}, {})}).shape(), "f32[2, 0]");
}

TEST_CASE("norms: tags and symbols stay") {
  const Shape x({{"s", symbol("S")}, {"d", symbol("D")}}, f16);
  expect_type(infer(RmsNorm{}, {x, Shape({{"d", 64}}, f32)}), "f16[s=S, d=D]");
}

TEST_CASE("norms: C1 a scalar") {
  expect_error(Errc::bad_shape, [] { infer(LayerNorm{}, {Shape({}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(RmsNorm{}, {Shape({}, f32)}); });
}
TEST_CASE("norms: C2 a dtype that is not floating") {
  expect_error(Errc::unsupported_dtype, [] { infer(LayerNorm{}, {Shape({2}, i32)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(RmsNorm{}, {Shape({2}, f32), Shape({2}, i8)}); });
}
TEST_CASE("norms: C3 parameters that do not fit") {
  const Shape x({{"s", 3}, {"d", 4}}, f32);
  expect_error(Errc::shape_mismatch, [&] { infer(RmsNorm{}, {x, Shape({3}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(RmsNorm{}, {x, Shape({1, 4}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [&] { infer(LayerNorm{}, {x, Shape({4}, f32), Shape({5}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(LayerNorm{}, {x, Shape({{"s", 4}}, f32)}); });
}
TEST_CASE("norms: C4 eps") {
  expect_error(Errc::bad_attribute, [] { infer(LayerNorm{.eps = -1}, {Shape({2}, f32)}); });
  expect_error(Errc::bad_attribute, [] { infer(RmsNorm{.eps = std::nan("")}, {Shape({2}, f32)}); });
}

TEST_CASE("norms: builders") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({1, 2}, {-1, 1}));
  const Tensor w = graph.input(floats({2}, {2, 3})), b = graph.input(floats({2}, {1, 1}));
  expect_equal(graph.value(layer_norm(x, 0.0)), {-1, 1});
  expect_equal(graph.value(layer_norm(x, w, 0.0)), {-2, 3});
  expect_equal(graph.value(layer_norm(x, w, b, 0.0)), {-1, 4});
  expect_equal(graph.value(rms_norm(x, 0.0)), {-1, 1});
  expect_equal(graph.value(rms_norm(x, w, 0.0)), {-2, 3});
}

}  // namespace
}  // namespace tenon::testing
