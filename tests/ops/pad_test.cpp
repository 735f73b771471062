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

TEST_CASE("pad: elements of the array around it") {
  const HostBuffer x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const IntList none{0, 0}, one{1, 0}, two{0, 2};
  expect_equal(apply(Pad{.before = two, .after = two, .mode = "reflect"}, {x}),
               {3, 2, 1, 2, 3, 2, 1, 6, 5, 4, 5, 6, 5, 4});
  expect_equal(apply(Pad{.before = two, .after = two, .mode = "edge"}, {x}),
               {1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 5, 6, 6, 6});
  expect_equal(apply(Pad{.before = two, .after = one, .mode = "circular"}, {x}),
               {2, 3, 1, 2, 3, 5, 6, 4, 5, 6, 2, 3, 1, 2, 3});
  expect_equal(apply(Pad{.before = one, .after = none, .mode = "constant"}, {x}),
               {0, 0, 0, 1, 2, 3, 4, 5, 6});
  expect_equal(apply(Pad{.before = {3}, .after = {1}, .mode = "edge"}, {floats({1}, {7})}),
               {7, 7, 7, 7, 7});
  expect_type(apply(Pad{.before = {0, 1}, .after = {0, 1}, .mode = "reflect"}, {floats({0, 2}, {})})
                  .shape(),
              "f32[0, 4]");
  expect_type(apply(Pad{.mode = "edge"}, {floats({}, {3})}).shape(), "f32[]");
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

TEST_CASE("pad: C5 mode") {
  expect_error(Errc::bad_attribute,
               [] { infer(Pad{.before = {0}, .after = {0}, .mode = "wrap"}, {Shape({2}, f32)}); });
}
TEST_CASE("pad: C6 more padding than elements") {
  const auto refused = [](Name mode, std::int64_t before, std::int64_t after, std::int64_t size) {
    expect_error(Errc::out_of_range, [&] {
      infer(Pad{.before = {before}, .after = {after}, .mode = mode}, {Shape({size}, f32)});
    });
  };
  refused("reflect", 2, 0, 2);
  refused("reflect", 0, 2, 2);
  refused("circular", 3, 0, 2);
  refused("circular", 0, 3, 2);
  refused("edge", 1, 0, 0);
}

TEST_CASE("pad: builders") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"s", 2}, {"d", 1}}, {1, 2}));
  expect_equal(graph.value(pad(x, {0, 1}, {1, 0}, 5)), {5, 1, 5, 2, 5, 5});
  expect_equal(graph.value(pad(x, "s", 1, 0)), {0, 1, 2});
  expect_equal(graph.value(pad(x, "s", 1, 1, "reflect")), {2, 1, 2, 1});
  expect_equal(graph.value(pad(x, {0, 1}, {1, 0}, "edge")), {1, 1, 2, 2, 2, 2});
}

}  // namespace
}  // namespace tenon::testing
