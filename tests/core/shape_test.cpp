#include "support/expect_error.hpp"

#include <tenon/shape.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::expect_error;

constexpr std::int64_t max64 = std::numeric_limits<std::int64_t>::max();

Shape of_dims(const std::vector<std::int64_t>& dims, DType dtype) {
  return {std::span(dims), dtype};
}

}  // namespace

TEST_CASE("shape: sizes, counts and text") {
  const Shape shape({8, 64}, f32);
  CHECK(shape.rank() == 2);
  CHECK(shape[1] == 64);
  CHECK(shape.elements() == 512);
  CHECK(shape.bytes() == 2048);
  CHECK(to_string(shape) == "f32[8, 64]");

  const Shape scalar;
  CHECK(scalar.rank() == 0);
  CHECK(scalar.elements() == 1);
  CHECK(to_string(scalar) == "f32[]");

  const Shape empty({3, 0, 5}, i8);
  CHECK(empty.elements() == 0);
  CHECK(empty.bytes() == 0);
}

TEST_CASE("shape: block types count whole blocks of the innermost axis") {
  const Shape shape({10, 512}, DType::q4_k);
  CHECK(shape.elements() == 5120);
  CHECK(shape.bytes() == 20 * 144);
  expect_error(Errc::bad_shape, [] { Shape({512, 100}, DType::q4_k); });
  expect_error(Errc::bad_shape, [] { Shape({}, DType::q8_0); });
  expect_error(Errc::bad_shape, [&] { Shape({7}, f32).with_dtype(DType::q8_0); });
}

TEST_CASE("shape: axes by index, from the end, and by tag") {
  const Shape shape({{"b", 2}, {"seq", 7}, 64}, f16);
  CHECK(to_string(shape) == "f16[b=2, seq=7, 64]");
  CHECK(shape.has_tags());
  CHECK(shape.axis(1) == 1);
  CHECK(shape.axis(-1) == 2);
  CHECK(shape.axis("seq") == 1);
  CHECK(shape.dim("b") == 2);
  for (const std::int64_t bad :
       {std::int64_t{3}, std::int64_t{-4}, max64, std::numeric_limits<std::int64_t>::min()}) {
    const std::string what = expect_error(Errc::axis_out_of_range, [&] { shape.axis(bad); });
    CHECK(what.find("f16[b=2, seq=7, 64]") != std::string::npos);
  }
  expect_error(Errc::axis_out_of_range, [&] { shape.axis("head"); });
}

TEST_CASE("shape: equality is of sizes and type; names are names") {
  const Shape plain({2, 3}, f32);
  CHECK(plain == Shape({{"b", 2}, {"d", 3}}, f32));
  CHECK(plain == plain.with_layout("packed"));
  CHECK(plain.with_layout("packed").layout() == Name("packed"));
  CHECK_FALSE(plain == Shape({2, 3}, f16));
  CHECK_FALSE(plain == Shape({3, 2}, f32));
  CHECK_FALSE(plain == Shape({2, 3, 1}, f32));
}

TEST_CASE("shape: changes make new shapes") {
  const Shape shape({{"b", 2}, {"d", 3}}, f32);
  CHECK(to_string(shape.with_dtype(i8)) == "i8[b=2, d=3]");
  CHECK(to_string(shape.with_dim(1, 9)) == "f32[b=2, d=9]");
  CHECK(to_string(shape.with_tag(0, "n")) == "f32[n=2, d=3]");
  CHECK(to_string(shape.without_tags()) == "f32[2, 3]");
  CHECK(to_string(shape.without_axis(0)) == "f32[d=3]");
  CHECK(to_string(shape.with_axis(1, {"h", 4})) == "f32[b=2, h=4, d=3]");
  CHECK(to_string(shape.with_axis(2, 5)) == "f32[b=2, d=3, 5]");
  const std::array<Name, 2> tags{"x", "y"};
  CHECK(to_string(shape.with_tags(tags)) == "f32[x=2, y=3]");
  expect_error(Errc::bad_shape, [&] { shape.with_tags(std::span(tags).first(1)); });
  expect_error(Errc::bad_shape, [&] { shape.with_tag(0, "d"); });
  CHECK(to_string(shape) == "f32[b=2, d=3]");
}

