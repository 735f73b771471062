// Sorting of lanes that are longer than what a kernel processes at once.
#include "run_case.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/sort.hpp>

#include <limits>
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
  for (const DType dtype : {f32, f16, bf16, f64, i8, i32, i64, u8, u16, u32}) {
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

}  // namespace
}  // namespace tenon::testing
