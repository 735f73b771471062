#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/selection.hpp>

namespace tenon::testing {
namespace {

HostBuffer flags(const Shape& shape, std::initializer_list<bool> values) {
  return HostBuffer::of<bool>(shape, values);
}

TEST_CASE("selection: bincount and one_hot") {
  ValuedGraph graph;
  const Tensor ids = graph.input(longs({2, 2}, {1, 3, 1, 0}));
  const Tensor counts = bincount(ids, 5);
  expect_type(counts.shape(), "i64[5]");
  expect_equal(graph.value(counts), {1, 2, 0, 1, 0});
  const Tensor weights = graph.input(floats({2, 2}, {1, 2, 4, 8}));
  expect_equal(graph.value(bincount(ids, 4, weights)), {8, 5, 0, 2});
  expect_equal(graph.value(one_hot(graph.input(ints({2}, {1, 7})), 3, 2, -1)),
               {-1, 2, -1, -1, -1, -1});
  const Tensor square = bincount(ids, 4, weights) * bincount(ids, 4, weights);
  expect_equal(graph.value(grad(sum(square), weights)), {10, 4, 10, 16});
  expect_error(Errc::out_of_range, [&] { graph.value(bincount(ids, 3)); });
  expect_error(Errc::bad_argument, [&] { bincount(ids, -1); });
  expect_error(Errc::unsupported_dtype, [&] { bincount(weights, 3); });
  expect_error(Errc::shape_mismatch,
               [&] { bincount(ids, 4, graph.input(floats({4}, {1, 2, 3, 4}))); });
}

TEST_CASE("selection: masks and triangles") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"r", 2}, {"c", 3}}, {1, 2, 3, 4, 5, 6}));
  const Tensor mask = graph.input(flags(Shape({3}, boolean), {true, false, true}));
  expect_equal(graph.value(masked_fill(x, mask, -1)), {-1, 2, -1, -1, 5, -1});
  expect_equal(graph.value(grad(sum(masked_fill(x, mask, -1)), x)), {0, 1, 0, 0, 1, 0});
  expect_equal(graph.value(tril(x)), {1, 0, 0, 4, 5, 0});
  expect_equal(graph.value(triu(x, 1)), {0, 2, 3, 0, 0, 6});
  expect_type(triu(x, -1).shape(), "f32[r=2, c=3]");
  expect_equal(graph.value(grad(sum(tril(x, 1)), x)), {1, 1, 0, 1, 1, 1});
  const Tensor row = graph.input(floats({2}, {7, 8}));
  expect_equal(graph.value(diagonal_matrix(row)), {7, 0, 0, 8});
  expect_equal(graph.value(diagonal_matrix(row, 1)), {0, 7, 0, 0, 0, 8, 0, 0, 0});
  expect_equal(graph.value(diagonal_matrix(row, -1)), {0, 0, 0, 7, 0, 0, 0, 8, 0});
  expect_equal(graph.value(grad(sum(diagonal_matrix(row, 1)), row)), {1, 1});
  expect_error(Errc::bad_shape, [&] { tril(row); });
  expect_error(Errc::bad_shape, [&] { triu(row); });
  expect_error(Errc::bad_shape, [&] { diagonal_matrix(graph.input(floats({}, {1}))); });
  expect_error(Errc::shape_mismatch, [&] {
    masked_fill(row, graph.input(flags(Shape({2, 1}, boolean), {true, false})), 0);
  });
}

TEST_CASE("selection: results of a stated capacity") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2, 3}, {0, 2, 0, 4, 5, 0}));
  const NonzeroResult all = nonzero(x, 4);
  expect_type(all.indices.shape(), "i64[4, 2]");
  expect_equal(graph.value(all.indices), {0, 1, 1, 0, 1, 1, -1, -1});
  expect_equal(graph.value(all.count), {3});
  const NonzeroResult some = nonzero(x, 2, 9);
  expect_equal(graph.value(some.indices), {0, 1, 1, 0});
  expect_equal(graph.value(some.count), {3});
  expect_equal(graph.value(nonzero(graph.input(floats({0, 2}, {})), 1).indices), {-1, -1});
  expect_type(nonzero(x, 0).indices.shape(), "i64[0, 2]");

  const Tensor mask = graph.input(flags(Shape({3}, boolean), {true, false, true}));
  const MaskedSelectResult chosen = masked_select(x, mask, 5, -1);
  expect_equal(graph.value(chosen.values), {0, 0, 4, 0, -1});
  expect_equal(graph.value(chosen.count), {4});
  const Tensor first = masked_select(x, mask, 3).values;
  expect_equal(graph.value(first), {0, 0, 4});
  expect_equal(graph.value(grad(sum(first * first), x)), {0, 0, 0, 8, 0, 0});
  expect_equal(graph.value(grad(sum(first), x)), {1, 0, 1, 1, 0, 0});

  expect_error(Errc::bad_argument, [&] { nonzero(x, -1); });
  expect_error(Errc::bad_shape, [&] { nonzero(graph.input(floats({}, {1})), 1); });
  expect_error(Errc::bad_argument, [&] { masked_select(x, mask, -1); });
  expect_error(Errc::unsupported_dtype, [&] { masked_select(x, x, 1); });
  expect_error(Errc::shape_mismatch, [&] {
    masked_select(x, graph.input(flags(Shape({2}, boolean), {true, false})), 1);
  });
}

TEST_CASE("selection: sizes that are not known yet") {
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor row = graph.input("row", Shape({{"n", symbol("N")}}, f32));
  expect_type(nonzero(row, 2).indices.shape(), "i64[2, 1]");
  const Tensor x = graph.input("x", Shape({symbol("N"), 3}, f32));
  expect_type(nonzero(x, 2).indices.shape(), "i64[2, 2]");
  expect_type(tril(x).shape(), "f32[N, 3]");
  expect_type(eye(2, 3, 1, f64).shape(), "f64[2, 3]");
  expect_error(Errc::bad_shape, [] { eye(-1, 3); });
}

}  // namespace
}  // namespace tenon::testing
