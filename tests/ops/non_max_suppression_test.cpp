#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/non_max_suppression.hpp>

#include <limits>

namespace tenon::testing {
namespace {

// Two that overlap by a third of their union, one apart; corners in any order.
HostBuffer boxes() { return floats({1, 3, 4}, {0, 0, 1, 2, 1, 3, 0, 1, 5, 5, 6, 6}); }

TEST_CASE("non_max_suppression: drops what overlaps a better one") {
  const HostBuffer scores = floats({1, 1, 3}, {0.5f, 0.9f, 0.1f});
  const NonMaxSuppression op{.capacity = 3, .iou_threshold = 0.3};
  const HostBuffer y = apply(op, {boxes(), scores});
  expect_type(y.shape(), "i64[3, 3]");
  expect_equal(y, {0, 0, 1, 0, 0, 2, -1, -1, -1});
  expect_equal(apply(NonMaxSuppression{.capacity = 2, .iou_threshold = 0.4}, {boxes(), scores}),
               {0, 0, 1, 0, 0, 0});
  expect_equal(apply(NonMaxSuppression{.capacity = 2, .max_per_class = 1}, {boxes(), scores}),
               {0, 0, 1, -1, -1, -1});
  expect_equal(apply(NonMaxSuppression{.capacity = 2, .iou_threshold = 0.3, .score_threshold = 0.2},
                     {boxes(), scores}),
               {0, 0, 1, -1, -1, -1});
}

TEST_CASE("non_max_suppression: centres, ties, NaN, types") {
  const HostBuffer centred = floats({1, 2, 4}, {1, 1, 2, 2, 1, 1, 2, 2});
  for (const DType dtype : {f16, bf16, f32, f64}) {
    expect_equal(apply(NonMaxSuppression{.capacity = 2, .center_point_box = true},
                       {centred.to(dtype), floats({1, 1, 2}, {0.5f, 0.5f}).to(dtype)}),
                 {0, 0, 0, -1, -1, -1});
  }
  expect_equal(apply(NonMaxSuppression{.capacity = 1}, {centred, floats({1, 1, 2}, {nan, -1})}),
               {0, 0, 1});
  expect_equal(
      apply(NonMaxSuppression{.capacity = 1}, {floats({1, 0, 4}, {}), floats({1, 2, 0}, {})}),
      {-1, -1, -1});
}

TEST_CASE("non_max_suppression: C1 to C3") {
  const Shape b({1, 3, 4}, f32), s({1, 2, 3}, f32);
  expect_error(Errc::unsupported_dtype,
               [&] { infer(NonMaxSuppression{}, {b, s.with_dtype(i32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(NonMaxSuppression{}, {b, Shape({2, 3}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(NonMaxSuppression{}, {b.with_dim(1, 4), s}); });
  expect_error(Errc::shape_mismatch, [&] { infer(NonMaxSuppression{}, {b.with_dim(2, 5), s}); });
  for (const NonMaxSuppression& op :
       {NonMaxSuppression{.capacity = -1}, NonMaxSuppression{.max_per_class = -1},
        NonMaxSuppression{.iou_threshold = 1.5},
        NonMaxSuppression{.score_threshold = std::numeric_limits<double>::quiet_NaN()}}) {
    expect_error(Errc::bad_attribute, [&] { infer(op, {b, s}); });
  }
}

}  // namespace
}  // namespace tenon::testing
