#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/axes.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("split_axis: one axis as several") {
  const HostBuffer y =
      apply(SplitAxis{.axis = 1, .sizes = {2, -1}}, {ints({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})});
  expect_type(y.shape(), "i32[2, 2, 2]");
  expect_equal(y, {1, 2, 3, 4, 5, 6, 7, 8});
  expect_type(apply(SplitAxis{.axis = 0, .sizes = {0, 7}}, {floats({0, 2}, {})}).shape(),
              "f32[0, 7, 2]");
  expect_type(apply(SplitAxis{.axis = 0, .sizes = {5, -1}}, {floats({0}, {})}).shape(),
              "f32[5, 0]");
}

TEST_CASE("split_axis: other axes keep tags and symbols") {
  const Shape x({{"b", symbol("B")}, {"s", symbol("S")}, {"d", 64}}, f32);
  expect_type(infer(SplitAxis{.axis = 2, .sizes = {8, 8}}, {x}), "f32[b=B, s=S, 8, 8]");
  expect_type(infer(SplitAxis{.axis = 1, .sizes = {-1, 1}}, {x}), "f32[b=B, S, 1, d=64]");
  expect_type(infer(SplitAxis{.axis = 1, .sizes = {4, -1}}, {x}), "f32[b=B, 4, _, d=64]");
}

