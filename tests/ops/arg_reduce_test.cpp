#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/arg_reduce.hpp>

namespace tenon::testing {
namespace {

template <class Op>
Op along(std::int64_t axis, bool keep_dims = false, DType dtype = i32) {
  Op op;
  op.axis = axis;
  op.keep_dims = keep_dims;
  op.dtype = dtype;
  return op;
}

TEST_CASE("argmax and argmin: the first among equals") {
  const HostBuffer x = floats({2, 4}, {1, 5, 5, 0, -1, -1, -2, -2});
  expect_equal(apply(along<Argmax>(1), {x}), {1, 0});
  expect_equal(apply(along<Argmin>(1), {x}), {3, 2});
  expect_equal(apply(along<Argmax>(0), {x}), {0, 0, 0, 0});
  expect_type(apply(along<Argmax>(1, true, i64), {x}).shape(), "i64[2, 1]");
}

TEST_CASE("argmax and argmin: the first NaN wins") {
  const HostBuffer x = floats({5}, {1, nan, inf, nan, -inf});
  expect_equal(apply(along<Argmax>(0), {x}), {1});
  expect_equal(apply(along<Argmin>(0), {x}), {1});
}

TEST_CASE("argmax: integers beyond 2^53 are told apart") {
  const std::int64_t big = std::int64_t{1} << 53;
  expect_equal(apply(along<Argmax>(0), {longs({3}, {big, big + 1, big})}), {1});
}

TEST_CASE("argmax: tags, symbols, no slices") {
  expect_type(infer(along<Argmax>(1), {Shape({{"b", symbol("B")}, {"v", symbol("V")}}, f32)}),
              "i32[b=B]");
  expect_type(apply(along<Argmax>(1), {floats({0, 3}, {})}).shape(), "i32[0]");
}

TEST_CASE("argmax: C1 axis out of range") {
  expect_error(Errc::axis_out_of_range, [] { infer(along<Argmax>(1), {Shape({2}, f32)}); });
  expect_error(Errc::axis_out_of_range, [] { infer(along<Argmax>(0), {Shape({}, f32)}); });
}
TEST_CASE("argmax: C2 bool") {
  expect_error(Errc::unsupported_dtype, [] { infer(along<Argmax>(0), {Shape({2}, boolean)}); });
}
TEST_CASE("argmax: C3 indices of another type") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(along<Argmin>(0, false, u32), {Shape({2}, f32)}); });
}
TEST_CASE("argmax: C4 an empty axis") {
  expect_error(Errc::bad_shape, [] { infer(along<Argmax>(1), {Shape({2, 0}, f32)}); });
}
TEST_CASE("argmax: C5 more elements than i32 counts") {
  const std::int64_t most = std::int64_t{1} << 31;
  expect_type(infer(along<Argmax>(0), {Shape({most}, i8)}), "i32[]");
  expect_error(Errc::limit_exceeded, [&] { infer(along<Argmax>(0), {Shape({most + 1}, i8)}); });
  expect_type(infer(along<Argmax>(0, false, i64), {Shape({most + 1}, i8)}), "i64[]");
}

TEST_CASE("argmax: builders") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"b", 2}, {"v", 2}}, {1, 2, 4, 3}));
  expect_equal(graph.value(argmax(x)), {1, 0});
  expect_equal(graph.value(argmin(x, "b")), {0, 0});
  expect_type(argmax(x, "v", true, i64).shape(), "i64[b=2, v=1]");
}

}  // namespace
}  // namespace tenon::testing
