#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/sort.hpp>
#include <tenon/session.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("sort: ascending and descending along an axis") {
  const HostBuffer x = floats({2, 3}, {3, 1, 2, -1, 5, -1});
  expect_equal(apply(Sort{.axis = 1}, {x}), {1, 2, 3, -1, -1, 5});
  expect_equal(apply(Sort{.axis = 1, .descending = true}, {x}), {3, 2, 1, 5, -1, -1});
  expect_equal(apply(Sort{.axis = 0}, {x}), {-1, 1, -1, 3, 5, 2});
  expect_type(apply(Sort{.axis = 1}, {floats({2, 0}, {})}).shape(), "f32[2, 0]");
  expect_type(infer(Sort{}, {Shape({{"n", symbol("N")}, {"d", 4}}, f16)}), "f16[n=N, d=4]");
}

TEST_CASE("argsort: equal elements keep their order") {
  const HostBuffer x = floats({5}, {2, 1, 2, 1, 3});
  expect_type(apply(Argsort{}, {x}).shape(), "i32[5]");
  expect_equal(apply(Argsort{}, {x}), {1, 3, 0, 2, 4});
  expect_equal(apply(Argsort{.descending = true}, {x}), {4, 0, 2, 1, 3});
}

TEST_CASE("sort: a NaN is larger than any number; zeros are equal") {
  const float inf = std::numeric_limits<float>::infinity();
  const HostBuffer x = floats({5}, {nan, inf, -0.0F, 0, -inf});
  expect_equal(apply(Argsort{}, {x}), {4, 2, 3, 1, 0});
  expect_equal(apply(Argsort{.descending = true}, {x}), {0, 1, 2, 3, 4});
  expect_equal(apply(Sort{}, {x}), {-inf, 0, 0, inf, nan});
}

TEST_CASE("sort: integers beyond 2^53") {
  const std::int64_t big = std::int64_t{1} << 53;
  expect_equal(apply(Argsort{}, {longs({3}, {big + 1, big, -big})}), {2, 1, 0});
}

TEST_CASE("sort: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] { infer(Sort{.axis = 1}, {Shape({2}, f32)}); });
  expect_error(Errc::axis_out_of_range, [] { infer(Argsort{}, {Shape({}, f32)}); });
}
TEST_CASE("sort: C2 bool") {
  expect_error(Errc::unsupported_dtype, [] { infer(Sort{}, {Shape({2}, boolean)}); });
}
TEST_CASE("sort: C3 more elements than i32 counts") {
  const Shape most({std::int64_t{1} << 31}, i8), more({(std::int64_t{1} << 31) + 1}, i8);
  CHECK_NOTHROW(infer(Argsort{}, {most}));
  expect_error(Errc::limit_exceeded, [&] { infer(Argsort{}, {more}); });
}

TEST_CASE("searchsorted: places in an ascending array") {
  const HostBuffer sorted = floats({4}, {1, 2, 2, 5}), values = floats({2, 3}, {0, 1, 2, 3, 5, 6});
  expect_type(apply(Searchsorted{}, {sorted, values}).shape(), "i32[2, 3]");
  expect_equal(apply(Searchsorted{}, {sorted, values}), {0, 0, 1, 3, 3, 4});
  expect_equal(apply(Searchsorted{.right = true}, {sorted, values}), {0, 1, 3, 3, 4, 4});
  const HostBuffer rows = floats({2, 2}, {1, 2, 10, 20});
  expect_equal(apply(Searchsorted{}, {rows, floats({2, 1}, {15, 15})}), {2, 1});
  expect_equal(apply(Searchsorted{}, {floats({0}, {}), floats({2}, {1, nan})}), {0, 0});
  expect_equal(apply(Searchsorted{}, {floats({3}, {1, nan, nan}), floats({1}, {nan})}), {1});
}

TEST_CASE("searchsorted: C1 an array without axes") {
  expect_error(Errc::bad_shape, [] { infer(Searchsorted{}, {Shape({}, f32), Shape({2}, f32)}); });
}
TEST_CASE("searchsorted: C2 bool") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Searchsorted{}, {Shape({2}, boolean), Shape({2}, boolean)}); });
}
TEST_CASE("searchsorted: C3 dtypes, ranks and sizes") {
  const auto refused = [](const Shape& sorted, const Shape& values) {
    expect_error(Errc::shape_mismatch, [&] { infer(Searchsorted{}, {sorted, values}); });
  };
  refused(Shape({2}, f32), Shape({2}, f64));
  refused(Shape({2, 3}, f32), Shape({2}, f32));
  refused(Shape({2, 3}, f32), Shape({3, 3}, f32));
}
TEST_CASE("searchsorted: C4 more elements than i32 counts") {
  expect_error(Errc::limit_exceeded,
               [] { infer(Searchsorted{}, {Shape({std::int64_t{1} << 31}, i8), Shape({1}, i8)}); });
}

TEST_CASE("sort: builders") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 1}, {"v", 3}}, {1, 3, 2}));
  expect_equal(graph.value(sort(x)), {1, 2, 3});
  const SortResult both = sort_with_indices(x, "v", true);
  expect_equal(graph.value(both.values), {3, 2, 1});
  expect_equal(graph.value(both.indices), {1, 2, 0});
  const Tensor row = graph.input(floats({3}, {1, 2, 3}));
  expect_equal(graph.value(searchsorted(row, x, true)), {1, 3, 2});
}

TEST_CASE("sort: a gradient along an axis of unknown size") {
  register_reference_backend();
  Graph graph;
  const Graph::Recording recording(graph);
  const Shape shape({symbol("N"), 2}, f32);
  const Tensor x = graph.input("x", shape), upstream = graph.input("g", shape);
  const Tensor sorted = sort(x, 0);
  Session session(graph.program(grad({&sorted, 1}, {&upstream, 1}, {&x, 1})),
                  {.backends = {make_backend("reference")}});
  const Buffer values = floats({3, 2}, {3, 1, 1, 2, 2, 3}).to_device(cpu_device());
  const Buffer slopes = floats({3, 2}, {10, 20, 30, 40, 50, 60}).to_device(cpu_device());
  expect_equal(session.forward({values, slopes}).at(0).to_host(), {50, 20, 10, 40, 30, 60});
}

TEST_CASE("unique: distinct elements, padded to a capacity") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2, 3}, {3, 1, 3, nan, 2, nan}));
  const UniqueResult all = unique(x, 6, -1);
  expect_equal(graph.value(all.values), {1, 2, 3, nan, -1, -1});
  expect_equal(graph.value(all.count), {4});
  expect_equal(graph.value(all.counts), {1, 1, 2, 2, 0, 0});
  expect_equal(graph.value(all.inverse), {2, 0, 2, 3, 1, 3});
  expect_type(all.inverse.shape(), "i64[2, 3]");
  const UniqueResult some = unique(x, 2);
  expect_equal(graph.value(some.values), {1, 2});
  expect_equal(graph.value(some.count), {4});
  const UniqueResult none = unique(graph.input(floats({0}, {})), 2, 7);
  expect_equal(graph.value(none.values), {7, 7});
  expect_equal(graph.value(none.count), {0});
  expect_error(Errc::bad_argument, [&] { unique(x, -1); });
}

}  // namespace
}  // namespace tenon::testing
