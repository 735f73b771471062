#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/permute.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("permute: axes in another order, tags along") {
  const HostBuffer y = apply(Permute{.order = {1, 0}}, {ints({2, 3}, {1, 2, 3, 4, 5, 6})});
  expect_type(y.shape(), "i32[3, 2]");
  expect_equal(y, {1, 4, 2, 5, 3, 6});
  const Shape x({{"b", symbol("B")}, {"s", 3}, {"d", 4}}, f16);
  expect_type(infer(Permute{.order = {1, 2, 0}}, {x}), "f16[s=3, d=4, b=B]");
  expect_type(apply(Permute{.order = {1, 0}}, {floats({0, 3}, {})}).shape(), "f32[3, 0]");
  expect_type(apply(Permute{}, {floats({}, {1})}).shape(), "f32[]");
}

TEST_CASE("permute: block types keep their innermost axis") {
  expect_type(infer(Permute{.order = {1, 0, 2}}, {Shape({2, 3, 32}, DType::q8_0)}),
              "q8_0[3, 2, 32]");
}

TEST_CASE("permute: C1 one entry per axis") {
  expect_error(Errc::bad_argument, [] { infer(Permute{.order = {0}}, {Shape({2, 2}, f32)}); });
}
TEST_CASE("permute: C2 an entry out of range") {
  expect_error(Errc::axis_out_of_range,
               [] { infer(Permute{.order = {0, 2}}, {Shape({2, 2}, f32)}); });
}
TEST_CASE("permute: C3 an entry twice") {
  expect_error(Errc::bad_argument, [] { infer(Permute{.order = {0, 0}}, {Shape({2, 2}, f32)}); });
}
TEST_CASE("permute: C4 blocks") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Permute{.order = {1, 0}}, {Shape({2, 32}, DType::q8_0)}); });
}

TEST_CASE("permute: builders") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"a", 1}, {"b", 2}, {"c", 2}}, {1, 2, 3, 4}));
  expect_type(permute(x, {"c", "a", "b"}).shape(), "f32[c=2, a=1, b=2]");
  expect_type(permute(x, {-1, 0, 1}).shape(), "f32[c=2, a=1, b=2]");
  expect_equal(graph.value(transpose(x)), {1, 3, 2, 4});
  expect_type(transpose(x, "a", "c").shape(), "f32[c=2, b=2, a=1]");
  expect_error(Errc::axis_out_of_range, [&] { transpose(x, "a", "d"); });
  expect_error(Errc::axis_out_of_range, [&] { transpose(graph.input(floats({1}, {1}))); });
}

}  // namespace
}  // namespace tenon::testing
