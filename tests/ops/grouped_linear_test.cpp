#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/grouped_linear.hpp>
#include <tenon/ops/linear.hpp>

namespace tenon::testing {
namespace {

const GroupedLinear plain{};
const GroupedLinear with_bias{.has_bias = true};

TEST_CASE("grouped_linear: each row by the weights of its group") {
  const HostBuffer x = floats({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const HostBuffer w = floats({3, 1, 2}, {1, 0, 0, 1, 10, 100});
  const HostBuffer group = ints({2, 2}, {0, 1, 2, 0});
  expect_equal(apply(plain, {x, w, group}), {1, 4, 650, 7});
  expect_equal(apply(with_bias, {x, w, group, floats({3, 1}, {0.5f, 0.25f, 1000})}),
               {1.5, 4.25, 1650, 7.5});
}

TEST_CASE("grouped_linear: choices that share a row") {
  const HostBuffer x = floats({2, 1, 2}, {1, 2, 3, 4});
  const HostBuffer w = floats({2, 2, 2}, {1, 0, 0, 1, 1, 1, 1, -1});
  const HostBuffer y = apply(plain, {x, w, ints({2, 3}, {0, 1, 1, 1, 0, 0})});
  expect_type(y.shape(), "f32[2, 3, 2]");
  expect_equal(y, {1, 2, 3, -1, 3, -1, 7, -1, 3, 4, 3, 4});
}

TEST_CASE("grouped_linear: a vector of groups") {
  const HostBuffer w = floats({2, 1, 1}, {2, 3});
  expect_equal(apply(plain, {floats({3, 1}, {1, 2, 3}), w, ints({3}, {1, 0, 1})}), {3, 4, 9});
  expect_equal(apply(plain, {floats({1, 1}, {5}), w, ints({2}, {1, 0})}), {15, 10});
}

TEST_CASE("grouped_linear: weights of block types act as their decoded values") {
  Random random;
  for (const DType dtype : {DType::q4_0, DType::q8_0, DType::q4_k, DType::q6_k, DType::mxfp4}) {
    INFO(name(dtype));
    const HostBuffer x = random.uniform(Shape({3, 1, 256}, f32));
    const HostBuffer w = random.uniform(Shape({4, 5, 256}, f32)).to(dtype);
    const HostBuffer group = ints({3, 2}, {3, 0, 1, 3, 0, 0});
    expect_close(apply(plain, {x, w, group}), apply(plain, {x, w.to(f32), group}), 0, 0);
  }
}

TEST_CASE("grouped_linear: sizes of zero") {
  expect_equal(apply(with_bias, {floats({1, 2, 0}, {}), floats({2, 1, 0}, {}), ints({1, 2}, {1, 0}),
                                 floats({2, 1}, {7, 8})}),
               {8, 7});
  expect_type(
      apply(plain, {floats({0, 2, 1}, {}), floats({2, 3, 1}, {1, 2, 3, 4, 5, 6}), ints({0, 2}, {})})
          .shape(),
      "f32[0, 2, 3]");
  expect_type(
      apply(plain, {floats({0, 1, 1}, {}), floats({0, 3, 1}, {}), ints({0, 4}, {})}).shape(),
      "f32[0, 4, 3]");
}

TEST_CASE("grouped_linear: tags and symbols pass through") {
  const Shape x({{"s", symbol("S")}, {"one", 1}, {"d", 8}}, f32);
  const Shape w({{"e", 4}, {"f", 6}, {"d", 8}}, f32);
  expect_type(infer(plain, {x, w, Shape({{"s", symbol("S")}, {"k", 2}}, i32)}),
              "f32[s=S, k=2, f=6]");
}

const Shape x_type({2, 3, 8}, f32), w_type({5, 4, 8}, f32), group_type({2, 3}, i32);

TEST_CASE("grouped_linear: C1 number of inputs") {
  expect_error(Errc::bad_argument, [] { infer(with_bias, {x_type, w_type, group_type}); });
  expect_error(Errc::bad_argument,
               [] { infer(plain, {x_type, w_type, group_type, Shape({5, 4}, f32)}); });
}

TEST_CASE("grouped_linear: C2 dtypes") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(plain, {Shape({2, 3, 8}, i32), w_type, group_type}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(plain, {x_type, Shape({5, 4, 8}, i8), group_type}); });
  expect_error(Errc::unsupported_dtype, [] { infer(plain, {x_type, w_type, Shape({2, 3}, f32)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(with_bias, {x_type, w_type, group_type, Shape({5, 4}, i32)}); });
}

TEST_CASE("grouped_linear: C3 ranks") {
  expect_error(Errc::shape_mismatch,
               [] { infer(plain, {Shape({8}, f32), w_type, Shape({}, i32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(plain, {x_type, w_type, Shape({3}, i32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(plain, {x_type, Shape({4, 8}, f32), group_type}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(with_bias, {x_type, w_type, group_type, Shape({4}, f32)}); });
}

TEST_CASE("grouped_linear: C4 contracted axes that differ are shown") {
  const std::string text = expect_error(
      Errc::shape_mismatch, [] { infer(plain, {x_type, Shape({5, 4, 7}, f32), group_type}); });
  CHECK(text.find("x f32[2, 3, 8], w f32[5, 4, 7], group i32[2, 3]") != std::string::npos);
}

TEST_CASE("grouped_linear: C5 leading axes, choices") {
  expect_error(Errc::shape_mismatch, [] { infer(plain, {x_type, w_type, Shape({4, 3}, i32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(plain, {x_type, w_type, Shape({2, 2}, i32)}); });
}

TEST_CASE("grouped_linear: C6 bias of another size") {
  expect_error(Errc::shape_mismatch,
               [] { infer(with_bias, {x_type, w_type, group_type, Shape({5, 3}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(with_bias, {x_type, w_type, group_type, Shape({4, 4}, f32)}); });
}

TEST_CASE("grouped_linear: C7 two axes of one tag") {
  expect_error(Errc::shape_mismatch, [] {
    infer(plain,
          {Shape({{"a", 2}, {"k", 3}, {"d", 8}}, f32), Shape({5, {"a", 4}, 8}, f32), group_type});
  });
}

TEST_CASE("grouped_linear: a group out of range") {
  for (const int wrong : {-1, 2}) {
    const std::string text = expect_error(Errc::out_of_range, [&] {
      apply(plain, {floats({1, 1}, {1}), floats({2, 1, 1}, {1, 2}), ints({1}, {wrong})});
    });
    CHECK(text.find("outside [0, 2)") != std::string::npos);
  }
}

}  // namespace
}  // namespace tenon::testing