TEST_CASE("split_axis: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range,
               [] { infer(SplitAxis{.axis = 1, .sizes = {1}}, {Shape({4}, f32)}); });
}
TEST_CASE("split_axis: C2 sizes") {
  expect_error(Errc::bad_shape, [] { infer(SplitAxis{}, {Shape({4}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(SplitAxis{.sizes = {-1, -1}}, {Shape({4}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(SplitAxis{.sizes = {-2, -2}}, {Shape({4}, f32)}); });
}
TEST_CASE("split_axis: C3 sizes that do not multiply to the axis") {
  expect_error(Errc::bad_shape, [] { infer(SplitAxis{.sizes = {3, -1}}, {Shape({4}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(SplitAxis{.sizes = {3, 2}}, {Shape({4}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(SplitAxis{.sizes = {0}}, {Shape({4}, f32)}); });
}
TEST_CASE("split_axis: C4 -1 beside 0") {
  expect_error(Errc::bad_shape, [] { infer(SplitAxis{.sizes = {0, -1}}, {Shape({0}, f32)}); });
}
TEST_CASE("split_axis: C5 rank") {
  expect_error(Errc::bad_shape,
               [] { infer(SplitAxis{.sizes = {1, 1}}, {Shape({1, 1, 1, 1, 1, 1, 1, 1}, f32)}); });
}
TEST_CASE("split_axis: C6 blocks") {
  expect_type(infer(SplitAxis{.sizes = {2, 2}}, {Shape({4, 32}, DType::q8_0)}), "q8_0[2, 2, 32]");
  expect_error(Errc::unsupported_dtype, [] {
    infer(SplitAxis{.axis = 1, .sizes = {2, 32}}, {Shape({4, 64}, DType::q8_0)});
  });
}

TEST_CASE("merge_axes: several axes as one") {
  const HostBuffer y = apply(MergeAxes{.axis = 0, .count = 2}, {ints({2, 2, 1}, {1, 2, 3, 4})});
  expect_type(y.shape(), "i32[4, 1]");
  expect_equal(y, {1, 2, 3, 4});
  expect_type(apply(MergeAxes{.axis = 1, .count = 1}, {floats({2, 3}, {1, 2, 3, 4, 5, 6})}).shape(),
              "f32[2, 3]");
}

TEST_CASE("merge_axes: tags and symbols") {
  const Shape x({{"b", symbol("B")}, {"s", 1}, {"h", 4}, {"d", 8}}, f32);
  expect_type(infer(MergeAxes{.axis = 2, .count = 2}, {x}), "f32[b=B, s=1, 32]");
  expect_type(infer(MergeAxes{.axis = 0, .count = 2}, {x}), "f32[B, h=4, d=8]");
  expect_type(infer(MergeAxes{.axis = 0, .count = 3}, {x}), "f32[_, d=8]");
}

TEST_CASE("merge_axes: C1 axes out of range") {
  expect_error(Errc::axis_out_of_range,
               [] { infer(MergeAxes{.axis = 2, .count = 1}, {Shape({2, 2}, f32)}); });
  expect_error(Errc::axis_out_of_range,
               [] { infer(MergeAxes{.axis = 1, .count = 2}, {Shape({2, 2}, f32)}); });
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_error(Errc::axis_out_of_range,
               [] { infer(MergeAxes{.axis = 1, .count = most}, {Shape({2, 2}, f32)}); });
}
TEST_CASE("merge_axes: C2 count") {
  expect_error(Errc::bad_attribute,
               [] { infer(MergeAxes{.axis = 0, .count = 0}, {Shape({2}, f32)}); });
}
TEST_CASE("merge_axes: C3 blocks") {
  expect_type(infer(MergeAxes{.axis = 0, .count = 2}, {Shape({2, 2, 32}, DType::q8_0)}),
              "q8_0[4, 32]");
  expect_error(Errc::unsupported_dtype,
               [] { infer(MergeAxes{.axis = 0, .count = 2}, {Shape({2, 32}, DType::q8_0)}); });
}

TEST_CASE("unsqueeze and squeeze: an axis of size 1 more and less") {
  const HostBuffer x = ints({2}, {1, 2});
  expect_type(apply(Unsqueeze{.axis = 0}, {x}).shape(), "i32[1, 2]");
  const HostBuffer column = apply(Unsqueeze{.axis = 1}, {x});
  expect_type(column.shape(), "i32[2, 1]");
  expect_equal(column, {1, 2});
  expect_type(apply(Squeeze{.axis = 1}, {column}).shape(), "i32[2]");
  expect_type(infer(Unsqueeze{.axis = 1}, {Shape({{"b", symbol("B")}, {"d", 2}}, f32)}),
              "f32[b=B, 1, d=2]");
  expect_type(infer(Squeeze{.axis = 1}, {Shape({{"b", symbol("B")}, symbol("S")}, f32)}),
              "f32[b=B]");
}

TEST_CASE("unsqueeze: C1 .. C3") {
  expect_error(Errc::axis_out_of_range, [] { infer(Unsqueeze{.axis = 2}, {Shape({2}, f32)}); });
  expect_error(Errc::axis_out_of_range, [] { infer(Unsqueeze{.axis = -1}, {Shape({2}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Unsqueeze{}, {Shape({1, 1, 1, 1, 1, 1, 1, 1}, f32)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(Unsqueeze{.axis = 1}, {Shape({32}, DType::q8_0)}); });
}
TEST_CASE("squeeze: C1 and C2") {
  expect_error(Errc::axis_out_of_range, [] { infer(Squeeze{.axis = 1}, {Shape({1}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Squeeze{.axis = 0}, {Shape({2}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Squeeze{.axis = 0}, {Shape({0}, f32)}); });
}

TEST_CASE("axes: builders carry tags") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"s", 1}, {"d", 4}}, {1, 2, 3, 4}));
  const Tensor heads = split_axis(x, "d", {{"h", 2}, {"hd", -1}});
  expect_type(heads.shape(), "f32[s=1, h=2, hd=2]");
  expect_type(split_axis(x, "d", {2, 2}).shape(), "f32[s=1, 2, 2]");
  expect_type(merge_axes(heads, "h", "hd", "d").shape(), "f32[s=1, d=4]");
  expect_equal(graph.value(merge_axes(heads, "h", "hd")), {1, 2, 3, 4});
  expect_type(flatten(heads).shape(), "f32[4]");
  expect_type(flatten(heads, 1).shape(), "f32[s=1, 4]");
  expect_type(flatten(graph.input(floats({}, {1}))).shape(), "f32[1]");
  expect_type(unsqueeze(x, -1).shape(), "f32[s=1, d=4, 1]");
  expect_type(unsqueeze(x, 0, "b").shape(), "f32[b=1, s=1, d=4]");
  expect_type(squeeze(x, "s").shape(), "f32[d=4]");
  expect_error(Errc::bad_attribute, [&] { merge_axes(x, "d", "s"); });
  expect_error(Errc::bad_shape, [&] { split_axis(x, "d", {{"s", 2}, {"hd", 2}}); });
  expect_error(Errc::axis_out_of_range, [&] { unsqueeze(x, -4); });
}

}  // namespace
}  // namespace tenon::testing
