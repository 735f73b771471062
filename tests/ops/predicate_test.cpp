#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/predicate.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("predicates: NaN, infinite, finite") {
  const HostBuffer x = floats({4}, {nan, inf, -inf, 3});
  expect_equal(apply(IsNan{}, {x}), {1, 0, 0, 0});
  expect_equal(apply(IsInf{}, {x}), {0, 1, 1, 0});
  expect_equal(apply(IsFinite{}, {x.to(f16)}), {0, 0, 0, 1});
  expect_type(infer(IsNan{}, {Shape({{"b", symbol("B")}}, bf16)}), "bool[b=B]");
}

TEST_CASE("predicates: C1 integers") {
  expect_error(Errc::unsupported_dtype, [] { infer(IsNan{}, {Shape({2}, i32)}); });
}

TEST_CASE("predicates: builders") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({3}, {nan, inf, 0}));
  expect_equal(graph.value(is_nan(x)), {1, 0, 0});
  expect_equal(graph.value(is_inf(x)), {0, 1, 0});
  expect_equal(graph.value(is_finite(x)), {0, 0, 1});
}

}  // namespace
}  // namespace tenon::testing
