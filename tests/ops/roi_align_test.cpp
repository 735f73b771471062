#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/roi_align.hpp>

namespace tenon::testing {
namespace {

HostBuffer square() { return floats({1, 1, 2, 2}, {1, 2, 3, 4}); }
HostBuffer box(float x1, float y1, float x2, float y2) { return floats({1, 4}, {x1, y1, x2, y2}); }

TEST_CASE("roi_align: means of samples") {
  const HostBuffer first = ints({1}, {0});
  // Aligned: pixel centres lie at 0.5 and 1.5.
  expect_near(apply(RoiAlign{.size = {2, 2}}, {square(), box(0, 0, 2, 2), first}), {1, 2, 3, 4});
  expect_near(apply(RoiAlign{.size = {1, 1}}, {square(), box(0, 0, 2, 2), first}), {2.5});
  expect_near(apply(RoiAlign{.size = {1, 1}, .scale = 0.5, .sampling_ratio = 1, .aligned = false},
                    {square(), box(0, 0, 2, 2), first}),
              {2.5});
  // More than a pixel outside.
  expect_near(
      apply(RoiAlign{.size = {1, 1}, .sampling_ratio = 1}, {square(), box(5, 5, 6, 6), first}),
      {0});
}

TEST_CASE("roi_align_backward: to the pixels") {
  expect_near(apply(RoiAlignBackward{.size = {1, 1}, .sampling_ratio = 1},
                    {square(), box(0, 0, 2, 2), ints({1}, {0}), floats({1, 1, 1, 1}, {8})}),
              {2, 2, 2, 2});
}

TEST_CASE("roi_align: types, no boxes, C4 an image that there is not") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    expect_equal(apply(RoiAlign{.size = {1, 1}, .sampling_ratio = 1},
                       {square().to(dtype), box(0, 0, 2, 2).to(dtype), ints({1}, {0})}),
                 {2.5});
  }
  expect_type(
      apply(RoiAlign{.size = {2, 3}}, {square(), floats({0, 4}, {}), ints({0}, {})}).shape(),
      "f32[0, 1, 2, 3]");
  expect_error(Errc::out_of_range, [] {
    apply(RoiAlign{.size = {1, 1}}, {square(), box(0, 0, 1, 1), ints({1}, {1})});
  });
}

TEST_CASE("roi_align: C1 to C3, C5") {
  const Shape x({1, 2, 4, 4}, f32), boxes({3, 4}, f32), images({3}, i32);
  const RoiAlign good{.size = {2, 2}};
  expect_error(Errc::unsupported_dtype, [&] { infer(good, {x.with_dtype(i32), boxes, images}); });
  expect_error(Errc::unsupported_dtype, [&] { infer(good, {x, boxes, images.with_dtype(f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(good, {x, Shape({3, 5}, f32), images}); });
  expect_error(Errc::shape_mismatch, [&] { infer(good, {x, boxes, Shape({2}, i32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(good, {x, boxes.with_dtype(f16), images}); });
  for (const RoiAlign& op :
       {RoiAlign{}, RoiAlign{.size = {0, 1}}, RoiAlign{.size = {1, 1}, .scale = 0},
        RoiAlign{.size = {1, 1}, .sampling_ratio = -1}}) {
    expect_error(Errc::bad_attribute, [&] { infer(op, {x, boxes, images}); });
  }
  expect_error(Errc::shape_mismatch, [&] {
    infer(RoiAlignBackward{.size = {2, 2}}, {x, boxes, images, Shape({3, 2, 2, 1}, f32)});
  });
}

}  // namespace
}  // namespace tenon::testing
