#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/special.hpp>

#include <cmath>
#include <limits>

namespace tenon::testing {
namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

HostBuffer doubles(std::initializer_list<double> values) {
  return HostBuffer::of<double>(Shape({static_cast<std::int64_t>(values.size())}, f64), values);
}

TEST_CASE("special: a formula per op") {
  const HostBuffer x = doubles({0.5, -2});
  expect_near(apply(Sinh{}, {x}), {0.5210953054937474, -3.626860407847019}, 1e-15);
  expect_near(apply(Cosh{}, {x}), {1.1276259652063807, 3.7621956910836314}, 1e-15);
  expect_near(apply(Asinh{}, {x}), {0.48121182505960347, -1.4436354751788103}, 1e-15);
  expect_near(apply(Acosh{}, {doubles({1, 2, 0.5})}), {0, 1.3169578969248166, no_number}, 1e-15);
  expect_near(apply(Atanh{}, {doubles({0.5, -1, 2})}), {0.5493061443340549, -inf, no_number},
              1e-15);
  expect_near(apply(Erfc{}, {x}), {0.4795001221869535, 1.9953222650189528}, 1e-15);
}

TEST_CASE("erfinv: undoes erf, far into the tails") {
  for (const double x : {1e-300, 1e-9, 0.3, -0.7, 0.99, 0.999999, 1 - 1e-12}) {
    INFO(x);
    const double y = elements(apply(Erfinv{}, {doubles({x})}))[0];
    CHECK(std::fabs(std::erf(y) - x) <= 4e-16 * std::fabs(x));
  }
  // SciPy 1.11
  expect_near(apply(Erfinv{}, {doubles({1 - 0x1p-53})}), {5.863584748755167}, 1e-14);
  expect_near(apply(Erfinv{}, {doubles({0, 1, -1, 1.5})}), {0, inf, -inf, no_number});
}

// Values of SciPy 1.11 and of mpmath.
TEST_CASE("lgamma, digamma, polygamma") {
  expect_near(apply(Lgamma{}, {doubles({0.5, 1, 10, -0.5, 0, -3})}),
              {0.5723649429247001, 0, 12.801827480081469, 1.265512123484645, inf, inf}, 1e-15);
  expect_near(apply(Digamma{}, {doubles({1, 0.5, 10, -0.5, 1e-3})}),
              {-0.5772156649015329, -1.9635100260214235, 2.251752589066721, 0.03648997397857652,
               -1000.5755719318103},
              1e-14);
  expect_near(apply(Digamma{}, {doubles({0.0, -0.0, -1, inf, -inf})}),
              {-inf, inf, no_number, inf, no_number});
  expect_near(apply(Polygamma{.order = 1}, {doubles({1, 0.5, -0.5, -2, inf})}),
              {1.6449340668482264, 4.934802200544679, 8.93480220054468, inf, 0}, 1e-14);
  expect_near(apply(Polygamma{.order = 2}, {doubles({1, -0.5})}), {-2.4041138063191885, no_number},
              1e-14);
  expect_near(apply(Polygamma{.order = 3}, {doubles({2.5})}), {0.2239058488172502}, 1e-13);
}

TEST_CASE("special: C1 and C2") {
  expect_error(Errc::unsupported_dtype, [] { infer(Sinh{}, {Shape({2}, i32)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Polygamma{}, {Shape({2}, i32)}); });
  expect_error(Errc::bad_attribute, [] { infer(Polygamma{.order = 0}, {Shape({2}, f32)}); });
  expect_error(Errc::bad_attribute, [] { infer(Polygamma{.order = 101}, {Shape({2}, f32)}); });
}

TEST_CASE("polygamma: order 0 is digamma") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({1}, {1}));
  CHECK(polygamma(0, x).op() == "digamma");
  expect_near(graph.value(polygamma(1, x)), {1.6449340668482264});
}

}  // namespace
}  // namespace tenon::testing
