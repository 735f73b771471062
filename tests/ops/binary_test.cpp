#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/binary.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("binary: a formula per op") {
  const HostBuffer a = floats({4}, {7, -7, 7, -7}), b = floats({4}, {2, 2, -2, -2});
  expect_equal(apply(Add{}, {a, b}), {9, -5, 5, -9});
  expect_equal(apply(Sub{}, {a, b}), {5, -9, 9, -5});
  expect_equal(apply(Mul{}, {a, b}), {14, -14, -14, 14});
  expect_equal(apply(Div{}, {a, b}), {3.5, -3.5, -3.5, 3.5});
  expect_near(apply(Pow{}, {a, b}), {49, 49, 1 / 49., 1 / 49.});
  expect_equal(apply(Minimum{}, {a, b}), {2, -7, -2, -7});
  expect_equal(apply(Maximum{}, {a, b}), {7, 2, 7, -2});
  expect_equal(apply(Remainder{}, {a, b}), {1, 1, -1, -1});
  expect_equal(apply(Fmod{}, {a, b}), {1, -1, 1, -1});
}

TEST_CASE("binary: sizes are aligned at the innermost axis and 1 broadcasts") {
  const HostBuffer column = floats({2, 1}, {10, 20}), row = floats({3}, {1, 2, 3});
  const HostBuffer y = apply(Add{}, {column, row});
  expect_type(y.shape(), "f32[2, 3]");
  expect_equal(y, {11, 12, 13, 21, 22, 23});
  expect_equal(apply(Sub{}, {floats({}, {1}), row}), {0, -1, -2});
  expect_type(apply(Mul{}, {floats({0, 3}, {}), floats({1, 1}, {2})}).shape(), "f32[0, 3]");
  expect_type(apply(Mul{}, {floats({1, 3}, {1, 2, 3}), floats({0, 1}, {})}).shape(), "f32[0, 3]");
}

TEST_CASE("binary: tags of either operand, sizes as far as they are known") {
  expect_type(infer(Add{}, {Shape({{"b", symbol("B")}, {"d", 4}}, f32), Shape({4}, f32)}),
              "f32[b=B, d=4]");
  expect_type(infer(Add{}, {Shape({2, 1}, f32), Shape({{"b", 2}, {"d", 4}}, f32)}),
              "f32[b=2, d=4]");
  expect_type(infer(Add{}, {Shape({symbol("B")}, f32), Shape({1}, f32)}), "f32[B]");
  expect_type(infer(Add{}, {Shape({symbol("B")}, f32), Shape({5}, f32)}), "f32[5]");
  // Either may be 1 at run time, so that the size of the result is unknown.
  expect_type(infer(Add{}, {Shape({symbol("B")}, f32), Shape({symbol("C")}, f32)}), "f32[_]");
}

TEST_CASE("binary: integers wrap, and division by zero gives 0") {
  constexpr std::int32_t lowest = std::numeric_limits<std::int32_t>::min();
  const HostBuffer a = ints({5}, {7, -7, 7, lowest, lowest}), b = ints({5}, {2, 2, 0, -1, 1});
  expect_equal(apply(Div{}, {a, b}), {3, -3, 0, double{lowest}, double{lowest}});
  expect_equal(apply(Div{}, {ints({2}, {7, -7}), ints({2}, {-1, -2})}), {-7, 3});
  expect_equal(apply(Fmod{}, {a, b}), {1, -1, 0, 0, 0});
  expect_equal(apply(Remainder{}, {a, b}), {1, 1, 0, 0, 0});
  expect_equal(
      apply(Add{}, {ints({1}, {std::numeric_limits<std::int32_t>::max()}), ints({1}, {1})}),
      {double{lowest}});
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::min();
  CHECK(apply(Sub{}, {longs({1}, {far}), longs({1}, {1})}).values<std::int64_t>()[0] ==
        std::numeric_limits<std::int64_t>::max());
  CHECK(apply(Div{}, {longs({1}, {far}), longs({1}, {-1})}).values<std::int64_t>()[0] == far);
}

TEST_CASE("pow: integer exponents") {
  expect_equal(
      apply(Pow{}, {ints({7}, {2, -2, 0, 0, -1, 1, 3}), ints({7}, {10, 3, 0, -1, -3, -5, -1})}),
      {1024, -8, 1, 0, -1, 1, 0});
}

TEST_CASE("minimum and maximum: a NaN wins") {
  const HostBuffer a = floats({3}, {nan, 1, nan}), b = floats({3}, {1, nan, nan});
  expect_equal(apply(Minimum{}, {a, b}), {nan, nan, nan});
  expect_equal(apply(Maximum{}, {a, b}), {nan, nan, nan});
}

TEST_CASE("binary: C1 dtypes differ") {
  const std::string text =
      expect_error(Errc::shape_mismatch, [] { infer(Add{}, {Shape({2}, f32), Shape({2}, f16)}); });
  CHECK(text.find("f32[2] and f16[2]") != std::string::npos);
}

TEST_CASE("binary: C2 bool and block types") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Add{}, {Shape({2}, boolean), Shape({2}, boolean)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(Mul{}, {Shape({32}, DType::q8_0), Shape({32}, DType::q8_0)}); });
}

TEST_CASE("binary: C3 sizes or tags differ") {
  const std::string text = expect_error(
      Errc::shape_mismatch, [] { infer(Add{}, {Shape({{"b", 8}, 64}, f32), Shape({63}, f32)}); });
  CHECK(text.find("f32[b=8, 64] and f32[63]") != std::string::npos);
  expect_error(Errc::shape_mismatch,
               [] { infer(Add{}, {Shape({{"b", 8}}, f32), Shape({{"d", 8}}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(Add{}, {Shape({{"b", 2}, 1}, f32), Shape({{"b", 8}}, f32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Add{}, {Shape({0}, f32), Shape({2}, f32)}); });
}

TEST_CASE("binary: builders name the user's line and both operands") {
  ValuedGraph graph;
  const Tensor a = graph.input(floats({2}, {1, 2})), b = graph.input(floats({3}, {1, 2, 3}));
  const std::string line = std::to_string(__LINE__ + 1);
  const std::string text = expect_error(Errc::shape_mismatch, [&] { maximum(a, b); });
  CHECK(text.find("binary_test.cpp:" + line) != std::string::npos);
  expect_equal(graph.value(pow(a, a)), {1, 4});
}

}  // namespace
}  // namespace tenon::testing
