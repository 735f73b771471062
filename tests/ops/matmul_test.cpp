#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/matmul.hpp>

namespace tenon::testing {
namespace {

const Matmul op{};

TEST_CASE("matmul: two matrices") {
  const HostBuffer a = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const HostBuffer b = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  expect_equal(apply(op, {a, b}), {22, 28, 49, 64});
}

TEST_CASE("matmul: vectors") {
  const HostBuffer v = floats({2}, {1, 2});
  const HostBuffer m = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const HostBuffer dot_value = apply(op, {v, v});
  expect_type(dot_value.shape(), "f32[]");
  expect_equal(dot_value, {5});
  expect_equal(apply(op, {v, m}), {9, 12, 15});
  expect_equal(apply(op, {m, floats({3}, {1, 0, -1})}), {-2, -2});
  const HostBuffer stack = apply(op, {floats({2, 1, 2}, {1, 0, 0, 1}), v});
  expect_type(stack.shape(), "f32[2, 1]");
  expect_equal(stack, {1, 2});
}

TEST_CASE("matmul: leading axes broadcast") {
  const HostBuffer a = floats({2, 1, 1, 2}, {1, 0, 0, 1});
  const HostBuffer b = floats({3, 2, 1}, {1, 2, 3, 4, 5, 6});
  const HostBuffer c = apply(op, {a, b});
  expect_type(c.shape(), "f32[2, 3, 1, 1]");
  expect_equal(c, {1, 3, 5, 2, 4, 6});
}

TEST_CASE("matmul: integers wrap as numpy's do") {
  const auto bytes = [](std::initializer_list<Axis> axes, std::initializer_list<std::int8_t> v) {
    return HostBuffer::of<std::int8_t>(Shape(axes, i8), v);
  };
  const HostBuffer c = apply(op, {bytes({1, 2}, {100, 100}), bytes({2, 1}, {2, 1})});
  CHECK(c.shape().dtype() == i8);
  expect_equal(c, {44});  // 300 - 256
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  expect_equal(apply(op, {longs({1, 1}, {huge}), longs({1, 1}, {2})}), {-2});
}

TEST_CASE("matmul: every floating type, rounded once") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const HostBuffer c =
        apply(op, {floats({1, 2}, {0.5f, 3}).to(dtype), floats({2, 1}, {4, -1}).to(dtype)});
    CHECK(c.shape().dtype() == dtype);
    expect_equal(c, {-1});
  }
}

TEST_CASE("matmul: sizes of zero") {
  expect_equal(apply(op, {floats({2, 0}, {}), floats({0, 2}, {})}), {0, 0, 0, 0});
  expect_equal(apply(op, {longs({1, 0}, {}), longs({0, 1}, {})}), {0});
  expect_equal(apply(op, {floats({0}, {}), floats({0}, {})}), {0});
  expect_type(apply(op, {floats({0, 2}, {}), floats({2, 3}, {1, 2, 3, 4, 5, 6})}).shape(),
              "f32[0, 3]");
  expect_type(apply(op, {floats({0, 1, 2}, {}), floats({2, 3}, {1, 2, 3, 4, 5, 6})}).shape(),
              "f32[0, 1, 3]");
}

TEST_CASE("matmul: tags and symbols pass through") {
  const std::int64_t s = symbol("S");
  expect_type(
      infer(op, {Shape({{"b", 2}, {"s", s}, {"k", 8}}, f32), Shape({{"k", 8}, {"n", 4}}, f32)}),
      "f32[b=2, s=S, n=4]");
  expect_type(infer(op, {Shape({1, s, 8}, f32), Shape({{"b", symbol("B")}, 8, 4}, f32)}),
              "f32[b=B, S, 4]");
  // A symbol against a number may be a 1 that broadcasts; two symbols may be anything.
  expect_type(infer(op, {Shape({s, 1, 1}, f32), Shape({3, 1, 1}, f32)}), "f32[3, 1, 1]");
  expect_type(infer(op, {Shape({s, 1, 1}, f32), Shape({symbol("T"), 1, 1}, f32)}), "f32[_, 1, 1]");
}

TEST_CASE("matmul: C1 dtypes") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(op, {Shape({2, 2}, boolean), Shape({2, 2}, boolean)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(op, {Shape({2, 32}, f32), Shape({32, 32}, DType::q8_0)}); });
}

TEST_CASE("matmul: C2 mixed dtypes") {
  expect_error(Errc::shape_mismatch, [] { infer(op, {Shape({2, 2}, f32), Shape({2, 2}, f16)}); });
}

TEST_CASE("matmul: C3 scalars") {
  expect_error(Errc::shape_mismatch, [] { infer(op, {Shape({}, f32), Shape({2, 2}, f32)}); });
}

TEST_CASE("matmul: C4 inner sizes differ") {
  const std::string text = expect_error(
      Errc::shape_mismatch, [] { infer(op, {Shape({2, 3}, f32), Shape({4, 2}, f32)}); });
  CHECK(text.find("a f32[2, 3], b f32[4, 2]") != std::string::npos);
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {Shape({2, {"x", 3}}, f32), Shape({{"y", 3}, 2}, f32)}); });
}

TEST_CASE("matmul: C5 leading axes that do not broadcast") {
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {Shape({2, 1, 1}, f32), Shape({3, 1, 1}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {Shape({{"a", 2}, 1, 1}, f32), Shape({{"b", 2}, 1, 1}, f32)}); });
}

TEST_CASE("matmul: C6 one tag twice") {
  expect_error(Errc::shape_mismatch,
               [] { infer(op, {Shape({{"s", 2}, 3}, f32), Shape({3, {"s", 2}}, f32)}); });
}

}  // namespace
}  // namespace tenon::testing
