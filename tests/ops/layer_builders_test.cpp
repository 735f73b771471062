// Builders of ops with optional operands, and those that compose other ops.
#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/attention.hpp>
#include <tenon/ops/cache_update.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/embedding.hpp>
#include <tenon/ops/glu.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/pool2d.hpp>
#include <tenon/ops/quantize.hpp>
#include <tenon/ops/rope.hpp>
#include <tenon/ops/select.hpp>

#include <array>

namespace tenon::testing {
namespace {

TEST_CASE("linear: bias and residual are optional") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({1, 2}, {1, 2}));
  const Tensor w = graph.input(floats({1, 2}, {3, 4}));
  const Tensor bias = graph.input(floats({1}, {10}));
  const Tensor residual = graph.input(floats({1, 1}, {100}));
  expect_equal(graph.value(linear(x, w)), {11});
  expect_equal(graph.value(linear(x, w, bias)), {21});
  expect_equal(graph.value(linear(x, w, {}, residual)), {111});
  expect_equal(graph.value(linear(x, w, bias, residual)), {121});
}

TEST_CASE("linear: an error names the user's line") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({1, 2}, {1, 2}));
  const Tensor w = graph.input(floats({1, 3}, {1, 2, 3}));
  const int line = __LINE__ + 1;
  const std::string text = expect_error(Errc::shape_mismatch, [&] { linear(x, w); });
  CHECK(text.find("layer_builders_test.cpp:" + std::to_string(line)) != std::string::npos);
}

TEST_CASE("attention, rope: flags follow the operands") {
  ValuedGraph graph;
  const Tensor q = graph.input(floats({1, 1, 1, 2}, {0, 0}));
  const Tensor k = graph.input(floats({1, 2, 1, 2}, {0, 0, 0, 0}));
  const Tensor v = graph.input(floats({1, 2, 1, 1}, {2, 4}));
  const Tensor first = graph.input(ints({}, {0}));
  const Tensor mask = graph.input(floats({2}, {-1e30f, 0}));
  expect_near(graph.value(attention(q, k, v)), {3});
  expect_near(graph.value(attention(q, k, v, {.causal = true}, first)), {2});
  expect_near(graph.value(attention(q, k, v, {}, {}, mask)), {4});
  expect_near(graph.value(attention(q, k, v, {.has_position = true})), {3});

  const Tensor x = graph.input(floats({1, 1, 1, 2}, {1, 0}));
  const Tensor position = graph.input(ints({1}, {1}));
  const Tensor half = graph.input(floats({1}, {2}));
  expect_near(graph.value(rope(x, position)), {0.54030231, 0.84147098});
  expect_near(graph.value(rope(x, position, {}, half)), {0.87758256, 0.47942554});
}

TEST_CASE("cache_update, select, glu, embedding, quantize: as one would write a layer") {
  ValuedGraph graph;
  const Tensor cache = graph.input(floats({1, 1, 1, 2, 1}, {0, 0}));
  const Tensor layer = graph.input(longs({}, {0}));
  const Tensor x = graph.input(floats({1, 1, 1, 1}, {7}));
  const Tensor updated = cache_update(cache, layer, x, graph.input(ints({}, {1})));
  expect_equal(graph.value(select(updated, layer)), {0, 7});

  const Tensor table = graph.input(floats({2, 2}, {1, 2, 3, 4}));
  const Tensor row = embedding(graph.input(ints({}, {1})), table);
  expect_equal(graph.value(glu(row, row, "relu")), {9, 16});
  expect_type(embedding(graph.input(ints({3}, {0, 0, 0})), table, f16).shape(), "f16[3, 2]");

  const Tensor zeros = graph.input(HostBuffer::zeros(Shape({2, 32}, f32)));
  expect_type(quantize(zeros, DType::q4_0).shape(), "q4_0[2, 32]");
  expect_type(dequantize(quantize(zeros, DType::q4_0), f16).shape(), "f16[2, 32]");
}

TEST_CASE("conv1d: a convolution of one row") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({1, 1, 4}, {1, 2, 3, 4}));
  const Tensor w = graph.input(floats({1, 1, 2}, {1, 10}));
  const Tensor bias = graph.input(floats({1}, {100}));
  const Tensor y = conv1d(x, w);
  expect_type(y.shape(), "f32[1, 1, 3]");
  expect_equal(graph.value(y), {21, 32, 43});
  expect_equal(graph.value(conv1d(x, w, bias, {.stride = 2, .padding_left = 1, .dilation = 2})),
               {120, 142});
}

TEST_CASE("pool2d: over whole images") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"n", 1}, {"c", 2}, {"h", 1}, {"w", 2}}, {1, 3, -5, -9}));
  expect_type(global_avg_pool2d(x).shape(), "f32[n=1, c=2, h=1, w=1]");
  expect_equal(graph.value(global_avg_pool2d(x)), {2, -7});
  expect_equal(graph.value(global_max_pool2d(x)), {3, -5});
  expect_equal(graph.value(max_pool2d(x, {.kernel = {1, 2}})), {3, -5});
  expect_equal(graph.value(avg_pool2d(x, {.kernel = {1, 1}, .stride = {1, 2}})), {1, -5});
}

}  // namespace
}  // namespace tenon::testing
