#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/bitwise.hpp>

namespace tenon::testing {
namespace {

HostBuffer bytes(std::initializer_list<std::int8_t> values) {
  return HostBuffer::of<std::int8_t>(Shape({static_cast<std::int64_t>(values.size())}, i8), values);
}
HostBuffer flags(std::initializer_list<bool> values) {
  return HostBuffer::of<bool>(Shape({static_cast<std::int64_t>(values.size())}, boolean), values);
}

TEST_CASE("bitwise: numbers and flags") {
  const HostBuffer a = ints({3}, {12, -1, 5}), b = ints({3}, {10, 7, 0});
  expect_equal(apply(BitwiseAnd{}, {a, b}), {8, 7, 0});
  expect_equal(apply(BitwiseOr{}, {a, b}), {14, -1, 5});
  expect_equal(apply(BitwiseXor{}, {a, b}), {6, -8, 5});
  expect_equal(apply(BitwiseNot{}, {a}), {-13, 0, -6});
  expect_equal(apply(BitwiseXor{}, {flags({true, true}), flags({true, false})}), {0, 1});
  expect_equal(apply(BitwiseNot{}, {flags({true, false})}), {0, 1});
  expect_type(apply(BitwiseAnd{}, {ints({2, 1}, {1, 2}), ints({0}, {})}).shape(), "i32[2, 0]");
}

TEST_CASE("shifts: the sign is shifted in, and what is shifted out is gone") {
  expect_equal(apply(ShiftLeft{}, {bytes({1, 1, 1, 3, -1}), bytes({0, 7, 8, 6, 2})}),
               {1, -128, 0, -64, -4});
  expect_equal(apply(ShiftRight{}, {bytes({64, -64, -1, 1, -5}), bytes({3, 3, 100, 8, -1})}),
               {8, -8, -1, 0, -1});
  expect_equal(apply(ShiftLeft{}, {longs({3}, {1, 1, 1}), longs({3}, {62, 64, -1})}),
               {0x1p62, 0, 0});
}

TEST_CASE("bitwise: C1 dtypes differ") {
  expect_error(Errc::shape_mismatch,
               [] { infer(BitwiseAnd{}, {Shape({2}, i32), Shape({2}, i64)}); });
}
TEST_CASE("bitwise: C2 other types") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(BitwiseOr{}, {Shape({2}, f32), Shape({2}, f32)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(ShiftLeft{}, {Shape({2}, boolean), Shape({2}, boolean)}); });
  expect_error(Errc::unsupported_dtype, [] { infer(BitwiseNot{}, {Shape({2}, f32)}); });
}
TEST_CASE("bitwise: C3 sizes differ") {
  expect_error(Errc::shape_mismatch,
               [] { infer(BitwiseXor{}, {Shape({2}, i32), Shape({3}, i32)}); });
}

TEST_CASE("bitwise: builders") {
  ValuedGraph graph;
  const Tensor a = graph.input(ints({2}, {6, 1})), b = graph.input(ints({2}, {3, 1}));
  expect_equal(graph.value(bitwise_and(a, b)), {2, 1});
  expect_equal(graph.value(bitwise_or(a, b)), {7, 1});
  expect_equal(graph.value(bitwise_xor(a, b)), {5, 0});
  expect_equal(graph.value(bitwise_not(a)), {-7, -2});
  expect_equal(graph.value(shift_left(a, b)), {48, 2});
  expect_equal(graph.value(shift_right(a, b)), {0, 0});
}

}  // namespace
}  // namespace tenon::testing
