// Sorting of lanes that are longer than what a kernel processes at once.
#include "run_case.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/sort.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <string>

namespace tenon::testing {
namespace {

/// An op of x on the CPU backend and by its definition: the same values.
template <class Op>
void check_sorted(const Op& op, const HostBuffer& x, int threads) {
  register_cpu_backend();
  register_reference_backend();
  const auto run = [&](const std::string& backend) {
    OpCase op_case;
    op_case.op = OpInstance(op);
    op_case.inputs = {x};
    return run_case(op_case, {make_backend(backend, {.threads = threads})}, Order::dense);
  };
  expect_close(run("cpu"), run("reference"), 0, 0);
}

void check_both(const HostBuffer& x, std::int64_t axis, int threads) {
  for (const bool descending : {false, true}) {
    INFO(to_string(x.shape()) << ", axis " << axis << ", " << threads << " threads, descending "
                              << descending);
    check_sorted(Sort{.axis = axis, .descending = descending}, x, threads);
    check_sorted(Argsort{.axis = axis, .descending = descending}, x, threads);
  }
}

TEST_CASE("sort: long lanes of every type") {
  Random random;
  EveryThird third;
  for (const DType dtype : {f32, f16, bf16, f64, i8, i32, i64, u8, u16, u32}) {
    if (third.skips()) continue;
    const HostBuffer x = random.uniform(Shape({2, 700, 2}, f32), -100, 100);
    const HostBuffer one = random.uniform(Shape({17000}, f32), -100, 100);
    const bool is_unsigned = dtype == u8 || dtype == u16 || dtype == u32;
    const HostBuffer lanes =
        is_unsigned ? random.uniform(x.shape(), 0, 100).to(dtype) : x.to(dtype);
    const HostBuffer row =
        is_unsigned ? random.uniform(one.shape(), 0, 100).to(dtype) : one.to(dtype);
    check_both(lanes, 1, 2);
    check_both(row, 0, 1);
    check_both(row, 0, 8);  // divided among threads by ranges of values
  }
}

TEST_CASE("sort: long lanes with equals, NaN and infinities") {
  Random random;
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float specials[] = {std::numeric_limits<float>::quiet_NaN(), inf, -inf, -0.0F, 0};
  for (const std::int64_t distinct : {1, 3, 100000}) {
    HostBuffer x = HostBuffer::uninitialized(Shape({20000}, f32));
    for (float& v : x.mutable_values<float>()) {
      const std::int64_t number = random.integer(-distinct, distinct);
      v = random.integer(0, 9) == 0 ? specials[random.integer(0, 4)] : static_cast<float>(number);
    }
    check_both(x, 0, 9);
    check_both(x, 0, 2);
  }
}

/// Ascending rows of whole numbers, with equals, zeros of both signs, infinities and, at the end, NaN.
HostBuffer ascending_rows(Random& random, const Shape& shape, std::int64_t distinct) {
  const HostBuffer x = random.uniform(shape.with_dtype(f32), 0, static_cast<double>(distinct));
  HostBuffer whole = x.to(i32).to(f32);
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::int64_t size = shape[shape.rank() - 1];
  std::span<float> values = whole.mutable_values<float>();
  for (std::size_t row = 0; row < values.size(); row += static_cast<std::size_t>(size)) {
    const std::span<float> all = values.subspan(row, static_cast<std::size_t>(size));
    std::ranges::sort(all);
    if (!is_floating(shape.dtype())) continue;
    if (all[0] == 0 && size > 1 && all[1] == 0) all[1] = -0.0F;
    if (random.integer(0, 1) != 0) all[0] = -inf;
    if (random.integer(0, 1) != 0) all.back() = inf;
    for (std::int64_t nans = random.integer(0, 2); nans > 0 && nans <= size; --nans)
      all[static_cast<std::size_t>(size - nans)] = std::numeric_limits<float>::quiet_NaN();
  }
  return whole.to(shape.dtype());
}

TEST_CASE("searchsorted: rows and values of any size, order and type") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  const std::int64_t sizes[] = {1, 2, 3, 16, 17, 100, 511, 1000, 5000};
  for (int i = 0; i < 120; ++i) {
    const DType types[] = {f32, f32, i64, f64, i32, f16, u8};
    const DType dtype = types[random.integer(0, 6)];
    const std::int64_t size = sizes[random.integer(0, 8)];
    const std::int64_t count = random.integer(0, 5) == 0 ? 0 : sizes[random.integer(0, 8)];
    const std::int64_t rows = random.integer(1, 3), distinct = random.integer(0, 1) == 0 ? 5 : 120;
    const bool shared = random.integer(0, 1) != 0;
    OpCase made;
    made.op = OpInstance(Searchsorted{.right = random.integer(0, 1) != 0});
    const Shape row = shared ? Shape({size}, dtype) : Shape({rows, size}, dtype);
    const HostBuffer values =
        count == 0 || random.integer(0, 1) == 0
            ? random.uniform(Shape({rows, count}, f32), 0, static_cast<double>(distinct)).to(dtype)
            : ascending_rows(random, Shape({rows, count}, dtype), distinct);
    if (is_floating(dtype) && count > 2) {  // in the middle, where others ascend
      store_double(dtype, values.view().data + block_bytes(dtype),
                   std::numeric_limits<double>::quiet_NaN());
    }
    made.inputs = {ascending_rows(random, row, distinct), values};
    for (const Order order : {Order::dense, Order::permuted, Order::reversed}) {
      INFO("case " << i << ": " << to_string(row) << ", " << to_string(values.shape()));
      const auto threads = static_cast<int>(random.integer(1, 3));
      expect_close(run_case(made, {make_backend("cpu", {.threads = threads})}, order),
                   run_case(made, {make_backend("reference", {})}, Order::dense), 0, 0);
    }
  }
}

}  // namespace
}  // namespace tenon::testing
