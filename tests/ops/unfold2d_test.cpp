#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/unfold2d.hpp>

namespace tenon::testing {
namespace {

HostBuffer pixels() { return floats({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6}); }

TEST_CASE("unfold2d: a column for each window") {
  const HostBuffer y = apply(Unfold2d{.kernel = {2, 2}}, {pixels()});
  expect_type(y.shape(), "f32[1, 4, 2]");
  expect_equal(y, {1, 2, 2, 3, 4, 5, 5, 6});
  // top, bottom, left, right
  expect_equal(
      apply(Unfold2d{.kernel = {2, 1}, .stride = {1, 2}, .padding = {1, 0, 0, 0}}, {pixels()}),
      {0, 0, 1, 3, 1, 3, 4, 6});
  expect_equal(apply(Unfold2d{.kernel = {1, 2}, .dilation = {1, 2}}, {pixels()}), {1, 4, 3, 6});
}

TEST_CASE("fold2d: windows add up at their places") {
  const HostBuffer x = floats({1, 4, 2}, {1, 2, 2, 3, 4, 5, 5, 6});
  const HostBuffer y = apply(Fold2d{.size = {2, 3}, .kernel = {2, 2}}, {x});
  expect_type(y.shape(), "f32[1, 1, 2, 3]");
  expect_equal(y, {1, 4, 3, 4, 10, 6});
  expect_equal(apply(Fold2d{.size = {1, 3}, .kernel = {1, 1}, .stride = {1, 2}},
                     {floats({1, 1, 2}, {7, 8})}),
               {7, 0, 8});
  expect_equal(apply(Fold2d{.size = {1, 1}, .kernel = {1, 3}, .padding = {0, 1}},
                     {floats({1, 3, 1}, {7, 8, 9})}),
               {8});
}

TEST_CASE("unfold2d, fold2d: every floating type, sizes of zero, symbols") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    expect_equal(apply(Unfold2d{.kernel = {1, 2}}, {pixels().to(dtype)}), {1, 2, 4, 5, 2, 3, 5, 6});
    expect_equal(
        apply(Fold2d{.size = {1, 2}, .kernel = {1, 1}}, {floats({1, 1, 2}, {0.5f, 2}).to(dtype)}),
        {0.5, 2});
  }
  expect_type(apply(Unfold2d{.kernel = {1, 2}}, {floats({0, 3, 2, 3}, {})}).shape(),
              "f32[0, 6, 4]");
  expect_type(apply(Fold2d{.size = {2, 2}, .kernel = {1, 1}}, {floats({2, 0, 4}, {})}).shape(),
              "f32[2, 0, 2, 2]");
  const Shape open({{"n", symbol("N")}, {"c", 2}, {"h", symbol("H")}, {"w", 4}}, f32);
  expect_type(infer(Unfold2d{.kernel = {2, 2}}, {open}), "f32[N, 8, _]");
}

const Shape image_type({1, 2, 4, 4}, f32);

TEST_CASE("unfold2d: C1 to C4") {
  expect_error(Errc::unsupported_dtype,
               [] { infer(Unfold2d{.kernel = {2, 2}}, {image_type.with_dtype(i32)}); });
  expect_error(Errc::shape_mismatch,
               [] { infer(Unfold2d{.kernel = {2, 2}}, {Shape({4, 4}, f32)}); });
  for (const Unfold2d& op : {Unfold2d{}, Unfold2d{.kernel = {2}}, Unfold2d{.kernel = {0, 1}},
                             Unfold2d{.kernel = {1, 1}, .stride = {0, 1}},
                             Unfold2d{.kernel = {1, 1}, .padding = {-1, 0}},
                             Unfold2d{.kernel = {1, 1}, .dilation = {1, 1, 1}}}) {
    expect_error(Errc::bad_attribute, [&op] { infer(op, {image_type}); });
  }
  expect_error(Errc::bad_shape, [] { infer(Unfold2d{.kernel = {5, 1}}, {image_type}); });
}

TEST_CASE("fold2d: C1 to C5") {
  const Shape columns({1, 4, 9}, f32);
  const Fold2d good{.size = {4, 4}, .kernel = {2, 2}};
  expect_error(Errc::unsupported_dtype, [&] { infer(good, {columns.with_dtype(i32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(good, {image_type}); });
  for (const Fold2d& op :
       {Fold2d{.kernel = {2, 2}}, Fold2d{.size = {4, 4}}, Fold2d{.size = {-1, 4}, .kernel = {2, 2}},
        Fold2d{.size = {4, 4}, .kernel = {2, 2}, .stride = {1}}}) {
    expect_error(Errc::bad_attribute, [&] { infer(op, {columns}); });
  }
  expect_error(Errc::bad_shape,
               [&] { infer(Fold2d{.size = {1, 4}, .kernel = {2, 2}}, {columns}); });
  expect_error(Errc::shape_mismatch, [&] { infer(good, {Shape({1, 5, 9}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(good, {Shape({1, 4, 8}, f32)}); });
}

}  // namespace
}  // namespace tenon::testing
