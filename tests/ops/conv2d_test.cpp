#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/conv2d.hpp>

#include <cstdint>
#include <limits>

namespace tenon::testing {
namespace {

HostBuffer image() { return floats({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}); }

TEST_CASE("conv2d: slides the kernel without turning it") {
  const HostBuffer w = floats({1, 1, 2, 2}, {1, 0, 0, -1});
  expect_equal(apply(Conv2d{}, {image(), w}), {-4, -4, -4, -4});
  expect_equal(apply(Conv2d{.has_bias = true}, {image(), w, floats({1}, {10})}), {6, 6, 6, 6});
}

TEST_CASE("conv2d: zeros surround a padded image") {
  const HostBuffer w = floats({1, 1, 2, 2}, {1, 1, 1, 1});
  const HostBuffer both = apply(Conv2d{.padding = {1, 0}}, {image(), w});
  expect_type(both.shape(), "f32[1, 1, 4, 2]");
  expect_equal(both, {3, 5, 12, 16, 24, 28, 15, 17});
  // top, bottom, left, right
  const HostBuffer corner = apply(Conv2d{.padding = {0, 1, 0, 1}}, {image(), w});
  expect_equal(corner, {12, 16, 9, 24, 28, 15, 15, 17, 9});
}

TEST_CASE("conv2d: stride and dilation") {
  const HostBuffer w = floats({1, 1, 2, 2}, {1, 1, 1, 1});
  expect_equal(apply(Conv2d{.dilation = {2, 2}}, {image(), w}), {20});
  expect_equal(apply(Conv2d{.stride = {1, 2}}, {image(), w}), {12, 24});
  expect_equal(apply(Conv2d{.stride = {2, 3}, .padding = {1, 1}}, {image(), w}), {1, 3, 11, 15});
}

TEST_CASE("conv2d: channels, groups and images") {
  const HostBuffer x = floats({1, 2, 1, 2}, {1, 2, 3, 4});
  expect_equal(apply(Conv2d{}, {x, floats({2, 2, 1, 1}, {1, 10, 2, 0})}), {31, 42, 2, 4});
  expect_equal(apply(Conv2d{.groups = 2}, {x, floats({4, 1, 1, 1}, {1, 2, 3, 4})}),
               {1, 2, 2, 4, 9, 12, 12, 16});
  expect_equal(apply(Conv2d{}, {floats({2, 1, 1, 1}, {3, 5}), floats({1, 1, 1, 1}, {2})}), {6, 10});
}

TEST_CASE("conv2d: every floating type, rounded once") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const HostBuffer y =
        apply(Conv2d{}, {image().to(dtype), floats({1, 1, 1, 1}, {0.5f}).to(dtype)});
    CHECK(y.shape().dtype() == dtype);
    expect_equal(y, {0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5});
  }
}

TEST_CASE("conv2d: sizes of zero") {
  const HostBuffer w = floats({2, 1, 1, 1}, {1, 2});
  expect_type(apply(Conv2d{}, {floats({0, 1, 2, 2}, {}), w}).shape(), "f32[0, 2, 2, 2]");
  expect_equal(apply(Conv2d{.has_bias = true},
                     {floats({1, 0, 1, 1}, {}), floats({2, 0, 1, 1}, {}), floats({2}, {3, 4})}),
               {3, 4});
  const HostBuffer no_outputs = floats({0, 1, 1, 1}, {});
  expect_type(apply(Conv2d{}, {image(), no_outputs}).shape(), "f32[1, 0, 3, 3]");
}

const Shape x_type({{"n", symbol("N")}, {"c", 4}, {"h", 8}, {"w", 8}}, f32);
const Shape w_type({6, 4, 3, 3}, f32);

TEST_CASE("conv2d: tags and symbols pass through") {
  expect_type(infer(Conv2d{}, {x_type, w_type}), "f32[n=N, c=6, h=6, w=6]");
  const Shape open = x_type.with_dim(2, symbol("H"));
  expect_type(infer(Conv2d{.padding = {1, 1}}, {open, w_type}), "f32[n=N, c=6, h=H, w=8]");
  expect_type(infer(Conv2d{.stride = {2, 2}, .padding = {1, 1}}, {open, w_type}),
              "f32[n=N, c=6, h=_, w=4]");
}

TEST_CASE("conv2d: C1 number of inputs") {
  expect_error(Errc::bad_argument, [] { infer(Conv2d{.has_bias = true}, {x_type, w_type}); });
}

TEST_CASE("conv2d: C2 integers") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Conv2d{}, {x_type.with_dtype(i32), w_type.with_dtype(i32)}); });
}

