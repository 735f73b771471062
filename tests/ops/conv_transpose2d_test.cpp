#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/conv_transpose2d.hpp>

#include <cstdint>
#include <limits>

namespace tenon::testing {
namespace {

HostBuffer small_image() { return floats({1, 1, 2, 2}, {1, 2, 3, 4}); }
HostBuffer ones_filter() { return floats({1, 1, 2, 2}, {1, 1, 1, 1}); }

TEST_CASE("conv_transpose2d: each element adds its multiple of the filter") {
  const HostBuffer w = floats({1, 1, 2, 2}, {1, 10, 100, 1000});
  const HostBuffer y = apply(ConvTranspose2d{}, {small_image(), w});
  expect_type(y.shape(), "f32[1, 1, 3, 3]");
  expect_equal(y, {1, 12, 20, 103, 1234, 2040, 300, 3400, 4000});
  expect_equal(
      apply(ConvTranspose2d{.has_bias = true}, {floats({1, 1, 1, 1}, {2}), w, floats({1}, {0.5f})}),
      {2.5, 20.5, 200.5, 2000.5});
}

TEST_CASE("conv_transpose2d: stride, padding and rows added at the end") {
  expect_equal(apply(ConvTranspose2d{.stride = {2, 2}}, {small_image(), ones_filter()}),
               {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4});
  expect_equal(
      apply(ConvTranspose2d{.stride = {2, 2}, .padding = {1, 1}}, {small_image(), ones_filter()}),
      {1, 2, 3, 4});
  // top, bottom, left, right
  expect_equal(apply(ConvTranspose2d{.padding = {1, 0, 0, 2}}, {small_image(), ones_filter()}),
               {4, 3});
  // The padding may cut off more than the filter reaches.
  expect_equal(
      apply(ConvTranspose2d{.padding = {0, 1, 0, 0}}, {small_image(), floats({1, 1, 1, 1}, {1})}),
      {1, 2});
  expect_equal(apply(ConvTranspose2d{.stride = {2, 2}, .output_padding = {1, 0}},
                     {floats({1, 1, 1, 2}, {1, 2}), ones_filter()}),
               {1, 1, 2, 2, 1, 1, 2, 2, 0, 0, 0, 0});
}

TEST_CASE("conv_transpose2d: dilation, channels and groups") {
  expect_equal(apply(ConvTranspose2d{.dilation = {1, 2}},
                     {floats({1, 1, 1, 2}, {1, 2}), floats({1, 1, 1, 2}, {1, 10})}),
               {1, 2, 10, 20});
  const HostBuffer x = floats({1, 2, 1, 1}, {3, 5});
  expect_equal(apply(ConvTranspose2d{}, {x, floats({2, 2, 1, 1}, {1, 10, 100, 1000})}),
               {503, 5030});
  expect_equal(apply(ConvTranspose2d{.groups = 2}, {x, floats({2, 2, 1, 1}, {1, 2, 3, 4})}),
               {3, 6, 15, 20});
}

TEST_CASE("conv_transpose2d: every floating type, and sizes of zero") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const HostBuffer y =
        apply(ConvTranspose2d{}, {small_image().to(dtype), floats({1, 1, 1, 1}, {0.5f}).to(dtype)});
    CHECK(y.shape().dtype() == dtype);
    expect_equal(y, {0.5, 1, 1.5, 2});
  }
  expect_type(apply(ConvTranspose2d{}, {floats({0, 1, 2, 2}, {}), ones_filter()}).shape(),
              "f32[0, 1, 3, 3]");
  expect_equal(apply(ConvTranspose2d{.has_bias = true},
                     {floats({1, 0, 1, 1}, {}), floats({0, 2, 1, 1}, {}), floats({2}, {3, 4})}),
               {3, 4});
  expect_equal(apply(ConvTranspose2d{}, {floats({1, 1, 0, 1}, {}), ones_filter()}), {0, 0});
}

const Shape image_type({{"n", symbol("N")}, {"c", 4}, {"h", 8}, {"w", 8}}, f32);
const Shape filter_type({4, 6, 3, 3}, f32);

TEST_CASE("conv_transpose2d: tags and symbols pass through") {
  expect_type(infer(ConvTranspose2d{.stride = {2, 2}}, {image_type, filter_type}),
              "f32[n=N, c=6, h=17, w=17]");
  const Shape open = image_type.with_dim(2, symbol("H"));
  expect_type(infer(ConvTranspose2d{.padding = {1, 1}}, {open, filter_type}),
              "f32[n=N, c=6, h=H, w=8]");
  expect_type(infer(ConvTranspose2d{.stride = {2, 1}, .groups = 2}, {open, filter_type}),
              "f32[n=N, c=12, h=_, w=10]");
}

