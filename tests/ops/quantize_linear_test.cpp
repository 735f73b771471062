#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/graph.hpp>
#include <tenon/ops/quantize_linear.hpp>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace tenon::testing {
namespace {

HostBuffer bytes(std::initializer_list<Axis> axes, std::initializer_list<std::int8_t> values) {
  return HostBuffer::of<std::int8_t>(Shape(axes, i8), values);
}
HostBuffer codes(std::initializer_list<Axis> axes, std::initializer_list<std::uint8_t> values) {
  return HostBuffer::of<std::uint8_t>(Shape(axes, u8), values);
}

TEST_CASE("quantize_linear: one scale, ties to even, saturated") {
  const HostBuffer x = floats({8}, {0, 0.25, 0.5, 0.75, -0.25, -0.75, 1000, -1000});
  const HostBuffer y = apply(QuantizeLinear{}, {x, floats({}, {0.5}), codes({}, {10})});
  expect_type(y.shape(), "u8[8]");
  expect_equal(y, {10, 10, 11, 12, 10, 8, 255, 0});
  expect_equal(apply(QuantizeLinear{.dtype = i8}, {x, floats({1}, {0.5})}),
               {0, 0, 1, 2, 0, -2, 127, -128});
}

TEST_CASE("quantize_linear: a scale for each index of an axis") {
  const HostBuffer x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expect_equal(apply(QuantizeLinear{.axis = 1}, {x, floats({3}, {1, 2, 3})}), {1, 1, 1, 4, 2, 2});
  expect_equal(apply(QuantizeLinear{.axis = 0, .dtype = i8},
                     {x, floats({2}, {1, 2}), bytes({2}, {-10, 10})}),
               {-9, -8, -7, 12, 12, 13});
}

TEST_CASE("quantize_linear: what is not finite") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const HostBuffer x = floats({4}, {inf, -inf, std::nanf(""), 3e38f});
  expect_equal(apply(QuantizeLinear{}, {x, floats({}, {1}), codes({}, {7})}), {255, 0, 0, 255});
  expect_equal(apply(QuantizeLinear{.dtype = i8}, {x, floats({}, {1})}), {127, -128, -128, 127});
  // Scales are not looked at: 1 / 0 and 0 / 0.
  expect_equal(apply(QuantizeLinear{}, {floats({2}, {1, 0}), floats({}, {0})}), {255, 0});
}

TEST_CASE("quantize_linear: sizes, tags and symbols") {
  expect_type(apply(QuantizeLinear{}, {floats({0, 3}, {}), floats({3}, {1, 1, 1})}).shape(),
              "u8[0, 3]");
  expect_equal(apply(QuantizeLinear{}, {floats({}, {3}), floats({}, {1})}), {3});
  const Shape x({{"n", symbol("N")}, {"c", symbol("C")}}, f32);
  expect_type(infer(QuantizeLinear{}, {x, Shape({4}, f32)}), "u8[n=N, c=C]");
}

TEST_CASE("quantize_linear: constraints") {
  const Shape x({2, 3}, f32), scale({}, f32);
  expect_error(Errc::bad_attribute, [&] { infer(QuantizeLinear{.dtype = i32}, {x, scale}); });
  expect_error(Errc::unsupported_dtype,
               [&] { infer(QuantizeLinear{}, {x.with_dtype(f16), scale}); });
  expect_error(Errc::unsupported_dtype,
               [&] { infer(QuantizeLinear{}, {x, scale.with_dtype(f64)}); });
  expect_error(Errc::unsupported_dtype,
               [&] { infer(QuantizeLinear{}, {x, scale, Shape({}, i8)}); });
  expect_error(Errc::axis_out_of_range,
               [&] { infer(QuantizeLinear{.axis = 2}, {x, Shape({3}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [&] { infer(QuantizeLinear{.axis = 0}, {x, Shape({3}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [&] { infer(QuantizeLinear{}, {x, scale, Shape({1, 3}, u8)}); });
}

TEST_CASE("dequantize_linear: codes and sums") {
  expect_equal(
      apply(DequantizeLinear{}, {codes({3}, {0, 128, 255}), floats({}, {0.5}), codes({}, {128})}),
      {-64, 0, 63.5});
  expect_equal(apply(DequantizeLinear{.axis = 0},
                     {bytes({2, 2}, {-128, 127, 3, 4}), floats({2}, {1, 2}), bytes({2}, {127, 1})}),
               {-255, 0, 4, 6});
  const HostBuffer sums = ints({2}, {2147483647, -7});
  expect_type(apply(DequantizeLinear{}, {sums, floats({1}, {0.5})}).shape(), "f32[2]");
  expect_equal(apply(DequantizeLinear{}, {sums, floats({1}, {0.5})}), {1073741824.0, -3.5});
  // A difference wraps as i32 does.
  expect_equal(apply(DequantizeLinear{}, {sums, floats({}, {1}), ints({}, {-1})}),
               {-2147483648.0, -6});
}

TEST_CASE("dequantize_linear: sizes and symbols") {
  expect_type(apply(DequantizeLinear{}, {codes({2, 0}, {}), floats({}, {1})}).shape(), "f32[2, 0]");
  const Shape x({{"n", symbol("N")}, {"c", 4}}, i8);
  expect_type(infer(DequantizeLinear{}, {x, Shape({4}, f32)}), "f32[n=N, c=4]");
}

TEST_CASE("dequantize_linear: constraints") {
  const Shape x({2, 3}, u8), scale({}, f32);
  expect_error(Errc::unsupported_dtype,
               [&] { infer(DequantizeLinear{}, {x.with_dtype(i64), scale}); });
  expect_error(Errc::unsupported_dtype,
               [&] { infer(DequantizeLinear{}, {x, scale.with_dtype(f16)}); });
  expect_error(Errc::unsupported_dtype,
               [&] { infer(DequantizeLinear{}, {x, scale, Shape({}, i32)}); });
  expect_error(Errc::axis_out_of_range,
               [&] { infer(DequantizeLinear{.axis = -1}, {x, Shape({3}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(DequantizeLinear{}, {x, Shape({2}, f32)}); });
}

TEST_CASE("quantize_linear: builders resolve axes and take the type of the zero point") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", Shape({{"n", 2}, {"c", 3}}, f32));
  const Tensor scale = graph.input("scale", Shape({3}, f32));
  const Tensor zero = graph.input("zero", Shape({3}, i8));
  const Tensor codes_of_x = quantize_linear(x, scale, zero, {.axis = "c"});
  expect_type(codes_of_x.shape(), "i8[n=2, c=3]");
  expect_type(dequantize_linear(codes_of_x, scale, zero, -1).shape(), "f32[n=2, c=3]");
  expect_type(quantize_linear(x, scale, {}, {.axis = -1, .dtype = i8}).shape(), "i8[n=2, c=3]");
  expect_error(Errc::axis_out_of_range, [&] { quantize_linear(x, scale, {}, {.axis = 7}); });
  const Tensor sums = graph.input("sums", Shape({2, 3}, i32));
  expect_type(requantize(sums, scale, zero).shape(), "i8[2, 3]");
}

}  // namespace
}  // namespace tenon::testing
