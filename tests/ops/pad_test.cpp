#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/pad.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("pad: a value around the array") {
  const HostBuffer x = floats({2, 2}, {1, 2, 3, 4});
  const HostBuffer y = apply(Pad{.before = {1, 0}, .after = {0, 2}, .value = 9}, {x});
  expect_type(y.shape(), "f32[3, 4]");
  expect_equal(y, {9, 9, 9, 9, 1, 2, 9, 9, 3, 4, 9, 9});
  expect_equal(apply(Pad{.before = {1}, .after = {1}, .value = 300},
                     {HostBuffer::of<std::int8_t>(Shape({1}, i8), {5})}),
               {127, 5, 127});
  expect_equal(apply(Pad{.before = {1}, .after = {1}}, {floats({0}, {})}), {0, 0});
  expect_type(apply(Pad{}, {floats({}, {3})}).shape(), "f32[]");
}

TEST_CASE("pad: tags and sizes that are not known yet") {
  const Shape x({{"b", symbol("B")}, {"s", symbol("S")}}, f32);
  expect_type(infer(Pad{.before = {0, 1}, .after = {0, 1}}, {x}), "f32[b=B, s=_]");
}

TEST_CASE("pad: C1 one entry per axis") {
  expect_error(Errc::bad_argument,
               [] { infer(Pad{.before = {1}, .after = {1}}, {Shape({2, 2}, f32)}); });
  expect_error(Errc::bad_argument,
               [] { infer(Pad{.before = {1, 1}, .after = {1}}, {Shape({2, 2}, f32)}); });
}
TEST_CASE("pad: C2 negative entries") {
  expect_error(Errc::bad_attribute,
               [] { infer(Pad{.before = {-1}, .after = {1}}, {Shape({2}, f32)}); });
  expect_error(Errc::bad_attribute,
               [] { infer(Pad{.before = {0}, .after = {-1}}, {Shape({2}, f32)}); });
}
TEST_CASE("pad: C3 block types") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Pad{.before = {0}, .after = {32}}, {Shape({32}, DType::q8_0)}); });
}
TEST_CASE("pad: C4 sizes beyond 2^63 - 1") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_error(Errc::shape_overflow,
               [] { infer(Pad{.before = {most}, .after = {0}}, {Shape({2}, f32)}); });
  expect_error(Errc::shape_overflow,
               [] { infer(Pad{.before = {most}, .after = {most}}, {Shape({2}, f32)}); });
}

TEST_CASE("pad: builders") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"s", 2}, {"d", 1}}, {1, 2}));
  expect_equal(graph.value(pad(x, {0, 1}, {1, 0}, 5)), {5, 1, 5, 2, 5, 5});
  expect_equal(graph.value(pad(x, "s", 1, 0)), {0, 1, 2});
}

}  // namespace
}  // namespace tenon::testing
