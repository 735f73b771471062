#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/pool2d.hpp>

namespace tenon::testing {
namespace {

HostBuffer image() { return floats({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, -9}); }

TEST_CASE("max_pool2d: the largest of each window") {
  expect_equal(apply(MaxPool2d{.kernel = {2, 2}, .stride = {1, 1}}, {image()}), {5, 6, 8, 8});
  expect_equal(apply(MaxPool2d{.kernel = {1, 3}}, {image()}), {3, 6, 8});
  expect_equal(apply(MaxPool2d{.kernel = {2, 2}}, {image()}), {5});
}

TEST_CASE("max_pool2d: padding never wins, dilation skips") {
  const HostBuffer below = floats({1, 1, 1, 2}, {-3, -2});
  expect_equal(
      apply(MaxPool2d{.kernel = {1, 2}, .stride = {1, 1}, .padding = {0, 0, 1, 1}}, {below}),
      {-3, -2, -2});
  expect_equal(apply(MaxPool2d{.kernel = {2, 2}, .dilation = {2, 2}}, {image()}), {7});
  // Taps at -1 and 1 of one column: nothing to take the maximum of.
  expect_equal(apply(MaxPool2d{.kernel = {1, 2}, .padding = {0, 1}, .dilation = {1, 2}},
                     {floats({1, 1, 1, 1}, {4})}),
               {-inf});
}

TEST_CASE("max_pool2d: a NaN fills its windows") {
  expect_equal(
      apply(MaxPool2d{.kernel = {1, 2}, .stride = {1, 1}}, {floats({1, 1, 1, 4}, {1, nan, 5, 6})}),
      {nan, nan, 6});
}

TEST_CASE("avg_pool2d: the mean of each window, with and without the padding") {
  expect_equal(apply(AvgPool2d{.kernel = {2, 2}, .stride = {1, 1}}, {image()}), {3, 4, 6, 2.5});
  const HostBuffer row = floats({1, 1, 1, 2}, {2, 4});
  const IntList sides{0, 0, 1, 1};
  expect_equal(apply(AvgPool2d{.kernel = {1, 2}, .stride = {1, 1}, .padding = sides}, {row}),
               {2, 3, 4});
  expect_equal(
      apply(
          AvgPool2d{
              .kernel = {1, 2}, .stride = {1, 1}, .padding = sides, .count_include_pad = true},
          {row}),
      {1, 3, 2});
}

TEST_CASE("pool2d: every floating type, images and channels apart") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const HostBuffer x = floats({2, 2, 1, 2}, {1, 3, 5, 7, 9, 11, 13, 15}).to(dtype);
    const HostBuffer mean = apply(AvgPool2d{.kernel = {1, 2}}, {x});
    CHECK(mean.shape().dtype() == dtype);
    expect_equal(mean, {2, 6, 10, 14});
    expect_equal(apply(MaxPool2d{.kernel = {1, 2}}, {x}), {3, 7, 11, 15});
  }
}

TEST_CASE("pool2d: sizes of zero") {
  expect_type(apply(MaxPool2d{.kernel = {2, 2}}, {floats({0, 3, 4, 4}, {})}).shape(),
              "f32[0, 3, 2, 2]");
  expect_type(apply(AvgPool2d{.kernel = {2, 2}}, {floats({2, 0, 4, 4}, {})}).shape(),
              "f32[2, 0, 2, 2]");
  const HostBuffer nothing = floats({1, 1, 0, 1}, {});
  expect_equal(apply(MaxPool2d{.kernel = {2, 1}, .padding = {1, 0}}, {nothing}), {-inf});
  expect_equal(apply(AvgPool2d{.kernel = {2, 1}, .padding = {1, 0}}, {nothing}), {nan});
}

const Shape x_type({{"n", symbol("N")}, {"c", 4}, {"h", 8}, {"w", 8}}, f32);

TEST_CASE("pool2d: tags and symbols pass through") {
  expect_type(infer(MaxPool2d{.kernel = {2, 3}}, {x_type}), "f32[n=N, c=4, h=4, w=2]");
  expect_type(infer(AvgPool2d{.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}},
                    {x_type.with_dim(3, symbol("W"))}),
              "f32[n=N, c=4, h=8, w=W]");
}

TEST_CASE("pool2d: C1 integers") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(MaxPool2d{.kernel = {2, 2}}, {x_type.with_dtype(i32)}); });
  expect_error(Errc::unsupported_dtype,
               [] { infer(AvgPool2d{.kernel = {2, 2}}, {x_type.with_dtype(i32)}); });
}

