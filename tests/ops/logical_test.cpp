#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/logical.hpp>

namespace tenon::testing {
namespace {

HostBuffer flags(std::initializer_list<bool> values) {
  return HostBuffer::of<bool>(Shape({static_cast<std::int64_t>(values.size())}, boolean), values);
}

TEST_CASE("logical: truth tables") {
  const HostBuffer a = flags({false, false, true, true}), b = flags({false, true, false, true});
  expect_equal(apply(LogicalAnd{}, {a, b}), {0, 0, 0, 1});
  expect_equal(apply(LogicalOr{}, {a, b}), {0, 1, 1, 1});
  expect_equal(apply(LogicalXor{}, {a, b}), {0, 1, 1, 0});
  expect_equal(apply(LogicalNot{}, {a}), {1, 1, 0, 0});
}

TEST_CASE("logical: broadcasting, tags, nothing") {
  expect_type(infer(LogicalAnd{}, {Shape({{"b", 2}, 1}, boolean), Shape({{"d", 3}}, boolean)}),
              "bool[b=2, d=3]");
  expect_type(apply(LogicalOr{}, {flags({}), flags({true})}).shape(), "bool[0]");
}

TEST_CASE("logical: C1 an input is not bool") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(LogicalAnd{}, {Shape({2}, boolean), Shape({2}, u8)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(LogicalNot{}, {Shape({2}, f32)}); });
}
TEST_CASE("logical: C2 sizes differ") {
  expect_error(Errc::shape_mismatch,
               [] { infer(LogicalOr{}, {Shape({2}, boolean), Shape({3}, boolean)}); });
}

TEST_CASE("logical: builders") {
  ValuedGraph graph;
  const Tensor a = graph.input(flags({false, true})), b = graph.input(flags({true, true}));
  expect_equal(graph.value(logical_and(a, b)), {0, 1});
  expect_equal(graph.value(logical_or(a, b)), {1, 1});
  expect_equal(graph.value(logical_xor(a, b)), {1, 0});
  expect_equal(graph.value(logical_not(a)), {1, 0});
}

}  // namespace
}  // namespace tenon::testing