TEST_CASE("conv_transpose2d: C1 to C3 operands") {
  expect_error(Errc::bad_argument,
               [] { infer(ConvTranspose2d{.has_bias = true}, {image_type, filter_type}); });
  expect_error(Errc::unsupported_dtype, [] {
    infer(ConvTranspose2d{}, {image_type.with_dtype(i32), filter_type.with_dtype(i32)});
  });
  expect_error(Errc::shape_mismatch,
               [] { infer(ConvTranspose2d{}, {Shape({4, 8, 8}, f32), filter_type}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(ConvTranspose2d{}, {image_type, filter_type.with_dtype(f16)}); });
}

TEST_CASE("conv_transpose2d: C4 groups that divide nothing") {
  for (const std::int64_t groups : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{3}}) {
    expect_error(Errc::bad_attribute,
                 [groups] { infer(ConvTranspose2d{.groups = groups}, {image_type, filter_type}); });
  }
}

TEST_CASE("conv_transpose2d: C5 channels that differ") {
  expect_error(Errc::shape_mismatch,
               [] { infer(ConvTranspose2d{}, {image_type, Shape({3, 6, 3, 3}, f32)}); });
  expect_error(Errc::shape_mismatch, [] {
    infer(ConvTranspose2d{.groups = 2, .has_bias = true},
          {image_type, filter_type, Shape({6}, f32)});
  });
}

TEST_CASE("conv_transpose2d: C6 lists") {
  for (const ConvTranspose2d& op : {
           ConvTranspose2d{.stride = {0, 1}},
           ConvTranspose2d{.stride = {1}},
           ConvTranspose2d{.padding = {-1, 0}},
           ConvTranspose2d{.padding = {0, 0, 0}},
           ConvTranspose2d{.output_padding = {1, 0}},
           ConvTranspose2d{.stride = {2, 2}, .output_padding = {0, 2}},
           ConvTranspose2d{.stride = {2, 2}, .output_padding = {-1, 0}},
           ConvTranspose2d{.dilation = {0, 1}},
       }) {
    expect_error(Errc::bad_attribute, [&op] { infer(op, {image_type, filter_type}); });
  }
  CHECK_NOTHROW(infer(ConvTranspose2d{.output_padding = {1, 0}, .dilation = {2, 1}},
                      {image_type, filter_type}));
}

TEST_CASE("conv_transpose2d: C7 results without room, C8 one tag twice") {
  expect_error(Errc::bad_shape,
               [] { infer(ConvTranspose2d{}, {image_type, Shape({4, 6, 0, 1}, f32)}); });
  expect_error(Errc::bad_shape,
               [] { infer(ConvTranspose2d{.padding = {6, 0}}, {image_type, filter_type}); });
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  expect_error(Errc::shape_overflow,
               [] { infer(ConvTranspose2d{.stride = {huge, 1}}, {image_type, filter_type}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(ConvTranspose2d{}, {image_type, filter_type.with_tag(1, "h")}); });
}

TEST_CASE("conv_transpose1d and 3d, conv3d: the same along other axes") {
  ValuedGraph graph;
  const Tensor row = graph.input(floats({1, 1, 2}, {1, 2}));
  const Tensor pair = graph.input(floats({1, 1, 2}, {1, 10}));
  expect_equal(graph.value(conv_transpose1d(row, pair, {}, {.stride = 2, .padding_left = 1})),
               {10, 2, 20});
  const Tensor volume = graph.input(floats({1, 1, 2, 1, 2}, {1, 2, 3, 4}));
  const Tensor taps = graph.input(floats({1, 1, 2, 1, 1}, {1, 10}));
  expect_equal(graph.value(conv_transpose3d(volume, taps)), {1, 2, 13, 24, 30, 40});
  const Tensor bias = graph.input(floats({1}, {0.5f}));
  expect_equal(graph.value(conv_transpose3d(
                   volume, taps, bias,
                   {.stride = {2, 1, 1}, .padding = {1, 0, 0}, .output_padding = {1, 0, 0}})),
               {10.5, 20.5, 3.5, 4.5, 30.5, 40.5});
  expect_equal(graph.value(conv3d(volume, taps)), {31, 42});
  expect_equal(graph.value(conv3d(volume, taps, bias, {.stride = {2, 1, 1}, .padding = {1, 0, 0}})),
               {10.5, 20.5, 3.5, 4.5});
  expect_error(Errc::shape_mismatch, [&] { conv3d(row, taps); });
  expect_error(Errc::bad_attribute, [&] { conv3d(volume, taps, {}, {.stride = {1, 1}}); });
  expect_error(Errc::bad_attribute,
               [&] { conv_transpose3d(volume, taps, {}, {.output_padding = {1, 0, 0}}); });
}

}  // namespace
}  // namespace tenon::testing
