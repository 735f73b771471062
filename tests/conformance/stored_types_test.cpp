// Types that are stored and converted, but not computed with: u64, 8-bit floating point, c64.
#include "run_case.hpp"
#include "support/literals.hpp"
#include "support/op_cases.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

constexpr DType converted[] = {u64, f8_e4m3, f8_e5m2};
constexpr DType stored[] = {u64, f8_e4m3, f8_e5m2, c64};
constexpr DType plain[] = {boolean, i8,   i16, i32, i64, u8,      u16,    u32,
                           f16,     bf16, f32, f64, u64, f8_e4m3, f8_e5m2};

/// Any bytes, and for u64 numbers of any size.
HostBuffer array_of(Random& random, const Shape& shape) {
  HostBuffer result = HostBuffer::zeros(shape);
  const HostBuffer bytes = random.uniform(Shape({shape.bytes()}, f32), 0, 255.99);
  for (std::int64_t i = 0; i < shape.bytes(); ++i) {
    const auto byte = static_cast<std::uint8_t>(bytes.at({i}));
    result.view().data[i] = static_cast<std::byte>(shape.dtype() == boolean ? byte % 2 : byte);
  }
  if (shape.dtype() == u64) {
    auto values = result.mutable_values<std::uint64_t>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] >>= (7 * i) % 64;
    if (values.size() > 3) values[3] = ~std::uint64_t{0};
  }
  return result;
}

/// The CPU backend alone gives the reference's bytes, NaNs apart.
void check(const OpInstance& op, std::vector<HostBuffer> inputs) {
  OpCase made;
  made.name = op.def()->name;
  made.op = op;
  made.inputs = std::move(inputs);
  made.output = run_reference(made.op, made.inputs);
  const std::vector<BackendPtr> backends{make_backend("cpu", {.threads = 2})};
  for (const Order order : {Order::dense, Order::permuted, Order::reversed}) {
    const HostBuffer got = run_case(made, backends, order).contiguous();
    REQUIRE(got.shape() == made.output.shape());
    const std::vector<double> want = elements(made.output), have = elements(got);
    CHECK(std::ranges::equal(want, have,
                             [](double a, double b) { return a == b || (a != a && b != b); }));
    if (got.shape().dtype() == u64) {
      CHECK(std::equal(got.bytes(), got.bytes() + got.shape().bytes(), made.output.bytes()));
    }
  }
}

TEST_CASE("stored types: converted from and to every plain type") {
  register_cpu_backend();
  register_reference_backend();
  Random random(4);
  for (const DType type : converted) {
    for (const DType other : plain) {
      INFO(name(type) << " and " << name(other));
      if (type == other) continue;
      check(OpInstance(Cast{.dtype = other}), {array_of(random, Shape({9, 301}, type))});
      check(OpInstance(Cast{.dtype = type}), {array_of(random, Shape({9, 301}, other))});
    }
  }
}

TEST_CASE("stored types: moved") {
  register_cpu_backend();
  register_reference_backend();
  Random random(5);
  for (const DType type : stored) {
    INFO(name(type));
    const HostBuffer x = array_of(random, Shape({4, 6}, type));
    const HostBuffer y = array_of(random, Shape({4, 6}, type));
    const HostBuffer rows = HostBuffer::of<std::int32_t>(Shape({3}, i32), {3, 0, 3});
    check(OpInstance(Concat{.axis = 1}), {x, y});
    check(OpInstance(Gather{.axis = 0}), {x, rows});
    check(OpInstance(Pad{.before = {1, 0}, .after = {0, 2}}), {x});
    check(OpInstance(Where{}), {array_of(random, Shape({4, 6}, boolean)), x, y});
  }
}

TEST_CASE("stored types: not computed with") {
  for (const DType type : stored) {
    const Shape x({2, 3}, type);
    expect_error(Errc::unsupported_dtype, [&] { infer(Add{}, {x, x}); });
    expect_error(Errc::unsupported_dtype, [&] { infer(Lt{}, {x, x}); });
    expect_error(Errc::unsupported_dtype, [&] { infer(Neg{}, {x}); });
    Sum sum;
    sum.axes = {0};
    expect_error(Errc::unsupported_dtype, [&] { infer(sum, {x}); });
    expect_error(Errc::unsupported_dtype, [&] { infer(Sort{}, {x}); });
    expect_error(Errc::unsupported_dtype, [&] { infer(Matmul{}, {x, x}); });
    expect_error(Errc::unsupported_dtype, [&] { infer(Linear{}, {x.with_dtype(f32), x}); });
  }
}

}  // namespace
}  // namespace tenon::testing
