#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops/integer_product.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tenon::testing {
namespace {

HostBuffer bytes(std::initializer_list<Axis> axes, std::initializer_list<std::int8_t> values) {
  return HostBuffer::of<std::int8_t>(Shape(axes, i8), values);
}
HostBuffer codes(std::initializer_list<Axis> axes, std::initializer_list<std::uint8_t> values) {
  return HostBuffer::of<std::uint8_t>(Shape(axes, u8), values);
}

TEST_CASE("matmul_integer: zero points of none, one and both") {
  const HostBuffer a = codes({2, 3}, {11, 7, 3, 10, 6, 2});
  const HostBuffer b = bytes({3, 2}, {1, 4, 2, 5, 3, 6});
  const HostBuffer c = apply(MatmulInteger{}, {a, b});
  expect_type(c.shape(), "i32[2, 2]");
  expect_equal(c, {34, 97, 28, 82});
  // The example of ONNX's MatMulInteger.
  const HostBuffer ones = codes({3, 2}, {1, 4, 2, 5, 3, 6});
  expect_equal(apply(MatmulInteger{}, {a, ones, codes({1}, {12}), codes({1}, {0})}),
               {-38, -83, -44, -98});
  expect_equal(apply(MatmulInteger{}, {a, b, codes({}, {10}), bytes({2}, {1, 4})}),
               {-3 * 1 + -7 * 2, -3 * 1 + -7 * 2, -4 * 1 + -8 * 2, -4 * 1 + -8 * 2});
}

TEST_CASE("matmul_integer: vectors, batches and sizes of zero") {
  expect_equal(apply(MatmulInteger{}, {codes({2}, {1, 2}), codes({2}, {3, 4})}), {11});
  expect_equal(apply(MatmulInteger{}, {codes({2, 1, 2}, {1, 2, 3, 4}), bytes({2, 1}, {10, -1})}),
               {8, 26});
  expect_equal(apply(MatmulInteger{}, {codes({1, 0}, {}), bytes({0, 2}, {})}), {0, 0});
  expect_type(apply(MatmulInteger{}, {codes({0, 2}, {}), bytes({2, 1}, {1, 1})}).shape(),
              "i32[0, 1]");
}

TEST_CASE("matmul_integer: sums wrap") {
  const std::vector<std::uint8_t> largest(33100, 255);
  const HostBuffer a =
      HostBuffer::of<std::uint8_t>(Shape({33100}, u8), std::span<const std::uint8_t>(largest));
  expect_equal(apply(MatmulInteger{}, {a, a}), {33100.0 * 255 * 255 - 4294967296.0});
}

TEST_CASE("matmul_integer: constraints") {
  const Shape a({2, 3}, u8), b({3, 4}, i8), zero({}, u8);
  expect_error(Errc::unsupported_dtype, [&] { infer(MatmulInteger{}, {a.with_dtype(i32), b}); });
  expect_error(Errc::unsupported_dtype, [&] { infer(MatmulInteger{}, {a, b.with_dtype(f32)}); });
  expect_error(Errc::unsupported_dtype,
               [&] { infer(MatmulInteger{}, {a, b, zero.with_dtype(i8)}); });
  expect_error(Errc::unsupported_dtype, [&] { infer(MatmulInteger{}, {a, b, zero, zero}); });
  expect_error(Errc::shape_mismatch, [&] { infer(MatmulInteger{}, {Shape({}, u8), b}); });
  expect_error(Errc::shape_mismatch, [&] { infer(MatmulInteger{}, {a, Shape({4, 3}, i8)}); });
  expect_error(Errc::shape_mismatch,
               [&] { infer(MatmulInteger{}, {Shape({2, 2, 3}, u8), Shape({3, 3, 4}, i8)}); });
  expect_error(Errc::shape_mismatch, [&] {
    infer(MatmulInteger{}, {Shape({{"n", 2}, {"", 3}}, u8), Shape({{"", 3}, {"n", 4}}, i8)});
  });
  expect_error(Errc::shape_mismatch, [&] { infer(MatmulInteger{}, {a, b, Shape({2}, u8)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(MatmulInteger{}, {a, b, zero, Shape({3}, i8)}); });
  expect_type(infer(MatmulInteger{}, {Shape({symbol("M"), 3}, u8), Shape({3, symbol("N")}, i8),
                                      zero, Shape({4}, i8)}),
              "i32[M, N]");
}

TEST_CASE("conv2d_integer: the example of ONNX's ConvInteger") {
  const HostBuffer x = codes({1, 1, 3, 3}, {2, 3, 4, 5, 6, 7, 8, 9, 10});
  const HostBuffer w = codes({1, 1, 2, 2}, {1, 1, 1, 1});
  const HostBuffer y = apply(Conv2dInteger{}, {x, w, codes({}, {1})});
  expect_type(y.shape(), "i32[1, 1, 2, 2]");
  expect_equal(y, {12, 16, 24, 28});
  expect_equal(apply(Conv2dInteger{.padding = {1, 1}}, {x, w, codes({1}, {1})}),
               {1, 3, 5, 3, 5, 12, 16, 9, 11, 24, 28, 15, 7, 15, 17, 9});
}

TEST_CASE("conv2d_integer: groups with a zero point for each output") {
  const HostBuffer x = bytes({1, 2, 1, 2}, {1, 2, -3, 4});
  const HostBuffer w = bytes({2, 1, 1, 1}, {5, 6});
  expect_equal(apply(Conv2dInteger{.groups = 2}, {x, w, bytes({}, {1}), bytes({2}, {4, 8})}),
               {0, 1, 8, -6});
}

TEST_CASE("conv2d_integer: constraints") {
  const Shape x({1, 4, 5, 5}, u8), w({6, 4, 3, 3}, i8), zero({}, u8);
  const Conv2dInteger op;
  expect_error(Errc::unsupported_dtype, [&] { infer(op, {x.with_dtype(f32), w}); });
  expect_error(Errc::unsupported_dtype, [&] { infer(op, {x, w, zero.with_dtype(i32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(op, {Shape({4, 5, 5}, u8), w}); });
  expect_error(Errc::shape_mismatch, [&] { infer(op, {x, Shape({6, 4, 3}, i8)}); });
  expect_error(Errc::bad_attribute, [&] { infer(Conv2dInteger{.groups = 3}, {x, w}); });
  expect_error(Errc::shape_mismatch, [&] { infer(Conv2dInteger{.groups = 2}, {x, w}); });
  expect_error(Errc::shape_mismatch, [&] { infer(op, {x, w, Shape({4}, u8)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(op, {x, w, zero, Shape({4}, i8)}); });
  expect_error(Errc::bad_attribute, [&] { infer(Conv2dInteger{.stride = {0, 1}}, {x, w}); });
  expect_error(Errc::bad_attribute, [&] { infer(Conv2dInteger{.padding = {3, 3}}, {x, w}); });
  expect_error(Errc::bad_shape, [&] { infer(op, {Shape({1, 4, 2, 5}, u8), w}); });
  expect_error(Errc::bad_shape, [&] { infer(op, {x, Shape({6, 4, 0, 3}, i8)}); });
  expect_error(Errc::shape_mismatch, [&] {
    infer(op, {Shape({{"n", 1}, {"c", 4}, {"h", 5}, {"w", 5}}, u8),
               Shape({{"h", 6}, {"", 4}, {"", 3}, {"", 3}}, i8)});
  });
  expect_type(infer(op, {Shape({symbol("N"), 4, 5, 5}, u8), w, zero, Shape({6}, i8)}),
              "i32[N, 6, 3, 3]");
}

TEST_CASE("integer products: builders") {
  Graph graph;
  const Graph::Recording recording(graph);
  const QuantizedTensor x{graph.input("x", Shape({{"b", 2}, {"", 3}}, u8)),
                          graph.input("x_scale", Shape({}, f32)),
                          graph.input("x_zero", Shape({}, u8))};
  const QuantizedTensor w{graph.constant("w", Shape({5, 3}, i8)),
                          graph.constant("w_scale", Shape({5}, f32))};
  const ScaleAndZero y{graph.input("y_scale", Shape({}, f32)),
                       graph.input("y_zero", Shape({}, i8))};
  const Tensor bias = graph.constant("bias", Shape({5}, i32));
  expect_type(linear_integer(x.codes, w.codes, x.zero_point).shape(), "i32[b=2, 5]");
  expect_type(qlinear_linear(x, w, y, bias).shape(), "i8[b=2, 5]");
  // A zero point of the second operand alone.
  const Tensor w_zero = graph.constant("w_zero", Shape({5}, i8));
  expect_type(linear_integer(x.codes, w.codes, {}, w_zero).shape(), "i32[b=2, 5]");

  const QuantizedTensor image{graph.input("image", Shape({1, 3, 4, 4}, i8)), x.scale};
  const QuantizedTensor filter{graph.constant("filter", Shape({5, 3, 3, 3}, i8)), w.scale};
  expect_type(qlinear_conv2d(image, filter, y, bias, {.padding = {1, 1}}).shape(),
              "i8[1, 5, 4, 4]");
  const QuantizedTensor b{graph.input("b", Shape({3, 4}, i8)), x.scale};
  expect_type(qlinear_matmul(x, b, y).shape(), "i8[b=2, 4]");
}

}  // namespace
}  // namespace tenon::testing
