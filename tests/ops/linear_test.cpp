#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/linear.hpp>

namespace tenon::testing {
namespace {

const Linear plain_linear{};
const Linear linear_with_bias{.has_bias = true};
const Linear with_residual{.has_residual = true};
const Linear with_both{.has_bias = true, .has_residual = true};

TEST_CASE("linear: rows times the rows of w") {
  const HostBuffer x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const HostBuffer w = floats({2, 3}, {1, 0, -1, 2, 1, 0});
  expect_equal(apply(plain_linear, {x, w}), {-2, 4, -2, 13});
  expect_equal(apply(linear_with_bias, {x, w, floats({2}, {10, 20})}), {8, 24, 8, 33});
  const HostBuffer residual = floats({2, 2}, {100, 200, 300, 400});
  expect_equal(apply(with_residual, {x, w, residual}), {98, 204, 298, 413});
  expect_equal(apply(with_both, {x, w, floats({2}, {10, 20}), residual}), {108, 224, 308, 433});
}

TEST_CASE("linear: a vector, and more leading axes") {
  const HostBuffer w = floats({2, 2}, {1, 2, 3, 4});
  expect_equal(apply(plain_linear, {floats({2}, {1, 1}), w}), {3, 7});
  const HostBuffer y = apply(plain_linear, {floats({2, 1, 2}, {1, 0, 0, 1}), w});
  expect_type(y.shape(), "f32[2, 1, 2]");
  expect_equal(y, {1, 3, 2, 4});
}

TEST_CASE("linear: a vector's bias and residual may be overwritten") {
  const HostBuffer w = floats({2, 1}, {1, 2});
  expect_equal(apply(with_both, {floats({1}, {3}), w, floats({2}, {10, 20}), floats({2}, {1, 2})}),
               {14, 28});
}

TEST_CASE("linear: the output has the dtype of x, whatever w and bias are") {
  for (const DType rows_type : {f16, bf16, f32, f64}) {
    for (const DType weights_type : {f16, bf16, f32, f64}) {
      const HostBuffer x = floats({1, 2}, {0.5f, 2}).to(rows_type);
      const HostBuffer w = floats({1, 2}, {4, 0.25f}).to(weights_type);
      const HostBuffer y = apply(linear_with_bias, {x, w, floats({1}, {1}).to(weights_type)});
      CHECK(y.shape().dtype() == rows_type);
      expect_equal(y, {3.5});
    }
  }
}

TEST_CASE("linear: weights of every block type act as their decoded values") {
  Random random;
  for (const DType dtype :
       {DType::q4_0,   DType::q4_1,  DType::q5_0,    DType::q5_1,  DType::q8_0,  DType::q2_k,
        DType::q3_k,   DType::q4_k,  DType::q5_k,    DType::q6_k,  DType::q8_k,  DType::iq4_nl,
        DType::iq4_xs, DType::iq2_s, DType::iq3_xxs, DType::iq3_s, DType::tq1_0, DType::tq2_0,
        DType::mxfp4,  DType::nvfp4, DType::q1_0,    DType::q2_0}) {
    INFO(name(dtype));
    const HostBuffer x = random.uniform(Shape({3, 512}, f32));
    const HostBuffer w = random.uniform(Shape({5, 512}, f32)).to(dtype);
    expect_close(apply(plain_linear, {x, w}), apply(plain_linear, {x, w.to(f32)}), 0, 0);
  }
}

TEST_CASE("linear: sums in double, so that large terms cancel") {
  const HostBuffer x = floats({3}, {1e8f, 1, -1e8f});
  expect_equal(apply(plain_linear, {x, floats({1, 3}, {1, 1, 1})}), {1});
}

TEST_CASE("linear: sizes of zero") {
  expect_equal(
      apply(linear_with_bias, {floats({2, 0}, {}), floats({3, 0}, {}), floats({3}, {1, 2, 3})}),
      {1, 2, 3, 1, 2, 3});
  expect_equal(apply(plain_linear, {floats({1, 0}, {}), floats({2, 0}, {})}), {0, 0});
  expect_type(apply(plain_linear, {floats({0, 2}, {}), floats({3, 2}, {1, 2, 3, 4, 5, 6})}).shape(),
              "f32[0, 3]");
  expect_type(apply(plain_linear, {floats({3, 2}, {1, 2, 3, 4, 5, 6}), floats({0, 2}, {})}).shape(),
              "f32[3, 0]");
}

TEST_CASE("linear: tags and symbols pass through") {
  const Shape x({{"b", 2}, {"s", symbol("S")}, {"d", 8}}, f32);
  expect_type(infer(plain_linear, {x, Shape({{"out", 4}, {"d", 8}}, f32)}), "f32[b=2, s=S, out=4]");
  expect_type(infer(plain_linear, {x, Shape({4, 8}, f32)}), "f32[b=2, s=S, 4]");
  expect_type(
      infer(with_residual, {x, Shape({4, 8}, f32), Shape({{"b", 2}, {"s", 3}, {"e", 4}}, f32)}),
      "f32[b=2, s=3, e=4]");
}

const Shape rows_type({2, 8}, f32);
const Shape weights_type({4, 8}, f32);

TEST_CASE("linear: C1 number of inputs") {
  expect_error(Errc::bad_argument, [] { infer(linear_with_bias, {rows_type, weights_type}); });
  expect_error(Errc::bad_argument,
               [] { infer(plain_linear, {rows_type, weights_type, Shape({4}, f32)}); });
}

TEST_CASE("linear: C2 dtypes") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(plain_linear, {Shape({2, 8}, i32), weights_type}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(plain_linear, {rows_type, Shape({4, 8}, i8)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(linear_with_bias, {rows_type, weights_type, Shape({4}, i32)}); });
}

TEST_CASE("linear: C3 ranks") {
  expect_error(Errc::shape_mismatch, [] { infer(plain_linear, {Shape({}, f32), weights_type}); });
  expect_error(Errc::shape_mismatch, [] { infer(plain_linear, {rows_type, Shape({8}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(linear_with_bias, {rows_type, weights_type, Shape({1, 4}, f32)}); });
}

TEST_CASE("linear: C4 contracted axes that differ are shown") {
  const std::string text = expect_error(
      Errc::shape_mismatch, [] { infer(plain_linear, {rows_type, Shape({4, 7}, f32)}); });
  CHECK(text.find("x f32[2, 8], w f32[4, 7]") != std::string::npos);
  expect_error(Errc::shape_mismatch, [] {
    infer(plain_linear, {Shape({2, {"d", 8}}, f32), Shape({4, {"in", 8}}, f32)});
  });
}

TEST_CASE("linear: C5 bias of another size") {
  expect_error(Errc::shape_mismatch,
               [] { infer(linear_with_bias, {rows_type, weights_type, Shape({3}, f32)}); });
}

TEST_CASE("linear: C6 residual of another type") {
  expect_error(Errc::shape_mismatch,
               [] { infer(with_residual, {rows_type, weights_type, Shape({2, 3}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(with_residual, {rows_type, weights_type, Shape({4}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(with_residual, {rows_type, weights_type, Shape({2, 4}, f16)}); });
}

TEST_CASE("linear: C7 one tag twice") {
  expect_error(Errc::shape_mismatch,
               [] { infer(plain_linear, {Shape({{"d", 2}, 8}, f32), Shape({{"d", 4}, 8}, f32)}); });
}

}  // namespace
}  // namespace tenon::testing
