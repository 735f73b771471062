#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/grad.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/linear_algebra.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/reduce.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tenon::testing {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("linear algebra: two by two") {
  const HostBuffer a = floats({2, 2}, {4, 2, 2, 5});
  expect_near(apply(Cholesky{}, {a}), {2, 0, 1, 2});
  expect_near(apply(Cholesky{}, {floats({2, 2}, {1, 2, 2, 1})}), {none, 0, none, none});
  expect_near(apply(Det{}, {a}), {16});
  expect_near(apply(Slogdet{}, {floats({2, 2}, {0, 1, 1, 0})}), {-1, 0});
  expect_near(apply(Slogdet{}, {floats({2, 2}, {1, 1, 1, 1})}),
              {0, -std::numeric_limits<double>::infinity()});
  const HostBuffer b = floats({2, 1}, {8, 9});
  expect_near(apply(Solve{}, {a, b}), {1.375, 1.25});
  expect_near(apply(TriangularSolve{}, {a, b}), {2, 1});
  expect_near(apply(TriangularSolve{.lower = false}, {a, b}), {1.1, 1.8});
  expect_near(apply(TriangularSolve{.transposed = true}, {a, b}), {1.1, 1.8});
  expect_near(apply(TriangularSolve{.unit = true}, {a, b}), {8, -7});
  const double root = std::sqrt(0.5);
  expect_near(apply(Eigh{}, {floats({2, 2}, {2, 1, 1, 2})}), {1, 3, root, root, -root, root});
}

TEST_CASE("linear algebra: batches, and matrices without elements") {
  const HostBuffer a = floats({2, 1, 1}, {4, 9});
  expect_near(apply(Cholesky{}, {a}), {2, 3});
  expect_near(apply(Det{}, {a}), {4, 9});
  expect_near(apply(Det{}, {floats({0, 0}, {})}), {1});
  expect_type(apply(Eigh{}, {floats({0, 0}, {})}).shape(), "f32[1, 0]");
  expect_type(apply(Solve{}, {floats({0, 3, 3}, {}), floats({0, 3, 2}, {})}).shape(),
              "f32[0, 3, 2]");
}

