#include "support/literals.hpp"
#include "support/op_testing.hpp"

#include <tenon/ops/grid_sample.hpp>

namespace tenon::testing {
namespace {

HostBuffer strip() { return floats({1, 1, 1, 2}, {1, 3}); }
HostBuffer places(std::initializer_list<float> columns) {
  std::vector<float> values;
  for (const float column : columns) values.insert(values.end(), {column, 0});
  const HostBuffer grid =
      HostBuffer::uninitialized(Shape({1, 1, static_cast<std::int64_t>(columns.size()), 2}, f32));
  std::copy(values.begin(), values.end(), grid.view().as<float>());
  return grid;
}

template <class Op = GridSample>
Op words(Name mode, Name padding, bool align_corners) {
  Op op;
  op.mode = mode;
  op.padding = padding;
  op.align_corners = align_corners;
  return op;
}

TEST_CASE("grid_sample: between pixels and outside") {
  const HostBuffer grid = places({-1, 0, 0.5f, 1, 2, nan});
  expect_near(apply(words("bilinear", "zeros", true), {strip(), grid}), {1, 2, 2.5, 3, 1.5, 0});
  expect_near(apply(words("bilinear", "zeros", false), {strip(), grid}), {0.5, 2, 3, 1.5, 0, 0});
  expect_near(apply(words("", "border", true), {strip(), grid}), {1, 2, 2.5, 3, 3, 1});
  expect_near(apply(words("", "reflection", true), {strip(), grid}), {1, 2, 2.5, 3, 2, 1});
  // Halves to the even pixel.
  expect_equal(apply(words("nearest", "", true), {strip(), places({-0.1f, 0, 0.1f, 3})}),
               {1, 1, 3, 0});
}

TEST_CASE("grid_sample_backward: to the pixels, and to the places") {
  const HostBuffer grid = places({0.5f, 2});
  const HostBuffer upstream = floats({1, 1, 1, 2}, {1, 10});
  expect_near(apply(words<GridSampleBackward>("", "", true), {strip(), grid, upstream}),
              {0.25, 5.75});
  // The column moves by half a pixel per unit, the row by nothing.
  expect_near(apply(words<GridSampleGridBackward>("", "", true), {strip(), grid, upstream}),
              {1, 0, -15, 0});
  expect_near(apply(words<GridSampleGridBackward>("", "border", true), {strip(), grid, upstream}),
              {1, 0, 0, 0});
}

TEST_CASE("grid_sample: infinities along an axis of one element") {
  const HostBuffer column = floats({1, 1, 2, 1}, {6, 7});
  const HostBuffer grid = floats({1, 1, 2, 2}, {INFINITY, 1, -INFINITY, -1});
  expect_equal(apply(words("", "border", true), {column, grid}), {7, 6});
  expect_equal(apply(words("", "", true), {column, grid}), {0, 0});
}

TEST_CASE("grid_sample: types, sizes of zero, symbols") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    expect_equal(apply(words("", "", true), {strip().to(dtype), places({0}).to(dtype)}), {2});
  }
  expect_type(apply(GridSample{}, {floats({0, 3, 1, 1}, {}), floats({0, 2, 1, 2}, {})}).shape(),
              "f32[0, 3, 2, 1]");
  const Shape x({{"n", symbol("N")}, {"c", 3}, {"h", symbol("H")}, {"w", 4}}, f32);
  expect_type(infer(GridSample{}, {x, Shape({2, 5, 6, 2}, f32)}), "f32[2, 3, 5, 6]");
}

TEST_CASE("grid_sample: C1 to C6") {
  const Shape x({1, 2, 4, 4}, f32), grid({1, 3, 3, 2}, f32);
  expect_error(Errc::unsupported_dtype, [&] { infer(GridSample{}, {x.with_dtype(i32), grid}); });
  expect_error(Errc::shape_mismatch, [&] { infer(GridSample{}, {x, Shape({1, 3, 2}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(GridSample{}, {x, grid.with_dtype(f16)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(GridSample{}, {x, grid.with_dim(0, 2)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(GridSample{}, {x, grid.with_dim(3, 3)}); });
  expect_error(Errc::bad_attribute, [&] { infer(words("cubic", "", true), {x, grid}); });
  expect_error(Errc::bad_attribute, [&] { infer(words("", "wrap", true), {x, grid}); });
  expect_error(Errc::bad_shape, [&] { infer(GridSample{}, {x.with_dim(2, 0), grid}); });
  expect_error(Errc::shape_mismatch,
               [&] { infer(GridSampleBackward{}, {x, grid, Shape({1, 2, 3, 4}, f32)}); });
}

}  // namespace
}  // namespace tenon::testing
