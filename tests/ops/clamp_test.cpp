#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/clamp.hpp>

#include <limits>

namespace tenon::testing {
namespace {

TEST_CASE("clamp: limits reals, keeps NaN") {
  const Clamp op{.min = -1, .max = 2.5};
  expect_equal(apply(op, {floats({5}, {-inf, -1, 0, 3, nan})}), {-1, -1, 0, 2.5, nan});
  expect_type(infer(op, {Shape({{"d", symbol("D")}}, f16)}), "f16[d=D]");
}

TEST_CASE("clamp: integers stay within the interval") {
  expect_equal(apply(Clamp{.min = -1.5, .max = 2.5}, {ints({4}, {-9, -1, 2, 9})}), {-1, -1, 2, 2});
  expect_equal(apply(Clamp{.min = 1.5, .max = 2}, {ints({1}, {1})}), {2});
  expect_equal(apply(Clamp{.min = -3, .max = -1.5}, {ints({1}, {0})}), {-2});
  expect_equal(apply(Clamp{.max = 0}, {ints({2}, {std::numeric_limits<std::int32_t>::min(), 7})}),
               {-2147483648.0, 0});
}

TEST_CASE("clamp: C1 bool") {
  expect_error(Errc::unsupported_dtype, [] { infer(Clamp{}, {Shape({2}, boolean)}); });
}
TEST_CASE("clamp: C2 no interval") {
  expect_error(Errc::bad_attribute, [] { infer(Clamp{.min = 2, .max = 1}, {Shape({2}, f32)}); });
  expect_error(Errc::bad_attribute, [] { infer(Clamp{.min = double{nan}}, {Shape({2}, f32)}); });
}

TEST_CASE("clamp: bounds beyond an integer type") {
  const HostBuffer bytes = HostBuffer::of<std::uint8_t>(Shape({2}, u8), {0, 255});
  expect_equal(apply(Clamp{.min = -5, .max = 1e10}, {bytes}), {0, 255});
  expect_equal(apply(Clamp{.min = 7, .max = 1e300}, {bytes}), {7, 255});
  expect_equal(apply(Clamp{.min = -1e300, .max = 0}, {bytes}), {0, 0});
  expect_equal(apply(Clamp{.min = -1e10, .max = 1e10}, {ints({2}, {-7, 7})}), {-7, 7});
  expect_equal(apply(Clamp{.min = -0x1p63, .max = 0x1p63}, {longs({2}, {-7, 7})}), {-7, 7});
}
TEST_CASE("clamp: C3 no integer of the type") {
  const auto refused = [](double min, double max, DType dtype) {
    expect_error(Errc::bad_attribute,
                 [&] { infer(Clamp{.min = min, .max = max}, {Shape({2}, dtype)}); });
  };
  refused(1e10, 1e11, i32);
  refused(-5, -1, u8);
  refused(256, inf, u8);
  refused(-inf, -129, i8);
  refused(0x1p63, inf, i64);
  refused(0.25, 0.75, i32);
  CHECK_NOTHROW(infer(Clamp{.min = 255, .max = inf}, {Shape({2}, u8)}));
  CHECK_NOTHROW(infer(Clamp{.min = -inf, .max = -0x1p63}, {Shape({2}, i64)}));
  CHECK_NOTHROW(infer(Clamp{.min = -inf, .max = -0.5}, {Shape({2}, i8)}));
}

TEST_CASE("clamp: builder") {
  ValuedGraph graph;
  expect_equal(graph.value(clamp(graph.input(floats({3}, {-1, 1, 3})), 0, 2)), {0, 1, 2});
}

}  // namespace
}  // namespace tenon::testing