TEST_CASE("shape: symbols and unknown sizes") {
  const Shape shape({symbol("S"), 64}, f32);
  CHECK_FALSE(shape.is_static());
  CHECK(is_symbol(shape[0]));
  CHECK(symbol_name(shape[0]) == Name("S"));
  CHECK(to_string(shape) == "f32[S, 64]");
  CHECK(symbol("S") == symbol("S"));
  CHECK(symbol("S") != symbol("T"));
  CHECK_FALSE(is_symbol(unknown_dim));
  CHECK_FALSE(is_static(unknown_dim));
  CHECK(to_string(Shape({unknown_dim, 2}, f32)) == "f32[_, 2]");
  expect_error(Errc::bad_shape, [&] { shape.elements(); });
  expect_error(Errc::bad_shape, [&] { shape.bytes(); });
  CHECK(shape.with_dim(0, 5).elements() == 320);
}

TEST_CASE("shape: what is no shape") {
  expect_error(Errc::bad_shape, [] { Shape({-1}, f32); });
  expect_error(Errc::bad_shape, [] { of_dims({std::numeric_limits<std::int64_t>::min()}, f32); });
  expect_error(Errc::bad_shape, [] { Shape({{"b", 1}, {"b", 1}}, f32); });
  expect_error(Errc::bad_shape, [] { of_dims(std::vector<std::int64_t>(9, 1), f32); });
  CHECK(of_dims(std::vector<std::int64_t>(8, 2), f32).elements() == 256);
  expect_error(Errc::bad_shape,
               [] { of_dims(std::vector<std::int64_t>(8, 1), f32).with_axis(0, 1); });
}

TEST_CASE("shape: indices of axes that there are not") {
  for (const char* const name :
       {"", "batch size", "batch-size", "3", "_", "def", "None", "\u00e9"}) {
    INFO(name);
    expect_error(Errc::bad_shape, [&] { symbol(name); });
  }
  const Shape shape({2, 3}, f32);
  for (const int index : {-1, 2, 8, 1000}) {
    expect_error(Errc::axis_out_of_range, [&] { shape.with_dim(index, 1); });
    expect_error(Errc::axis_out_of_range, [&] { shape.with_tag(index, "t"); });
    expect_error(Errc::axis_out_of_range, [&] { shape.without_axis(index); });
    if (index != 2) expect_error(Errc::axis_out_of_range, [&] { shape.with_axis(index, 1); });
  }
}

TEST_CASE("shape: byte counts beyond 2^63 - 1") {
  expect_error(Errc::shape_overflow, [] { of_dims({max64, 2}, i8); });
  expect_error(Errc::shape_overflow,
               [] { of_dims({std::int64_t{1} << 32, std::int64_t{1} << 31}, i8); });
  expect_error(Errc::shape_overflow, [] { of_dims({max64}, f32); });
  // A zero elsewhere does not hide it: strides use the products.
  expect_error(Errc::shape_overflow, [] { of_dims({0, max64, 2}, i8); });
  CHECK(of_dims({(std::int64_t{1} << 61) - 1}, f32).bytes() == max64 - 3);
  CHECK(of_dims({max64}, i8).bytes() == max64);

  CHECK(checked_multiply(std::int64_t{1} << 31, std::int64_t{1} << 31) == std::int64_t{1} << 62);
  CHECK(checked_add(max64 - 1, 1) == max64);
  expect_error(Errc::shape_overflow, [] { checked_multiply(max64, 2); });
  expect_error(Errc::shape_overflow, [] { checked_add(max64, 1); });
}

}  // namespace tenon
