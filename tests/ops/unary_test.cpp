#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/unary.hpp>

#include <limits>

namespace tenon::testing {
namespace {

/// f applied to one number, as the op's own formula has it.
template <class Op>
double at(double x) {
  return elements(apply(Op{}, {HostBuffer::of<double>(Shape({1}, f64), {x})}))[0];
}

TEST_CASE("unary: a formula per op") {
  CHECK(at<Neg>(1.5) == -1.5);
  CHECK(at<Abs>(-1.5) == 1.5);
  CHECK(at<Sign>(-7) == -1);
  CHECK(at<Square>(-3) == 9);
  CHECK(at<Sqrt>(2) == Approx(1.4142135623730951));
  CHECK(at<Rsqrt>(4) == 0.5);
  CHECK(at<Reciprocal>(4) == 0.25);
  CHECK(at<Exp>(1) == Approx(2.718281828459045));
  CHECK(at<Exp2>(10) == 1024);
  CHECK(at<Expm1>(1e-10) == Approx(1.00000000005e-10).epsilon(1e-14));
  CHECK(at<Log>(10) == Approx(2.302585092994046));
  CHECK(at<Log2>(8) == 3);
  CHECK(at<Log1p>(1e-10) == Approx(9.9999999995e-11).epsilon(1e-14));
  CHECK(at<Sin>(1) == Approx(0.8414709848078965));
  CHECK(at<Cos>(1) == Approx(0.5403023058681398));
  CHECK(at<Tan>(1) == Approx(1.5574077246549023));
  CHECK(at<Asin>(0.5) == Approx(0.5235987755982989));
  CHECK(at<Acos>(0.5) == Approx(1.0471975511965979));
  CHECK(at<Atan>(1) == Approx(0.7853981633974483));
  CHECK(at<Tanh>(1) == Approx(0.7615941559557649));
  CHECK(at<Erf>(1) == Approx(0.8427007929497149));
  CHECK(at<Floor>(-1.5) == -2);
  CHECK(at<Ceil>(-1.5) == -1);
  CHECK(at<Trunc>(-1.5) == -1);
  CHECK(at<Round>(-1.5) == -2);
}

TEST_CASE("round: halves round to even, large numbers stay") {
  expect_equal(
      apply(Round{}, {floats({8}, {0.5f, 1.5f, 2.5f, -0.5f, -2.5f, 0.49999997f, 8388609, inf})}),
      {0, 2, 2, 0, -2, 0, 8388609, inf});
}

TEST_CASE("unary: NaN and infinities") {
  expect_equal(apply(Sign{}, {floats({4}, {nan, inf, -inf, 0})}), {nan, 1, -1, 0});
  expect_equal(apply(Sqrt{}, {floats({3}, {-1, inf, nan})}), {nan, inf, nan});
  expect_equal(apply(Rsqrt{}, {floats({2}, {0, inf})}), {inf, 0});
  expect_equal(apply(Log{}, {floats({3}, {0, -1, inf})}), {-inf, nan, inf});
  expect_equal(apply(Round{}, {floats({2}, {nan, -inf})}), {nan, -inf});
}

TEST_CASE("unary: integers wrap and do not trap") {
  constexpr std::int32_t lowest = std::numeric_limits<std::int32_t>::min();
  expect_equal(apply(Neg{}, {ints({3}, {5, -5, lowest})}), {-5, 5, double{lowest}});
  expect_equal(apply(Abs{}, {ints({2}, {-5, lowest})}), {5, double{lowest}});
  expect_equal(apply(Square{}, {ints({2}, {-3, 65537})}), {9, 131073});
  expect_equal(apply(Sign{}, {ints({3}, {-9, 0, 4})}), {-1, 0, 1});
  const HostBuffer bytes = HostBuffer::of<std::uint8_t>(Shape({2}, u8), {1, 0});
  expect_equal(apply(Neg{}, {bytes}), {255, 0});
  expect_equal(apply(Square{}, {longs({1}, {std::int64_t{1} << 32})}), {0});
}

TEST_CASE("unary: shapes, types and tags pass through") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    CHECK(apply(Exp{}, {floats({2, 1}, {0, 1}).to(dtype)}).shape().dtype() == dtype);
  }
  expect_type(apply(Exp{}, {floats({0, 3}, {})}).shape(), "f32[0, 3]");
  expect_type(apply(Exp{}, {floats({}, {0})}).shape(), "f32[]");
  expect_type(infer(Exp{}, {Shape({{"b", symbol("B")}, {"d", 3}}, f16)}), "f16[b=B, d=3]");
}

TEST_CASE("unary: C1 a dtype the op does not take") {
  expect_error(Errc::unsupported_dtype, [] { infer(Exp{}, {Shape({2}, i32)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Neg{}, {Shape({2}, boolean)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Neg{}, {Shape({32}, DType::q4_0)}); });
}

}  // namespace
}  // namespace tenon::testing
