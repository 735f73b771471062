#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/grad.hpp>
#include <tenon/ops/fft.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/reduce.hpp>

namespace tenon::testing {
namespace {

TEST_CASE("fft: four numbers, and back") {
  const HostBuffer x = floats({4, 2}, {1, 0, 2, 0, 3, 0, 4, 1});
  const HostBuffer y = apply(Fft{}, {x});
  expect_near(y, {10, 1, -3, 2, -2, -1, -1, -2});
  expect_near(apply(Fft{.inverse = true}, {y}), {1, 0, 2, 0, 3, 0, 4, 1});
  expect_type(apply(Fft{}, {floats({0, 2}, {})}).shape(), "f32[0, 2]");
}

TEST_CASE("rfft and irfft: half of the bins") {
  const HostBuffer x = floats({2, 3}, {1, 2, 4, 0, 1, 0});
  const HostBuffer y = apply(Rfft{.axis = 1}, {x});
  expect_type(y.shape(), "f32[2, 2, 2]");
  expect_near(y, {7, 0, -2, 1.7320508, 1, 0, -0.5, -0.8660254});
  expect_near(apply(Irfft{.axis = 1, .size = 3}, {y}), {1, 2, 4, 0, 1, 0});
  // Imaginary parts that real numbers do not have are left aside.
  expect_near(apply(Irfft{.size = 2}, {floats({2, 2}, {3, 9, 1, 9})}), {2, 1});
  expect_near(apply(Irfft{.size = 1}, {floats({1, 2}, {3, 9})}), {3});
}

TEST_CASE("fft: errors by their numbers") {
  expect_error(Errc::unsupported_dtype, [] { infer(Fft{}, {Shape({4, 2}, f16)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Fft{}, {Shape({4, 3}, f32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Fft{}, {Shape({2}, f32)}); });
  expect_error(Errc::axis_out_of_range, [] { infer(Fft{.axis = 1}, {Shape({4, 2}, f32)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Rfft{}, {Shape({4}, i32)}); });
  expect_error(Errc::axis_out_of_range, [] { infer(Rfft{.axis = 1}, {Shape({4}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Rfft{}, {Shape({0}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Rfft{}, {Shape({symbol("N")}, f32)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(Irfft{}, {Shape({1, 2}, bf16)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Irfft{}, {Shape({1, 1}, f32)}); });
  expect_error(Errc::axis_out_of_range, [] { infer(Irfft{.axis = 1}, {Shape({1, 2}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Irfft{.size = 4}, {Shape({2, 2}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Irfft{.size = 0}, {Shape({1, 2}, f32)}); });
}

/// The gradient of <transform(x), g> is the transpose of the transform: for a linear op,
/// <op(x), g> = <x, op^T(g)>.
template <class Transform>
void check_adjoint(const Shape& shape, Transform transform) {
  Random random(7);
  ValuedGraph graph;
  const Tensor x = graph.input(random.uniform(shape));
  const Tensor y = transform(x);
  const Tensor g = graph.input(random.uniform(y.shape()));
  const Tensor loss = sum(y * g);
  const double forward = elements(graph.value(loss))[0];
  const double backward = elements(graph.value(sum(x * grad(loss, x))))[0];
  CHECK(forward == Approx(backward).epsilon(1e-9));
}

TEST_CASE("fft: gradients are the transposed transforms") {
  for (const std::int64_t n : {1, 2, 5, 6, 8}) {
    INFO(n);
    check_adjoint(Shape({n, 3, 2}, f64), [](const Tensor& x) { return fft(x, 0); });
    check_adjoint(Shape({3, n, 2}, f64), [](const Tensor& x) { return ifft(x); });
    check_adjoint(Shape({3, n}, f64), [](const Tensor& x) { return rfft(x); });
    check_adjoint(Shape({n, 3}, f64), [](const Tensor& x) { return rfft(x, 0); });
  }
  for (const std::int64_t n : {1, 2, 5, 6}) {
    // Imaginary parts without effect have no gradient, which the sums above do not see.
    check_adjoint(Shape({3, n / 2 + 1, 2}, f64), [n](const Tensor& x) { return irfft(x, n); });
  }
  check_adjoint(Shape({3, 4, 2}, f64), [](const Tensor& x) { return ifft2(fft2(x)) * 2; });
}

}  // namespace
}  // namespace tenon::testing
