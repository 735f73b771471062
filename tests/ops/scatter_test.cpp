#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/scatter.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("scatter: elements along an axis, in the order of the index") {
  const HostBuffer x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const HostBuffer index = ints({2, 2}, {2, 2, 0, 1}), source = floats({2, 2}, {7, 8, 9, 10});
  expect_equal(apply(Scatter{.axis = 1}, {x, index, source}), {1, 2, 8, 9, 10, 6});
  expect_equal(apply(Scatter{.axis = 1, .mode = "add"}, {x, index, source}), {1, 2, 18, 13, 15, 6});
  expect_equal(apply(Scatter{.axis = 1, .mode = "mul"}, {x, index, source}),
               {1, 2, 168, 36, 50, 6});
  expect_equal(apply(Scatter{.axis = 1, .mode = "min"}, {x, index, source}), {1, 2, 3, 4, 5, 6});
  expect_equal(apply(Scatter{.axis = 1, .mode = "max"}, {x, index, source}), {1, 2, 8, 9, 10, 6});
}

TEST_CASE("scatter: an index smaller than x leaves the rest") {
  const HostBuffer x = floats({2, 2}, {1, 2, 3, 4});
  expect_equal(apply(Scatter{.axis = 0, .mode = "add"},
                     {x, longs({3, 1}, {1, 1, 0}), floats({3, 1}, {10, 20, 30})}),
               {31, 2, 33, 4});
  expect_equal(apply(Scatter{.axis = 0}, {x, longs({0, 2}, {}), floats({0, 2}, {})}), {1, 2, 3, 4});
  expect_type(apply(Scatter{.axis = 1}, {floats({0, 2}, {}), longs({0, 1}, {}), floats({0, 1}, {})})
                  .shape(),
              "f32[0, 2]");
}

TEST_CASE("scatter: a NaN makes minimum and maximum NaN; whole numbers wrap") {
  const HostBuffer x = floats({2}, {1, nan}), index = ints({2}, {0, 1});
  expect_equal(apply(Scatter{.mode = "min"}, {x, index, floats({2}, {nan, 0})}), {nan, nan});
  const HostBuffer bytes = HostBuffer::of<std::int8_t>(Shape({1}, i8), {100});
  const HostBuffer twice = HostBuffer::of<std::int8_t>(Shape({2}, i8), {100, 100});
  expect_equal(apply(Scatter{.mode = "add"}, {bytes, ints({2}, {0, 0}), twice}), {44});
}

TEST_CASE("scatter: tags and sizes that are not known yet") {
  const Shape x({{"v", symbol("V")}, {"d", 4}}, f16);
  expect_type(infer(Scatter{}, {x, Shape({symbol("N"), 4}, i32), Shape({symbol("N"), 4}, f16)}),
              "f16[v=V, d=4]");
}

TEST_CASE("scatter: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] {
    infer(Scatter{.axis = 1}, {Shape({2}, f32), Shape({2}, i32), Shape({2}, f32)});
  });
}
TEST_CASE("scatter: C2 indices of another type") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Scatter{}, {Shape({2}, f32), Shape({2}, u8), Shape({2}, f32)}); });
}
TEST_CASE("scatter: C3 block types, and sums of bool") {
  const Shape blocks({32}, DType::q8_0), flags({2}, boolean);
  expect_error(Errc::unsupported_dtype,
               [&] { infer(Scatter{}, {blocks, Shape({2}, i32), blocks}); });
  expect_error(Errc::unsupported_dtype,
               [&] { infer(Scatter{.mode = "max"}, {flags, Shape({2}, i32), flags}); });
}
TEST_CASE("scatter: C4 ranks, dtypes and sizes") {
  const auto refused = [](const Shape& index, const Shape& source) {
    expect_error(Errc::shape_mismatch,
                 [&] { infer(Scatter{}, {Shape({2, 3}, f32), index, source}); });
  };
  refused(Shape({2}, i32), Shape({2}, f32));
  refused(Shape({2, 3}, i32), Shape({2, 3}, f64));
  refused(Shape({2, 3}, i32), Shape({1, 3}, f32));
  refused(Shape({2, 4}, i32), Shape({2, 4}, f32));
}
TEST_CASE("scatter: C5 mode") {
  expect_error(Errc::bad_attribute, [] {
    infer(Scatter{.mode = "sum"}, {Shape({2}, f32), Shape({2}, i32), Shape({2}, f32)});
  });
}
TEST_CASE("scatter: an index out of range") {
  for (const int index : {-1, 2}) {
    expect_error(Errc::out_of_range, [&] {
      run_reference(
          OpInstance(Scatter{}),
          std::vector<HostBuffer>{floats({2}, {1, 2}), ints({1}, {index}), floats({1}, {3})});
    });
  }
}

TEST_CASE("scatter: builders broadcast the source and keep tags") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"v", 3}, {"d", 2}}, {1, 2, 3, 4, 5, 6}));
  const Tensor one = graph.input(floats({}, {1})), rows = graph.input(ints({2}, {2, 2}));
  const Tensor added = index_add(x, rows, one, "v");
  expect_type(added.shape(), "f32[v=3, d=2]");
  expect_equal(graph.value(added), {1, 2, 3, 4, 7, 8});
  expect_equal(graph.value(index_put(x, graph.input(longs({}, {1})), one, "d")),
               {1, 1, 3, 1, 5, 1});
  expect_equal(graph.value(scatter(x, graph.input(ints({1, 2}, {0, 1})), one, 0, "max")),
               {1, 2, 3, 4, 5, 6});
  const Tensor pairs = graph.input(ints({2, 2}, {0, 1, 2, 0}));
  expect_equal(graph.value(gather_nd(x, pairs)), {2, 5});
  const Tensor put = scatter_nd(x, pairs, one);
  expect_type(put.shape(), "f32[v=3, d=2]");
  expect_equal(graph.value(put), {1, 1, 3, 4, 1, 6});
}

TEST_CASE("gather_nd and scatter_nd: what is refused") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2, 2}, {1, 2, 3, 4}));
  const auto pairs = [&](int a, int b) { return graph.input(ints({1, 2}, {a, b})); };
  // Each index is checked, not the place they add up to.
  expect_error(Errc::out_of_range, [&] { graph.value(gather_nd(x, pairs(0, 2))); });
  expect_error(Errc::out_of_range, [&] {
    graph.value(scatter_nd(x, pairs(1, -1), graph.input(floats({}, {1})), "add"));
  });
  expect_error(Errc::bad_argument, [&] { gather_nd(x, pairs(0, 0), 2); });
  expect_error(Errc::bad_argument, [&] { gather_nd(x, pairs(0, 0), -1); });
  expect_error(Errc::shape_mismatch, [&] { gather_nd(x, pairs(0, 0), 1); });
  expect_error(Errc::unsupported_dtype, [&] { gather_nd(x, graph.input(floats({1, 1}, {0}))); });
}

}  // namespace
}  // namespace tenon::testing
