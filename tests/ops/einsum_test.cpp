#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/einsum.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("einsum: a product of matrices, its trace, and sizes that are symbols") {
  ValuedGraph graph;
  const Tensor a = graph.input(floats({2, 2}, {1, 2, 3, 4}));
  const Tensor b = graph.input(floats({2, 2}, {5, 6, 7, 8}));
  expect_equal(graph.value(einsum("ij,jk->ik", {a, b})), {19, 22, 43, 50});
  expect_equal(graph.value(einsum("ij, ji", {a, b})), {69});
  expect_equal(graph.value(einsum("ii", {a})), {5});
  expect_equal(graph.value(einsum("ba", {a})), {1, 3, 2, 4});

  Graph other;
  const Tensor x = other.input("x", Shape({symbol("B"), symbol("S"), 4}, f32));
  const Tensor w = other.input("w", Shape({4, 3, 2}, f32));
  expect_type(einsum("bsd,dhk->bhsk", {x, w}).shape(), "f32[B, 3, S, 2]");
  expect_type(einsum("bsd->bs", {x}).shape(), "f32[B, S]");
}

TEST_CASE("einsum: integers keep their type and wrap") {
  ValuedGraph graph;
  const Tensor x = graph.input(HostBuffer::of<std::int8_t>(Shape({2, 2}, i8), {100, 100, -100, 1}));
  expect_equal(graph.value(einsum("ij->i", {x})), {-56, -99});
  const Tensor u = graph.input(HostBuffer::of<std::uint8_t>(Shape({2}, u8), {200, 100}));
  expect_equal(graph.value(einsum("i->", {u})), {44});
  expect_type(einsum("ij->i", {x}).shape(), "i8[2]");
}

TEST_CASE("einsum: errors") {
  Graph graph;
  const Tensor a = graph.input("a", Shape({2, 3}, f32)), b = graph.input("b", Shape({3, 4}, f32));
  const auto fails = [&](Errc code, const char* equation) {
    INFO(equation);
    expect_error(code, [&] { (void)einsum(equation, {a, b}); });
  };
  fails(Errc::bad_argument, "ij->ij");
  fails(Errc::bad_argument, "ij,jk,kl->il");
  fails(Errc::bad_argument, "ij,jk->iik");
  fails(Errc::bad_argument, "ij,jk->iz");
  fails(Errc::bad_argument, "ij,j1->i");
  fails(Errc::bad_argument, "i..,jk->i");
  fails(Errc::shape_mismatch, "ijk,jk->i");
  fails(Errc::shape_mismatch, "ij,ik->jk");
  fails(Errc::shape_mismatch, "ii,jk->jk");
  expect_error(Errc::bad_argument, [] { (void)einsum("", std::span<const Tensor>()); });
}

TEST_CASE("diagonal, trace, outer, inner, tensordot, kron") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({2, 3}, {1, 2, 3, 4, 5, 6}));
  expect_equal(graph.value(diagonal(x)), {1, 5});
  expect_equal(graph.value(diagonal(x, 1)), {2, 6});
  expect_equal(graph.value(diagonal(x, -1)), {4});
  expect_type(diagonal(x, 3).shape(), "f32[0]");
  expect_equal(graph.value(trace(x)), {6});
  const Tensor v = graph.input(floats({2}, {10, 20}));
  expect_equal(graph.value(outer(v, v)), {100, 200, 200, 400});
  expect_equal(graph.value(inner(x, x)), {14, 32, 32, 77});
  expect_equal(graph.value(tensordot(x, x, 2)), {91});
  expect_type(tensordot(x, v, 0).shape(), "f32[2, 3, 2]");
  expect_equal(graph.value(kron(v, x)), {10, 20, 30, 20, 40, 60, 40, 50, 60, 80, 100, 120});
  expect_error(Errc::bad_argument, [&] { (void)diagonal(x, 0, 0, 0); });
  expect_error(Errc::bad_argument, [&] { (void)tensordot(x, v, 2); });
}

}  // namespace
}  // namespace tenon::testing
