#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/activation.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("activations: a formula per op") {
  const HostBuffer x = floats({4}, {-4, -1, 0, 2});
  expect_near(apply(Sigmoid{}, {x}), {0.01798621, 0.26894142, 0.5, 0.88079708});
  expect_near(apply(Relu{}, {x}), {0, 0, 0, 2});
  expect_near(apply(Relu6{}, {floats({3}, {-1, 5, 7})}), {0, 5, 6});
  expect_near(apply(Silu{}, {x}), {-0.07194484, -0.26894142, 0, 1.76159416});
  expect_near(apply(Gelu{}, {x}), {-0.00012668497, -0.15865525, 0, 1.95449974});
  expect_near(apply(GeluTanh{}, {x}), {-0.00007025, -0.15880801, 0, 1.95459769});
  expect_near(apply(GeluDerivative{}, {x}), {-0.00050366, -0.08331547, 0.5, 1.08523189});
  expect_near(apply(Softplus{}, {x}), {0.01814993, 0.31326169, 0.69314718, 2.12692801});
  expect_near(apply(Mish{}, {x}), {-0.07259171, -0.30340146, 0, 1.94395896});
  expect_near(apply(Hardsigmoid{}, {x}), {0, 0.33333333, 0.5, 0.83333333});
  expect_near(apply(Hardswish{}, {x}), {0, -0.33333333, 0, 1.66666667});
}

TEST_CASE("leaky_relu and elu: the slope below zero is an attribute") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({3}, {-2, 0, 3}));
  expect_near(graph.value(leaky_relu(x)), {-0.02, 0, 3});
  expect_near(graph.value(leaky_relu(x, 0.5)), {-1, 0, 3});
  expect_near(graph.value(elu(x)), {-0.86466472, 0, 3});
  expect_near(graph.value(elu(x, 2)), {-1.72932943, 0, 3});
}

TEST_CASE("activations: far from zero and NaN") {
  expect_equal(apply(Sigmoid{}, {floats({3}, {-inf, inf, nan})}), {0, 1, nan});
  expect_equal(apply(Softplus{}, {floats({4}, {-inf, 1000, inf, nan})}), {0, 1000, inf, nan});
  expect_equal(apply(Relu{}, {floats({3}, {-inf, inf, nan})}), {0, inf, nan});
  expect_equal(apply(Relu6{}, {floats({3}, {-inf, inf, nan})}), {0, 6, nan});
  // erfc keeps digits that 1 + erf loses.
  CHECK(elements(apply(Gelu{}, {HostBuffer::of<double>(Shape({1}, f64), {-8.0})}))[0] ==
        Approx(-4.9767684594174555e-15).epsilon(1e-9));
}

TEST_CASE("relu: integers") { expect_equal(apply(Relu{}, {ints({3}, {-5, 0, 5})}), {0, 0, 5}); }

TEST_CASE("activations: C1 integers elsewhere") {
  expect_error(Errc::unsupported_dtype, [] { infer(Sigmoid{}, {Shape({2}, i32)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(LeakyRelu{}, {Shape({2}, i8)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Elu{}, {Shape({2}, boolean)}); });
}

}  // namespace
}  // namespace tenon::testing
