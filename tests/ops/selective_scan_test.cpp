#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/selective_scan.hpp>

#include <cmath>
#include <vector>

namespace tenon::testing {
namespace {

const SelectiveScan plain{};
const SelectiveScan padded{.has_lengths = true};

TEST_CASE("selective_scan: one channel and state, two steps") {
  const float a = -1, dt = 0.5f;
  const HostBuffer y = apply(plain, {floats({1, 2, 1, 1}, {2, 3}), floats({1, 2, 1}, {dt, dt}),
                                     floats({1, 1}, {a}), floats({1, 2, 1, 1}, {1, 10}),
                                     floats({1, 2, 1, 1}, {1, 2}), floats({1, 1, 1, 1}, {4})});
  expect_type(y.shape(), "f32[1, 3, 1, 1]");
  const float decay = std::exp(-0.5f), first = 4 * decay + 1, second = first * decay + 15;
  expect_close(y, floats({1, 3, 1, 1}, {first, 2 * second, second}), 0, 1e-6);
}

TEST_CASE("selective_scan: heads of two groups, channels of a head alike") {
  // dt = 0 leaves states as they are; what a head reads is its group's.
  const HostBuffer y = apply(plain, {floats({1, 1, 2, 2}, {9, 9, 9, 9}), floats({1, 1, 2}, {0, 0}),
                                     floats({2, 1}, {-1, -1}), floats({1, 1, 2, 2}, {1, 1, 1, 1}),
                                     floats({1, 1, 2, 2}, {1, 10, 100, 1000}),
                                     floats({1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})});
  expect_equal(y, {51, 62, 7300, 8400, 1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("selective_scan: steps behind a row's length change nothing") {
  const auto nan = std::nanf("");
  const HostBuffer y =
      apply(padded, {floats({2, 2, 1, 1}, {1, 1, nan, nan}), floats({2, 2, 1}, {1, 1, nan, nan}),
                     floats({1, 1}, {0}), floats({2, 2, 1, 1}, {1, 1, nan, nan}),
                     floats({2, 2, 1, 1}, {1, 1, nan, nan}), floats({2, 1, 1, 1}, {0, 5}),
                     ints({2}, {2, 0})});
  expect_equal(y, {1, 2, 2, 0, 0, 5});
}

TEST_CASE("selective_scan: sizes of zero") {
  expect_equal(
      apply(plain, {floats({1, 0, 1, 1}, {}), floats({1, 0, 1}, {}), floats({1, 1}, {-1}),
                    floats({1, 0, 1, 1}, {}), floats({1, 0, 1, 1}, {}), floats({1, 1, 1, 1}, {3})}),
      {3});
  expect_type(
      apply(plain, {floats({0, 2, 1, 1}, {}), floats({0, 2, 1}, {}), floats({1, 1}, {-1}),
                    floats({0, 2, 1, 1}, {}), floats({0, 2, 1, 1}, {}), floats({0, 1, 1, 1}, {})})
          .shape(),
      "f32[0, 3, 1, 1]");
}

/// The types of B 2, S 3, J 4, P 5, G 2, N 6, with one of them changed.
std::vector<Shape> types(std::size_t changed = 99, const Shape& other = {}) {
  std::vector<Shape> result{Shape({2, 3, 4, 5}, f32), Shape({2, 3, 4}, f32),
                            Shape({4, 6}, f32),       Shape({2, 3, 2, 6}, f32),
                            Shape({2, 3, 2, 6}, f32), Shape({2, 6, 4, 5}, f32)};
  if (changed < result.size()) result[changed] = other;
  return result;
}

TEST_CASE("selective_scan: types, and sizes that are not known") {
  expect_type(plain.infer(types()), "f32[2, 9, 4, 5]");
  const Axis s = symbol("S");
  const std::vector<Shape> open{Shape({2, s, 4, 5}, f32), Shape({2, s, 4}, f32),
                                Shape({4, 1}, f32),       Shape({2, s, 2, 6}, f32),
                                Shape({2, s, 2, 6}, f32), Shape({2, 6, 4, 5}, f32)};
  CHECK(!is_static(plain.infer(open)[1]));
}

TEST_CASE("selective_scan: C1 number of inputs") {
  expect_error(Errc::bad_argument, [] { padded.infer(types()); });
}
TEST_CASE("selective_scan: C2 C3 types") {
  expect_error(Errc::unsupported_dtype, [] { plain.infer(types(0, Shape({2, 3, 4, 5}, f16))); });
  auto with_lengths = types();
  with_lengths.push_back(Shape({2}, i64));
  expect_error(Errc::unsupported_dtype, [&] { padded.infer(with_lengths); });
  expect_error(Errc::shape_mismatch, [] { plain.infer(types(2, Shape({4, 6}, f64))); });
}
TEST_CASE("selective_scan: C4 C5 ranks and sizes") {
  const Shape wrong[] = {Shape({2, 3, 4}, f32),    Shape({2, 3, 5}, f32),
                         Shape({4, 5}, f32),       Shape({2, 4, 2, 6}, f32),
                         Shape({2, 3, 1, 6}, f32), Shape({2, 6, 4, 4}, f32)};
  for (std::size_t i = 0; i < 6; ++i) {
    INFO("operand " << i);
    expect_error(Errc::shape_mismatch, [&] { plain.infer(types(i, wrong[i])); });
  }
  auto with_lengths = types();
  with_lengths.push_back(Shape({3}, i32));
  expect_error(Errc::shape_mismatch, [&] { padded.infer(with_lengths); });
}
TEST_CASE("selective_scan: C6 groups that do not divide the heads, states without numbers") {
  for (const std::int64_t groups : {0, 3}) {
    auto wrong = types(3, Shape({2, 3, groups, 6}, f32));
    wrong[4] = wrong[3];
    expect_error(Errc::shape_mismatch, [&] { plain.infer(wrong); });
  }
  auto empty = types(3, Shape({2, 3, 2, 0}, f32));
  empty[4] = empty[3];
  empty[2] = Shape({4, 1}, f32);
  empty[5] = Shape({2, 0, 4, 5}, f32);
  expect_error(Errc::shape_mismatch, [&] { plain.infer(empty); });
}
TEST_CASE("selective_scan: a length beyond the steps") {
  for (const std::int32_t length : {-1, 2}) {
    expect_error(Errc::out_of_range, [&] {
      apply(padded, {floats({1, 1, 1, 1}, {1}), floats({1, 1, 1}, {1}), floats({1, 1}, {0}),
                     floats({1, 1, 1, 1}, {1}), floats({1, 1, 1, 1}, {1}),
                     floats({1, 1, 1, 1}, {0}), ints({1}, {length})});
    });
  }
}

}  // namespace
}  // namespace tenon::testing
