#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/glu.hpp>

#include <limits>

namespace tenon::testing {
namespace {

Glu glu_of(Name activation) { return Glu{.activation = activation}; }

TEST_CASE("glu: each activation times the other half") {
  const HostBuffer gate = floats({3}, {-1, 0, 2});
  const HostBuffer up = floats({3}, {2, 5, -3});
  expect_near(apply(glu_of("silu"), {gate, up}), {-0.53788284, 0, -5.28478247});
  expect_near(apply(glu_of("gelu"), {gate, up}), {-0.31731051, 0, -5.86349921});
  expect_near(apply(glu_of("gelu_tanh"), {gate, up}), {-0.31761602, 0, -5.86379308});
  expect_near(apply(glu_of("relu"), {gate, up}), {0, 0, -6});
  expect_near(apply(glu_of("sigmoid"), {gate, up}), {0.53788284, 2.5, -2.64239123});
}

TEST_CASE("glu: every floating type, any shape") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const HostBuffer y = apply(
        glu_of("relu"), {floats({1, 2}, {3, -1}).to(dtype), floats({1, 2}, {0.5f, 4}).to(dtype)});
    CHECK(y.shape().dtype() == dtype);
    expect_equal(y, {1.5, 0});
  }
  expect_type(apply(glu_of("silu"), {floats({0, 3}, {}), floats({0, 3}, {})}).shape(), "f32[0, 3]");
}

TEST_CASE("glu: a NaN stays a NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Name word : {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"}) {
    expect_equal(apply(glu_of(word), {floats({1}, {nan}), floats({1}, {1})}), {nan});
  }
}

TEST_CASE("glu: tags of either operand") {
  expect_type(
      infer(glu_of("silu"), {Shape({{"s", symbol("S")}, 4}, f32), Shape({3, {"f", 4}}, f32)}),
      "f32[s=3, f=4]");
}

TEST_CASE("glu: C1 an unknown activation") {
  const Shape type({2}, f32);
  expect_error(Errc::bad_attribute, [&] { infer(glu_of("swish"), {type, type}); });
  expect_error(Errc::bad_attribute, [&] { infer(Glu{}, {type, type}); });
}

TEST_CASE("glu: C2 integers") {
  const Shape type({2}, i32);
  expect_error(Errc::unsupported_dtype, [&] { infer(glu_of("relu"), {type, type}); });
}

TEST_CASE("glu: C3 operands that differ") {
  const Shape type({2, 4}, f32);
  expect_error(Errc::shape_mismatch, [&] { infer(glu_of("silu"), {type, Shape({2, 1}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(glu_of("silu"), {type, Shape({4}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(glu_of("silu"), {type, Shape({2, 4}, f16)}); });
  expect_error(Errc::shape_mismatch,
               [&] { infer(glu_of("silu"), {Shape({{"a", 2}}, f32), Shape({{"b", 2}}, f32)}); });
}

}  // namespace
}  // namespace tenon::testing