TEST_CASE("linear algebra: C1 .. C3") {
  const Shape square({3, 3}, f32);
  expect_error(Errc::unsupported_dtype, [] { infer(Cholesky{}, {Shape({3, 3}, i32)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Det{}, {Shape({3, 3}, f16)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Eigh{}, {Shape({3, 2}, f32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Slogdet{}, {Shape({3}, f32)}); });
  expect_error(Errc::unsupported_dtype, [&] { infer(Solve{}, {square, Shape({3, 1}, f64)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(Solve{}, {square, Shape({2, 1}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(Solve{}, {square, Shape({3}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [&] { infer(TriangularSolve{}, {square, Shape({2, 3, 1}, f32)}); });
}

/// Gradients of sum(g * f(a)) against central differences, element by element.
template <class Function>
void check_gradient(const HostBuffer& a, Function function) {
  ValuedGraph graph;
  Random random(3);
  const Tensor x = graph.input(a);
  const Tensor y = function(x);
  const HostBuffer weights = random.uniform(y.shape());
  const std::vector<double> got = elements(graph.value(grad(sum(y * graph.input(weights)), x)));
  const auto loss = [&](std::size_t element, double step) {
    std::vector<double> values = elements(a);
    values[element] += step;
    ValuedGraph other;
    const Tensor moved =
        other.input(HostBuffer::of<double>(a.shape(), std::span<const double>(values)));
    return elements(other.value(sum(function(moved) * other.input(weights))))[0];
  };
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i);
    CHECK(std::fabs(got[i] - (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5) < 1e-6);
  }
}

TEST_CASE("linear algebra: gradients") {
  const HostBuffer a = HostBuffer::of<double>(
      Shape({2, 3, 3}, f64), {4.0, 0.5, -0.25, 0.75, 3.0, 1.0, 0.1, 0.9, 2.0, 5.0, 1.5, 0.25, 1.0,
                              4.0, -1.0, 0.0, -0.5, 3.0});
  check_gradient(a, [](const Tensor& x) { return cholesky(x); });
  check_gradient(a, [](const Tensor& x) { return det(x); });
  check_gradient(a, [](const Tensor& x) { return slogdet(x).log_abs; });
  check_gradient(a, [](const Tensor& x) { return inverse(x); });
  check_gradient(a, [](const Tensor& x) { return solve(x, x * x); });
  check_gradient(a, [](const Tensor& x) { return eigh(x).values; });
  check_gradient(a, [](const Tensor& x) { return eigh(x).vectors; });
  for (const bool lower : {false, true}) {
    for (const bool transposed : {false, true}) {
      const TriangularSolve op{.lower = lower, .transposed = transposed, .unit = !lower};
      check_gradient(a, [&](const Tensor& x) { return triangular_solve(x, x + 1, op); });
    }
  }
}

TEST_CASE("svd: values, vectors, and matrices that lack rank") {
  const HostBuffer y = apply(Svd{}, {floats({2, 3}, {0, 3, 0, -2, 0, 0})});
  expect_near(y, {1, 0, 3, 0, 1, 0, 0, -1, 2, 1, 0, 0});
  // Vectors of singular values 0 complete the others.
  const HostBuffer zero = apply(Svd{}, {floats({3, 2}, {1, 1, 1, 1, 1, 1})});
  const std::vector<double> e = elements(zero);
  CHECK(e[3] == Approx(std::sqrt(6.0)));
  CHECK(std::fabs(e[9]) < 1e-6);
  CHECK(std::fabs(e[0] * e[6] + e[1] * e[7] + e[2] * e[8]) < 1e-6);
  CHECK(e[6] * e[6] + e[7] * e[7] + e[8] * e[8] == Approx(1));
  expect_type(apply(Svd{}, {floats({0, 3}, {})}).shape(), "f32[0, 4]");
  expect_error(Errc::unsupported_dtype, [] { infer(Svd{}, {Shape({3, 2}, f16)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Svd{}, {Shape({3}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Svd{}, {Shape({3, symbol("N")}, f32)}); });
}

TEST_CASE("svd: gradients") {
  const std::initializer_list<double> values = {4, 0.5, -0.25, 0.75, 3, 1};
  for (const Shape& shape : {Shape({2, 3}, f64), Shape({3, 2}, f64)}) {
    const HostBuffer a = HostBuffer::of<double>(shape, values);
    check_gradient(a, [](const Tensor& x) { return svd(x).u; });
    check_gradient(a, [](const Tensor& x) { return svd(x).values; });
    check_gradient(a, [](const Tensor& x) { return svd(x).v; });
  }
}

TEST_CASE("lu: factors, rows, singular matrices") {
  // Row 1 comes first: [4 2; 1 3] = [1 0; 0.25 1] [4 2; 0 2.5].
  expect_near(apply(Lu{}, {floats({2, 2}, {1, 3, 4, 2})}), {1, 0, 4, 2, 0.25, 2.5});
  expect_near(apply(Lu{}, {floats({2, 2}, {1, 1, 1, 1})}), {0, 1, 1, 1, 1, 0});
  expect_type(apply(Lu{}, {floats({0, 0}, {})}).shape(), "f32[1, 0]");
  expect_error(Errc::unsupported_dtype, [] { infer(Lu{}, {Shape({3, 3}, i64)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Lu{}, {Shape({3, 2}, f32)}); });
}

TEST_CASE("qr: tall, wide, without independent columns") {
  expect_near(apply(Qr{}, {floats({2, 1}, {-3, 4})}), {-0.6, 0.8, 5});
  expect_near(apply(Qr{}, {floats({1, 2}, {-3, 4})}), {-1, 3, -4});
  const std::vector<double> e = elements(apply(Qr{}, {floats({2, 2}, {1, 1, 1, 1})}));
  CHECK(std::fabs(e[0] * e[4] + e[1] * e[5]) < 1e-6);
  CHECK(e[2] == Approx(std::sqrt(2.0)));
  CHECK(std::fabs(e[7]) < 1e-6);
  expect_type(apply(Qr{}, {floats({0, 3}, {})}).shape(), "f32[0, 3]");
  expect_error(Errc::unsupported_dtype, [] { infer(Qr{}, {Shape({3, 2}, f16)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Qr{}, {Shape({3}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Qr{}, {Shape({3, symbol("N")}, f32)}); });
}

TEST_CASE("lu and qr: gradients") {
  const HostBuffer a = HostBuffer::of<double>(
      Shape({2, 3, 3}, f64), {0.5, 3.0, -0.25, 4.0, 0.75, 1.0, 0.1, 0.9, 2.0, 1.0, 4.0, -1.0, 0.0,
                              -0.5, 3.0, 5.0, 1.5, 0.25});
  const HostBuffer b = HostBuffer::of<double>(Shape({2, 3, 1}, f64), {1, -2, 3, 0.5, 1.5, -1});
  check_gradient(a, [](const Tensor& x) { return lu(x).packed; });
  check_gradient(a, [](const Tensor& x) { return lu_solve(lu(x), x * x); });
  ValuedGraph graph;
  const Tensor x = graph.input(a), y = graph.input(b);
  expect_close(graph.value(lu_solve(lu(x), y)), graph.value(solve(x, y)), 1e-12, 1e-12);
  const std::initializer_list<double> values = {4, 0.5, -0.25, 0.75, 3, 1};
  for (const Shape& shape : {Shape({2, 3}, f64), Shape({3, 2}, f64)}) {
    const HostBuffer c = HostBuffer::of<double>(shape, values);
    check_gradient(c, [](const Tensor& z) { return qr(z).q; });
    check_gradient(c, [](const Tensor& z) { return qr(z).r; });
  }
  check_gradient(a, [](const Tensor& z) { return qr(z).r; });
}

TEST_CASE("linear algebra: matrices larger than a block") {
  Random random(5);
  const HostBuffer a = random.uniform(Shape({200, 200}, f64));
  HostBuffer unit = HostBuffer::zeros(Shape({200, 200}, f64));
  for (std::size_t i = 0; i < 200; ++i) unit.mutable_values<double>()[i * 201] = 1;
  ValuedGraph graph;
  const Tensor x = graph.input(a), square = matmul(x, transpose(x)), one = graph.input(unit);
  const auto largest = [&](const Tensor& error) {
    double most = 0;
    for (const double e : elements(graph.value(error))) most = std::max(most, std::fabs(e));
    return most;
  };
  const Tensor l = cholesky(square + one);
  CHECK(largest(matmul(l, transpose(l)) - square - one) < 1e-11);
  CHECK(largest(matmul(x, lu_solve(lu(x), one)) - one) < 1e-9);
  CHECK(largest(matmul(x, inverse(x)) - one) < 1e-9);
  const QrFactors factors = qr(x);
  CHECK(largest(matmul(factors.q, factors.r) - x) < 1e-12);
  CHECK(largest(matmul(transpose(factors.q), factors.q) - one) < 1e-12);
  const SingularValues s = svd(x);
  CHECK(largest(matmul(s.u * unsqueeze(s.values, 0), s.v) - x) < 1e-11);
  const EigenPairs e = eigh(square);
  CHECK(largest(matmul(square, e.vectors) - e.vectors * unsqueeze(e.values, 0)) < 1e-10);
}

TEST_CASE("linear algebra: elements that are not finite") {
  const HostBuffer a = floats({2, 2}, {1, none, none, 2});
  expect_near(apply(Eigh{}, {a}), {none, none, none, none, none, none});
  expect_near(apply(Svd{}, {a}), {none, none, none, none, none, none, none, none, none, none});
  expect_near(apply(Cholesky{}, {a}), {none, 0, none, none});
}

TEST_CASE("inverse: a worked example, and types") {
  ValuedGraph graph;
  expect_near(graph.value(inverse(graph.input(floats({2, 2}, {4, 2, 2, 5})))),
              {0.3125, -0.125, -0.125, 0.25});
  Graph other;
  const Tensor x = other.input("x", Shape({symbol("N"), symbol("N")}, f32));
  expect_type(inverse(x).shape(), "f32[N, N]");
  expect_type(cholesky(x).shape(), "f32[N, N]");
}

}  // namespace
}  // namespace tenon::testing