TEST_CASE("conv2d: C3 ranks and mixed dtypes") {
  expect_error(Errc::shape_mismatch, [] { infer(Conv2d{}, {Shape({4, 8, 8}, f32), w_type}); });
  expect_error(Errc::shape_mismatch, [] { infer(Conv2d{}, {x_type, Shape({6, 4, 3}, f32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(Conv2d{.has_bias = true}, {x_type, w_type, Shape({1, 6}, f32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Conv2d{}, {x_type, w_type.with_dtype(f16)}); });
}

TEST_CASE("conv2d: C4 groups that divide nothing") {
  for (const std::int64_t groups : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{3}}) {
    expect_error(Errc::bad_attribute,
                 [groups] { infer(Conv2d{.groups = groups}, {x_type, w_type}); });
  }
  expect_error(Errc::bad_attribute,
               [] { infer(Conv2d{.groups = 4}, {x_type, Shape({6, 1, 3, 3}, f32)}); });
}

TEST_CASE("conv2d: C5 channels that differ") {
  expect_error(Errc::shape_mismatch, [] { infer(Conv2d{}, {x_type, Shape({6, 3, 3, 3}, f32)}); });
  expect_error(Errc::shape_mismatch, [] { infer(Conv2d{.groups = 2}, {x_type, w_type}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(Conv2d{.has_bias = true}, {x_type, w_type, Shape({5}, f32)}); });
}

TEST_CASE("conv2d: C6 lists") {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (const Conv2d& op : {
           Conv2d{.stride = {0, 1}},
           Conv2d{.stride = {1}},
           Conv2d{.stride = {1, -1}},
           Conv2d{.dilation = {0, 1}},
           Conv2d{.dilation = {1, 1, 1}},
           Conv2d{.padding = {-1, 0}},
           Conv2d{.padding = {0, 0, 0}},
           Conv2d{.padding = {3, 0}},
           Conv2d{.padding = {0, 0, 0, huge}},
       }) {
    expect_error(Errc::bad_attribute, [&op] { infer(op, {x_type, w_type}); });
  }
}

TEST_CASE("conv2d: C7 kernels that do not fit") {
  expect_error(Errc::bad_shape, [] { infer(Conv2d{}, {x_type, Shape({6, 4, 9, 1}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Conv2d{}, {x_type, Shape({6, 4, 0, 1}, f32)}); });
  expect_error(Errc::bad_shape, [] { infer(Conv2d{.dilation = {4, 1}}, {x_type, w_type}); });
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  expect_error(Errc::shape_overflow,
               [] { infer(Conv2d{.dilation = {huge, 1}}, {x_type, w_type}); });
}

TEST_CASE("conv2d: C8 one tag twice") {
  expect_error(Errc::shape_mismatch, [] { infer(Conv2d{}, {x_type, w_type.with_tag(0, "h")}); });
}

TEST_CASE("conv2d_filter_backward: what each tap meets") {
  // Two pixels of the result, each under a window of 1 x 2.
  const HostBuffer x = floats({1, 1, 1, 3}, {1, 2, 3}), upstream = floats({1, 1, 1, 2}, {10, 100});
  expect_equal(apply(Conv2dFilterBackward{.kernel = {1, 2}}, {x, upstream}), {210, 320});
  expect_equal(
      apply(Conv2dFilterBackward{.kernel = {1, 2}, .padding = {0, 0, 1, 0}}, {x, upstream}),
      {100, 210});
  expect_equal(apply(Conv2dFilterBackward{.kernel = {1, 1}, .stride = {1, 2}}, {x, upstream}),
               {310});
  // Windows beyond the image meet zeros.
  expect_equal(
      apply(Conv2dFilterBackward{.kernel = {1, 1}, .padding = {4, 4, 9, 0}}, {x, upstream}), {0});
  // Groups; no images, no pixels, no channels.
  expect_equal(apply(Conv2dFilterBackward{.kernel = {1, 1}, .groups = 2},
                     {floats({1, 2, 1, 1}, {3, 5}), floats({1, 2, 1, 1}, {10, 100})}),
               {30, 500});
  expect_equal(apply(Conv2dFilterBackward{.kernel = {1, 2}},
                     {floats({0, 1, 3, 3}, {}), floats({0, 2, 2, 2}, {})}),
               {0, 0, 0, 0});
  expect_equal(apply(Conv2dFilterBackward{.kernel = {1, 1}},
                     {floats({2, 1, 3, 0}, {}), floats({2, 1, 0, 2}, {})}),
               {0});
  expect_type(apply(Conv2dFilterBackward{.kernel = {2, 3}},
                    {floats({1, 0, 3, 3}, {}), floats({1, 2, 1, 1}, {1, 2})})
                  .shape(),
              "f32[2, 0, 2, 3]");
}

TEST_CASE("conv2d_filter_backward: C1 to C6") {
  const Shape x({2, 4, 8, 8}, f32), upstream({2, 6, 6, 6}, f32);
  const Conv2dFilterBackward op{.kernel = {3, 3}};
  expect_type(infer(op, {x, upstream}), "f32[6, 4, 3, 3]");
  expect_type(infer(op, {x.with_dim(2, symbol("H")), upstream}), "f32[6, 4, 3, 3]");
  expect_error(Errc::bad_argument, [&] { infer(op, {x}); });
  expect_error(Errc::unsupported_dtype, [&] { infer(op, {x.with_dtype(i32), upstream}); });
  expect_error(Errc::shape_mismatch, [&] { infer(op, {x, upstream.with_dtype(f16)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(op, {x, upstream.with_dim(0, 3)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(op, {x, Shape({2, 6, 6}, f32)}); });
  for (const std::int64_t groups : {0, 3, -1}) {
    expect_error(Errc::bad_attribute, [&] {
      infer(Conv2dFilterBackward{.kernel = {3, 3}, .groups = groups}, {x, upstream});
    });
  }
  for (const Conv2dFilterBackward& bad :
       {Conv2dFilterBackward{}, Conv2dFilterBackward{.kernel = {3}},
        Conv2dFilterBackward{.kernel = {3, 0}},
        Conv2dFilterBackward{.kernel = {3, 3}, .stride = {1, 0}},
        Conv2dFilterBackward{.kernel = {3, 3}, .padding = {-1, 0}},
        Conv2dFilterBackward{.kernel = {3, 3}, .dilation = {1, 1, 1}}}) {
    expect_error(Errc::bad_attribute, [&] { infer(bad, {x, upstream}); });
  }
  expect_error(Errc::unsupported, [&] { infer(op, {x.with_dim(1, symbol("C")), upstream}); });
}

}  // namespace
}  // namespace tenon::testing
