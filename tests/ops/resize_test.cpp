#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/resize.hpp>

#include <limits>

namespace tenon::testing {
namespace {

HostBuffer four() { return floats({4}, {1, 2, 3, 4}); }

TEST_CASE("resize: linear, by where positions lie") {
  expect_near(apply(Resize{.sizes = {8}}, {four()}), {1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4});
  expect_near(apply(Resize{.sizes = {7}, .coordinates = "align_corners"}, {four()}),
              {1, 1.5, 2, 2.5, 3, 3.5, 4});
  expect_near(apply(Resize{.sizes = {8}, .coordinates = "asymmetric"}, {four()}),
              {1, 1.5, 2, 2.5, 3, 3.5, 4, 4});
  expect_near(apply(Resize{.sizes = {2}}, {four()}), {1.5, 3.5});
  expect_near(apply(Resize{.sizes = {1}}, {four()}), {2.5});
  expect_near(apply(Resize{.sizes = {1}, .coordinates = "pytorch_half_pixel"}, {four()}), {1});
  expect_near(apply(Resize{.sizes = {1}, .coordinates = "align_corners"}, {four()}), {1});
}

TEST_CASE("resize: nearest, by rounding") {
  const auto nearest = [](Name coordinates, Name rounding, std::int64_t size) {
    return apply(
        Resize{
            .sizes = {size}, .mode = "nearest", .coordinates = coordinates, .rounding = rounding},
        {four()});
  };
  expect_equal(nearest("asymmetric", "floor", 8), {1, 1, 2, 2, 3, 3, 4, 4});
  expect_equal(nearest("asymmetric", "ceil", 8), {1, 2, 2, 3, 3, 4, 4, 4});
  // Positions 0.5 and 2.5.
  expect_equal(nearest("half_pixel", "round_prefer_floor", 2), {1, 3});
  expect_equal(nearest("half_pixel", "round_prefer_ceil", 2), {2, 4});
  expect_equal(nearest("half_pixel", "floor", 3), {1, 2, 3});
}

TEST_CASE("resize: cubic keeps the elements, rows and columns one by one") {
  expect_near(
      apply(Resize{.sizes = {7}, .mode = "cubic", .coordinates = "align_corners"}, {four()}),
      {1, 1.40625, 2, 2.5, 3, 3.59375, 4});
  const HostBuffer x = floats({1, 2, 2}, {1, 2, 3, 4});
  const HostBuffer y = apply(Resize{.sizes = {3, 3}, .coordinates = "align_corners"}, {x});
  expect_type(y.shape(), "f32[1, 3, 3]");
  expect_near(y, {1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4});
  expect_near(apply(Resize{.sizes = {1, 1, 2}}, {floats({2, 1, 2}, {1, 3, 5, 7})}), {3, 5});
}

TEST_CASE("resize: an axis that keeps its size is copied") {
  const HostBuffer x = floats({4}, {1, INFINITY, 2, 3});
  for (const char* const mode : {"nearest", "linear", "cubic"}) {
    expect_equal(apply(Resize{.sizes = {4}, .mode = mode}, {x}), {1, INFINITY, 2, 3});
  }
}

TEST_CASE("resize_backward: to the elements that were mixed") {
  ResizeBackward op{.sizes = {2}};
  expect_near(apply(op, {floats({4}, {1, 2, 3, 4})}), {1 + 1.5 + 0.75, 0.5 + 2.25 + 4});
  op.mode = "nearest";
  op.coordinates = "asymmetric";
  op.rounding = "floor";
  expect_equal(apply(op, {four()}), {3, 7});
}

TEST_CASE("resize: types, sizes of zero, tags and symbols") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    expect_equal(apply(Resize{.sizes = {2}}, {four().to(dtype)}), {1.5, 3.5});
    expect_equal(apply(ResizeBackward{.sizes = {2}, .mode = "nearest"}, {four().to(dtype)}),
                 {3, 7});
  }
  expect_type(apply(Resize{.sizes = {0}}, {four()}).shape(), "f32[0]");
  expect_type(apply(Resize{.sizes = {3}}, {floats({0, 2}, {})}).shape(), "f32[0, 3]");
  expect_type(apply(Resize{.sizes = {std::int64_t{1} << 33}}, {floats({0, 2}, {})}).shape(),
              "f32[0, 8589934592]");  // without tables of its places
  const Shape x({{"n", symbol("N")}, {"h", symbol("H")}, {"w", 4}}, f32);
  expect_type(infer(Resize{.sizes = {3, 8}}, {x}), "f32[n=N, h=3, w=8]");
}

const Shape row({2, 4}, f32);

TEST_CASE("resize: C1 to C4") {
  expect_error(Errc::unsupported_dtype, [] { infer(Resize{.sizes = {2}}, {row.with_dtype(i32)}); });
  for (const Resize& op :
       {Resize{}, Resize{.sizes = {1, 1, 1, 1}}, Resize{.sizes = {-1}},
        Resize{.sizes = {2}, .mode = "area"}, Resize{.sizes = {2}, .coordinates = "corners"},
        Resize{.sizes = {2}, .rounding = "up"},
        Resize{.sizes = {2}, .cubic_coefficient = std::numeric_limits<double>::infinity()}}) {
    expect_error(Errc::bad_attribute, [&op] { infer(op, {row}); });
  }
  expect_error(Errc::shape_mismatch, [] { infer(Resize{.sizes = {1, 2, 3}}, {row}); });
  expect_error(Errc::bad_shape, [] { infer(Resize{.sizes = {2}}, {Shape({2, 0}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(ResizeBackward{.sizes = {0}}, {row}); });
}

}  // namespace
}  // namespace tenon::testing
