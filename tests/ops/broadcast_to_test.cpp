#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/broadcast_to.hpp>

#include <limits>
#include <string>

namespace tenon::testing {
namespace {

TEST_CASE("broadcast_to: axes of size 1 and new outer axes repeat") {
  const HostBuffer y = apply(BroadcastTo{.dims = {2, -1, 3}}, {ints({2, 1}, {1, 2})});
  expect_type(y.shape(), "i32[2, 2, 3]");
  expect_equal(y, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2});
  expect_type(apply(BroadcastTo{.dims = {0}}, {ints({1}, {1})}).shape(), "i32[0]");
  expect_equal(apply(BroadcastTo{.dims = {3}}, {floats({}, {7})}), {7, 7, 7});
}

TEST_CASE("broadcast_to: -1 keeps sizes that are not known yet, and tags") {
  const Shape x({{"s", symbol("S")}, {"d", 1}}, f32);
  expect_type(infer(BroadcastTo{.dims = {4, -1, 8}}, {x}), "f32[4, s=S, d=8]");
  expect_type(infer(BroadcastTo{.dims = {5, 8}}, {x}), "f32[s=5, d=8]");
}

TEST_CASE("broadcast_to: C1 sizes that do not broadcast") {
  expect_error(Errc::shape_mismatch, [] { infer(BroadcastTo{.dims = {3}}, {Shape({2, 3}, f32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(BroadcastTo{.dims = {4}}, {Shape({2}, f32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(BroadcastTo{.dims = {1}}, {Shape({0}, f32)}); });
}
TEST_CASE("broadcast_to: C2 negative sizes") {
  constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  const std::string text =
      expect_error(Errc::bad_shape, [] { infer(BroadcastTo{.dims = {-1, 2}}, {Shape({2}, f32)}); });
  CHECK(text.find("broadcast_to: f32[2] to [-1, 2]") != std::string::npos);
  expect_error(Errc::bad_shape, [] { infer(BroadcastTo{.dims = {lowest}}, {Shape({1}, f32)}); });
  expect_error(Errc::shape_overflow, [] {
    infer(BroadcastTo{.dims = {std::int64_t{1} << 40, std::int64_t{1} << 40}}, {Shape({1}, f32)});
  });
}
TEST_CASE("broadcast_to: C3 block types") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(BroadcastTo{.dims = {2, 32}}, {Shape({32}, DType::q8_0)}); });
}

TEST_CASE("broadcast_to: to the sizes of an array, which may be open") {
  expect_equal(apply(BroadcastTo{}, {ints({2, 1}, {1, 2}), floats({2, 3}, {0, 0, 0, 0, 0, 0})}),
               {1, 1, 1, 2, 2, 2});
  const std::int64_t s = symbol("S");
  expect_type(infer(BroadcastTo{}, {Shape({4}, f32), Shape({2, s}, boolean)}), "f32[2, S]");
  expect_type(infer(BroadcastTo{}, {Shape({{"d", 1}}, f32), Shape({s, 8}, i32)}), "f32[S, d=8]");
  expect_error(Errc::shape_mismatch,  // C1
               [&] { infer(BroadcastTo{}, {Shape({3}, f32), Shape({s, 4}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(BroadcastTo{}, {Shape({1, 4}, f32), Shape({4}, f32)}); });
  expect_error(Errc::bad_attribute,  // C4
               [] { infer(BroadcastTo{.dims = {4}}, {Shape({4}, f32), Shape({4}, f32)}); });
}

TEST_CASE("repeat_interleave and tile: copies side by side, copies of the whole") {
  ValuedGraph graph;
  const Tensor x = graph.input(floats({{"h", 2}, {"d", 2}}, {1, 2, 3, 4}));
  const Tensor y = repeat_interleave(x, 2, "h");
  expect_type(y.shape(), "f32[h=4, d=2]");
  expect_equal(graph.value(y), {1, 2, 1, 2, 3, 4, 3, 4});
  expect_equal(graph.value(tile(x, 2, "h")), {1, 2, 3, 4, 1, 2, 3, 4});
  expect_equal(graph.value(tile(x, 2, -1)), {1, 2, 1, 2, 3, 4, 3, 4});
  expect_equal(graph.value(repeat_interleave(x, 2, 1)), {1, 1, 2, 2, 3, 3, 4, 4});
  expect_type(tile(x, 0, 0).shape(), "f32[h=0, d=2]");
  expect_type(broadcast_to(x, {{"b", 3}, -1, -1}).shape(), "f32[b=3, 2, 2]");
  expect_error(Errc::bad_argument, [&] { tile(x, -1, 0); });
}

}  // namespace
}  // namespace tenon::testing
