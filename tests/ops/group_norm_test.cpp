#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/ops/batch_norm.hpp>
#include <tenon/ops/group_norm.hpp>

#include <limits>

namespace tenon::testing {
namespace {

HostBuffer channels() { return floats({1, 4, 1}, {1, 3, 2, 10}); }

TEST_CASE("group_norm: groups of channels") {
  expect_near(apply(GroupNorm{.groups = 2, .eps = 0}, {channels()}), {-1, 1, -1, 1});
  expect_near(apply(GroupNorm{.groups = 2, .eps = 0},
                    {channels(), floats({4}, {1, 2, 3, 4}), floats({4}, {10, 20, 30, 40})}),
              {9, 22, 27, 44});
  expect_near(apply(GroupNorm{.groups = 1, .eps = 12.5}, {channels()}), {-0.6, -0.2, -0.4, 1.2});
}

TEST_CASE("group_norm: types, sizes of zero, instance_norm") {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    expect_equal(apply(GroupNorm{.groups = 2, .eps = 0}, {channels().to(dtype)}), {-1, 1, -1, 1});
  }
  expect_type(apply(GroupNorm{.groups = 2}, {floats({0, 4, 3}, {})}).shape(), "f32[0, 4, 3]");
  ValuedGraph graph;
  const Tensor x = graph.input(floats({1, 2, 2}, {1, 3, 2, 10}));
  expect_near(graph.value(instance_norm(x, {}, {}, 0)), {-1, 1, -1, 1});
  expect_error(Errc::bad_argument, [&] { group_norm(x, 1, {}, x); });
}

TEST_CASE("group_norm: C1 to C3") {
  const Shape x({2, 4, 3}, f32), weight({4}, f32);
  expect_error(Errc::unsupported_dtype, [&] { infer(GroupNorm{}, {x.with_dtype(i32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(GroupNorm{}, {Shape({4}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(GroupNorm{}, {x, Shape({3}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(GroupNorm{}, {x, weight.with_dtype(f16)}); });
  for (const GroupNorm& op : {GroupNorm{.groups = 0}, GroupNorm{.groups = 3}, GroupNorm{.eps = -1},
                              GroupNorm{.eps = std::numeric_limits<double>::quiet_NaN()}}) {
    expect_error(Errc::bad_attribute, [&] { infer(op, {x}); });
  }
}

TEST_CASE("batch_norm: channels by given statistics") {
  const HostBuffer x = floats({1, 2, 2}, {1, 3, 2, 10});
  const HostBuffer mean = floats({2}, {1, 2}), variance = floats({2}, {4, 16});
  expect_near(apply(BatchNorm{.eps = 0}, {x, mean, variance}), {0, 1, 0, 2});
  expect_near(apply(BatchNorm{.eps = 0}, {x, mean, variance, floats({2}, {2, 3})}), {0, 2, 0, 6});
  expect_near(
      apply(BatchNorm{.eps = 0}, {x, mean, variance, floats({2}, {2, 3}), floats({2}, {10, 20})}),
      {10, 12, 20, 26});
  for (const DType dtype : {f16, bf16, f32, f64}) {
    expect_equal(apply(BatchNorm{.eps = 0}, {x.to(dtype), mean.to(dtype), variance.to(dtype)}),
                 {0, 1, 0, 2});
  }
  expect_type(apply(BatchNorm{}, {floats({0, 2}, {}), mean, variance}).shape(), "f32[0, 2]");
}

TEST_CASE("batch_norm: C1 to C3") {
  const Shape x({2, 4, 3}, f32), row({4}, f32);
  expect_error(Errc::unsupported_dtype, [&] { infer(BatchNorm{}, {x.with_dtype(i32), row, row}); });
  expect_error(Errc::shape_mismatch, [&] { infer(BatchNorm{}, {row, row, row}); });
  expect_error(Errc::shape_mismatch, [&] { infer(BatchNorm{}, {x, row, Shape({3}, f32)}); });
  expect_error(Errc::shape_mismatch, [&] { infer(BatchNorm{}, {x, row.with_dtype(f16), row}); });
  expect_error(Errc::bad_attribute, [&] { infer(BatchNorm{.eps = -1}, {x, row, row}); });
}

}  // namespace
}  // namespace tenon::testing
