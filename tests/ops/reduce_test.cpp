#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/grad.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/reduce.hpp>

#include <limits>
#include <vector>

namespace tenon::testing {
namespace {

/// An op over these axes.
template <class Op>
Op over(IntList axes, bool keep_dims = false) {
  Op op;
  op.axes = axes;
  op.keep_dims = keep_dims;
  return op;
}

TEST_CASE("reductions: a formula per op") {
  const HostBuffer x = floats({2, 3}, {1, 2, 3, 4, -5, 6});
  expect_equal(apply(over<Sum>({1}), {x}), {6, 5});
  expect_near(apply(over<Mean>({1}), {x}), {2, 5 / 3.});
  expect_equal(apply(over<Prod>({1}), {x}), {6, -120});
  expect_equal(apply(over<Max>({0}), {x}), {4, 2, 6});
  expect_equal(apply(over<Min>({0}), {x}), {1, -5, 3});
  expect_equal(apply(over<Sum>({1, 0}), {x}), {11});
  expect_equal(apply(over<Sum>({}), {x}), {1, 2, 3, 4, -5, 6});
}

TEST_CASE("reductions: any and all") {
  const HostBuffer x = HostBuffer::of<bool>(Shape({2, 2}, boolean), {true, false, true, true});
  expect_equal(apply(over<Any>({0}), {x}), {1, 1});
  expect_equal(apply(over<All>({0}), {x}), {1, 0});
}

TEST_CASE("reductions: the axes that stay keep their tags and symbols") {
  const Shape x({{"b", symbol("B")}, {"s", symbol("S")}, {"d", 4}}, f32);
  expect_type(infer(over<Sum>({1}), {x}), "f32[b=B, d=4]");
  expect_type(infer(over<Sum>({1}, true), {x}), "f32[b=B, s=1, d=4]");
  expect_type(infer(over<Mean>({2, 0}), {x}), "f32[s=S]");
}

TEST_CASE("reductions: of nothing") {
  const HostBuffer none = floats({2, 0}, {});
  expect_equal(apply(over<Sum>({1}), {none}), {0, 0});
  expect_equal(apply(over<Prod>({1}), {none}), {1, 1});
  expect_equal(apply(over<Mean>({1}), {none}), {nan, nan});
  expect_type(apply(over<Max>({0}), {none}).shape(), "f32[0]");
  const HostBuffer no_flags = HostBuffer::zeros(Shape({0}, boolean));
  expect_equal(apply(over<Any>({0}), {no_flags}), {0});
  expect_equal(apply(over<All>({0}), {no_flags}), {1});
}

TEST_CASE("max and min: a NaN wins, wherever it stands") {
  expect_equal(apply(over<Max>({1}), {floats({2, 3}, {nan, 1, 2, 1, 2, nan})}), {nan, nan});
  expect_equal(apply(over<Min>({1}), {floats({2, 3}, {nan, 1, 2, 1, inf, nan})}), {nan, nan});
  expect_equal(apply(over<Max>({0}), {floats({2}, {-inf, -inf})}), {-inf});
}

TEST_CASE("sum and prod: integers and bool count in i64") {
  const HostBuffer bytes = HostBuffer::of<std::int8_t>(Shape({3}, i8), {127, 127, 127});
  expect_type(apply(over<Sum>({0}), {bytes}).shape(), "i64[]");
  expect_equal(apply(over<Sum>({0}), {bytes}), {381});
  expect_equal(apply(over<Prod>({0}), {bytes}), {2048383});
  expect_equal(
      apply(over<Sum>({0}), {HostBuffer::of<bool>(Shape({3}, boolean), {true, false, true})}), {2});
  CHECK(apply(over<Sum>({0}), {longs({2}, {std::numeric_limits<std::int64_t>::max(), 1})})
            .values<std::int64_t>()[0] == std::numeric_limits<std::int64_t>::min());
  expect_type(infer(over<Max>({0}), {Shape({3}, u8)}), "u8[]");
}

TEST_CASE("sum: small types accumulate exactly before rounding once") {
  const HostBuffer ones =
      HostBuffer::of<float>(Shape({4096}, f32), std::vector<float>(4096, 1.0f)).to(bf16);
  expect_equal(apply(over<Sum>({0}), {ones}), {4096});  // adding in bf16 would stop at 256
}

TEST_CASE("reductions: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] { infer(over<Sum>({2}), {Shape({2, 2}, f32)}); });
  expect_error(Errc::axis_out_of_range, [] { infer(over<Max>({-1}), {Shape({2, 2}, f32)}); });
}
TEST_CASE("reductions: C2 an axis twice") {
  expect_error(Errc::bad_argument, [] { infer(over<Sum>({1, 1}), {Shape({2, 2}, f32)}); });
}
TEST_CASE("reductions: C3 dtypes") {
  expect_error(Errc::unsupported_dtype, [] { infer(over<Mean>({0}), {Shape({2}, i32)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(over<Max>({0}), {Shape({2}, boolean)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(over<Any>({0}), {Shape({2}, f32)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(over<Sum>({0}), {Shape({32}, DType::q8_0)}); });
}
TEST_CASE("reductions: C4 max and min of nothing") {
  expect_error(Errc::bad_shape, [] { infer(over<Max>({1}), {Shape({2, 0}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(over<Min>({0, 1}), {Shape({2, 0}, f32)}); });
}

TEST_CASE("reductions: builders take axes by index and by tag") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 2}, {"d", 2}}, {1, 2, 3, 4}));
  expect_equal(graph.value(sum(x)), {10});
  expect_equal(graph.value(sum(x, -1)), {3, 7});
  expect_equal(graph.value(sum(x, "b")), {4, 6});
  expect_equal(graph.value(mean(x, {"d", "b"})), {2.5});
  expect_equal(graph.value(max(x, {0, 1})), {4});
  expect_type(min(x, "d", true).shape(), "f32[b=2, d=1]");
  expect_equal(graph.value(prod(x)), {24});
  const std::string line = std::to_string(__LINE__ + 1);
  const std::string text = expect_error(Errc::axis_out_of_range, [&] { sum(x, "seq"); });
  CHECK(text.find("reduce_test.cpp:" + line + ": sum: no axis 'seq' in f32[b=2, d=2]") !=
        std::string::npos);
  expect_error(Errc::bad_argument, [&] { sum(x, {0, -2}); });
  expect_error(Errc::bad_argument, [&] { sum(x, {0, 0, 0, 0, 0, 0, 0, 0, 0}); });
}

TEST_CASE("prod: gradients and those of gradients where factors are 0") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 2}, {"d", 3}}, {0, 2, 3, 0, 0, 3}));
  expect_equal(graph.value(grad(sum(prod(x, "d")), x)), {6, 0, 0, 0, 0, 0});
  // Rows of the Hessian of abc, times 1, 10, 100: 10c + 100b, c + 100a, b + 10a.
  const Tensor toward = graph.input(floats({3}, {1, 10, 100}));
  const Tensor along = sum(grad(sum(prod(x, "d")), x) * toward);
  expect_equal(graph.value(grad(along, x)), {230, 3, 2, 30, 3, 0});
  // Over several axes.
  const Tensor y = graph.input(floats({2, 1, 2}, {0, 2, 3, 5}));
  const Tensor first = grad(prod(y, {2, 0, 1}), y);
  expect_equal(graph.value(first), {30, 0, 0, 0});
  expect_equal(graph.value(grad(sum(first), y)), {15 + 10 + 6, 15, 10, 6});
}

}  // namespace
}  // namespace tenon::testing