TEST_CASE("pool2d: C2 rank") {
  expect_error(Errc::shape_mismatch,
               [] { infer(MaxPool2d{.kernel = {2, 2}}, {Shape({8, 8}, f32)}); });
}

TEST_CASE("pool2d: C3 attributes") {
  for (const MaxPool2d& op : {
           MaxPool2d{},
           MaxPool2d{.kernel = {2}},
           MaxPool2d{.kernel = {0, 1}},
           MaxPool2d{.kernel = {2, 2}, .stride = {0, 1}},
           MaxPool2d{.kernel = {2, 2}, .padding = {2, 0}},
           MaxPool2d{.kernel = {2, 2}, .padding = {0, 0, -1, 0}},
           MaxPool2d{.kernel = {2, 2}, .dilation = {1, 0}},
       }) {
    expect_error(Errc::bad_attribute, [&op] { infer(op, {x_type}); });
  }
  for (const AvgPool2d& op : {
           AvgPool2d{},
           AvgPool2d{.kernel = {2, 2}, .stride = {1}},
           AvgPool2d{.kernel = {2, 2}, .padding = {0, 2}},
       }) {
    expect_error(Errc::bad_attribute, [&op] { infer(op, {x_type}); });
  }
}

TEST_CASE("pool2d: C4 windows that do not fit") {
  expect_error(Errc::bad_shape, [] { infer(MaxPool2d{.kernel = {9, 1}}, {x_type}); });
  expect_error(Errc::bad_shape,
               [] { infer(AvgPool2d{.kernel = {1, 12}, .padding = {0, 1}}, {x_type}); });
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  expect_error(Errc::shape_overflow, [] { infer(MaxPool2d{.kernel = {huge, huge}}, {x_type}); });
}

TEST_CASE("max_pool2d_backward: to the first of the greatest") {
  const HostBuffer x = floats({1, 1, 2, 3}, {1, 3, 3, 2, 3, 0});
  const MaxPool2dBackward op{.kernel = {2, 2}, .stride = {1, 1}};
  expect_equal(apply(op, {x, floats({1, 1, 1, 2}, {10, 7})}), {0, 17, 0, 0, 0, 0});
  expect_equal(apply(MaxPool2dBackward{.kernel = {1, 2}},
                     {floats({1, 1, 1, 4}, {nan, 5, 1, nan}), floats({1, 1, 1, 2}, {1, 2})}),
               {1, 0, 0, 2});
  // A window on padding alone.
  expect_equal(apply(MaxPool2dBackward{.kernel = {1, 2}, .padding = {0, 1}, .dilation = {1, 2}},
                     {floats({1, 1, 1, 1}, {4}), floats({1, 1, 1, 1}, {1})}),
               {0});
}

TEST_CASE("avg_pool2d_backward: to all of the window") {
  const HostBuffer x = floats({1, 1, 1, 2}, {0, 0});
  const HostBuffer upstream = floats({1, 1, 1, 3}, {1, 2, 4});
  AvgPool2dBackward op{.kernel = {1, 2}, .stride = {1, 1}, .padding = {0, 0, 1, 1}};
  expect_equal(apply(op, {x, upstream}), {2, 5});
  op.count_include_pad = true;
  expect_equal(apply(op, {x, upstream}), {1.5, 3});
}

TEST_CASE("pool2d backward: types, sizes of zero, C5 upstream of another type") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const HostBuffer x = floats({1, 1, 1, 2}, {1, 2}).to(dtype);
    const HostBuffer upstream = floats({1, 1, 1, 1}, {4}).to(dtype);
    expect_equal(apply(MaxPool2dBackward{.kernel = {1, 2}}, {x, upstream}), {0, 4});
    expect_equal(apply(AvgPool2dBackward{.kernel = {1, 2}}, {x, upstream}), {2, 2});
  }
  expect_type(apply(MaxPool2dBackward{.kernel = {2, 2}},
                    {floats({0, 1, 4, 4}, {}), floats({0, 1, 2, 2}, {})})
                  .shape(),
              "f32[0, 1, 4, 4]");
  const Shape upstream({1, 4, 4, 3}, f32);
  expect_error(Errc::shape_mismatch,
               [&] { infer(MaxPool2dBackward{.kernel = {2, 2}}, {x_type, upstream}); });
  expect_error(Errc::shape_mismatch,
               [&] { infer(AvgPool2dBackward{.kernel = {2, 2}}, {x_type, upstream}); });
  expect_error(Errc::shape_mismatch, [&] {
    infer(AvgPool2dBackward{.kernel = {2, 2}}, {x_type, Shape({1, 4, 4, 4}, f16)});
  });
}

}  // namespace
}  // namespace tenon::testing
