#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/real_binary.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <vector>

namespace tenon::testing {
namespace {

TEST_CASE("atan2 and hypot: a formula each") {
  const HostBuffer a = floats({4}, {0, 1, -3, 0}), b = floats({4}, {1, 0, -4, -1});
  expect_near(apply(Atan2{}, {a, b}),
              {0, std::numbers::pi / 2, -2.498091544796509, std::numbers::pi});
  expect_near(apply(Hypot{}, {a, b}), {1, 1, 5, 1});
  expect_near(apply(Hypot{}, {floats({}, {3e38f}), floats({}, {1})}), {3e38f});
  expect_type(apply(Hypot{}, {floats({2, 1}, {1, 2}), floats({0}, {})}).shape(), "f32[2, 0]");
}

TEST_CASE("floor_div: numpy's quotients of zeros and infinite numbers, with their signs") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  ValuedGraph graph;
  const Tensor a =
      graph.input(floats({12}, {-0.0f, 0, -0.0f, 0, -0.5f, 0.5f, 5, -1, 1, -7.5f, -1e-38f, inf}));
  const Tensor b = graph.input(floats({12}, {1, -1, -1, 1, -1, -1, -inf, inf, inf, 2, inf, 2}));
  const std::vector<double> got = elements(graph.value(floor_div(a, b)));
  // numpy.floor_divide of the same.
  const std::vector<double> want{-0.0, -0.0, 0, 0, 0, -1, -1, -1, 0, -4, -1};
  for (std::size_t i = 0; i < want.size(); ++i) {
    INFO("element " << i);
    CHECK(got[i] == want[i]);
    CHECK(std::signbit(got[i]) == std::signbit(want[i]));
  }
  CHECK(std::isnan(got[11]));
}

TEST_CASE("real binary: C1 .. C3") {
  expect_error(Errc::shape_mismatch, [] { infer(Atan2{}, {Shape({2}, f32), Shape({2}, f64)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Hypot{}, {Shape({2}, i32), Shape({2}, i32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Atan2{}, {Shape({2}, f32), Shape({3}, f32)}); });
}

TEST_CASE("nan_to_num: the largest numbers of a type, or those given") {
  ValuedGraph graph;
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor x =
      graph.input(floats({4}, {inf, -inf, std::numeric_limits<float>::quiet_NaN(), 2}));
  constexpr double largest = std::numeric_limits<float>::max();
  expect_equal(graph.value(nan_to_num(x)), {largest, -largest, 0, 2});
  expect_equal(graph.value(nan_to_num(x, 1, 8, -9)), {8, -9, 1, 2});
}

TEST_CASE("lerp: one weight") {
  ValuedGraph graph;
  const Tensor a = graph.input(floats({2}, {1, 2})), b = graph.input(floats({2}, {3, 6}));
  expect_equal(graph.value(lerp(a, b, 0.5)), {2, 4});
}

}  // namespace
}  // namespace tenon::testing
