#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/wkv7.hpp>

#include <cmath>
#include <vector>

namespace tenon::testing {
namespace {

const Wkv7 plain{};
const Wkv7 padded{.has_lengths = true};

TEST_CASE("wkv7: one head, two numbers of keys, one value") {
  // h = (1, 2): a . h = 3 * 1 + 4 * 2 = 11; h' = w h + b 11 + k v.
  const auto pair = [](float x, float y) { return floats({1, 1, 1, 2}, {x, y}); };
  const HostBuffer y =
      apply(plain, {pair(1, 10), pair(0.5f, 0.25f), pair(2, 3), floats({1, 1, 1, 1}, {7}),
                    pair(3, 4), pair(1, -1), floats({1, 2, 1, 1}, {1, 2})});
  expect_type(y.shape(), "f32[1, 3, 1, 1]");
  expect_equal(y, {25.5 + 105, 25.5, 10.5});
}

TEST_CASE("wkv7: the state after every step, with lengths and without") {
  const HostBuffer two = floats({1, 2, 1, 1}, {2, 2}), one = floats({1, 2, 1, 1}, {1, 1}),
                   zero = floats({1, 2, 1, 1}, {0, 0}), state = floats({1, 1, 1, 1}, {3});
  const Wkv7 states{.every_state = true}, padded_states{.has_lengths = true, .every_state = true};
  const HostBuffer y = apply(states, {zero, two, one, one, zero, zero, state});  // h' = 2 h + 1
  expect_type(y.shape(), "f32[1, 2, 1, 1, 1]");
  expect_equal(y, {7, 15});
  const HostBuffer length = ints({1}, {1});
  expect_equal(apply(padded_states, {zero, two, one, one, zero, zero, state, length}), {7, 7});
}

TEST_CASE("wkv7: steps behind a row's length change nothing") {
  const auto nan = std::nanf("");
  const HostBuffer one = floats({2, 2, 1, 1}, {1, 1, nan, nan}),
                   zero = floats({2, 2, 1, 1}, {0, 0, nan, nan});
  expect_equal(apply(padded, {one, one, one, one, zero, zero, floats({2, 1, 1, 1}, {3, 5}),
                              ints({2}, {1, 0})}),
               {4, 0, 4, 0, 0, 5});
}

TEST_CASE("wkv7: sizes of zero") {
  const HostBuffer none = floats({1, 0, 1, 1}, {});
  expect_equal(apply(plain, {none, none, none, none, none, none, floats({1, 1, 1, 1}, {3})}), {3});
}

/// The types of B 2, S 3, J 4, N 5, P 6, with one of them changed.
std::vector<Shape> types(std::size_t changed = 99, const Shape& other = {}) {
  std::vector<Shape> result(6, Shape({2, 3, 4, 5}, f32));
  result[3] = Shape({2, 3, 4, 6}, f32);
  result.push_back(Shape({2, 5, 4, 6}, f32));
  if (changed < result.size()) result[changed] = other;
  return result;
}

TEST_CASE("wkv7: types") {
  expect_type(plain.infer(types()), "f32[2, 8, 4, 6]");
  expect_type(Wkv7{.every_state = true}.infer(types()), "f32[2, 3, 5, 4, 6]");
}
TEST_CASE("wkv7: C1 number of inputs") {
  expect_error(Errc::bad_argument, [] { padded.infer(types()); });
}
TEST_CASE("wkv7: C2 C3 types") {
  expect_error(Errc::unsupported_dtype, [] { plain.infer(types(0, Shape({2, 3, 4, 5}, f16))); });
  auto with_lengths = types();
  with_lengths.push_back(Shape({2}, i64));
  expect_error(Errc::unsupported_dtype, [&] { padded.infer(with_lengths); });
  expect_error(Errc::shape_mismatch, [] { plain.infer(types(2, Shape({2, 3, 4, 5}, f64))); });
}
TEST_CASE("wkv7: C4 C5 ranks and sizes") {
  for (std::size_t i = 0; i < 7; ++i) {
    INFO("operand " << i);
    for (const Shape& wrong : {Shape({2, 3, 4}, f32), Shape({2, 3, 4, 7}, f32),
                               Shape({1, 3, 4, 5}, f32), Shape({2, 4, 4, 5}, f32)}) {
      expect_error(Errc::shape_mismatch, [&] { plain.infer(types(i, wrong)); });
    }
  }
  auto with_lengths = types();
  with_lengths.push_back(Shape({3}, i32));
  expect_error(Errc::shape_mismatch, [&] { padded.infer(with_lengths); });
}
TEST_CASE("wkv7: C6 a state without numbers") {
  std::vector<Shape> empty(6, Shape({2, 3, 4, 0}, f32));
  empty[3] = Shape({2, 3, 4, 6}, f32);
  empty.push_back(Shape({2, 0, 4, 6}, f32));
  expect_error(Errc::shape_mismatch, [&] { plain.infer(empty); });
}
TEST_CASE("wkv7: a length beyond the steps") {
  const HostBuffer one = floats({1, 1, 1, 1}, {1});
  for (const std::int32_t length : {-1, 2}) {
    expect_error(Errc::out_of_range,
                 [&] { apply(padded, {one, one, one, one, one, one, one, ints({1}, {length})}); });
  }
}

}  // namespace
}  // namespace tenon::testing
