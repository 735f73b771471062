// The k largest of rows longer than what a kernel processes at once.
#include "run_case.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/topk.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

/// `op` of x on the CPU backend and by its definition: the same integers.
void check(const Topk& op, const HostBuffer& x) {
  register_cpu_backend();
  register_reference_backend();
  const auto run = [&](const std::string& backend) {
    OpCase op_case;
    op_case.op = OpInstance(op);
    op_case.inputs = {x};
    return run_case(op_case, {make_backend(backend, {.threads = 3})}, Order::dense);
  };
  const HostBuffer got = run("cpu"), want = run("reference");
  REQUIRE(got.shape() == want.shape());
  CHECK(std::ranges::equal(got.values<std::int32_t>(), want.values<std::int32_t>()));
}

TEST_CASE("topk: long rows, with ties, NaN and infinities, in every order") {
  Random random;
  constexpr std::int64_t size = 2900;
  enum class Order { mixed, rising, falling };
  for (const Order order : {Order::mixed, Order::rising, Order::falling}) {
    for (const std::int64_t distinct : {7, 1000000}) {
      for (const bool special : {false, true}) {
        HostBuffer x = random.uniform(Shape({3, size}, f32));
        for (std::int64_t row = 0; row < 3; ++row) {
          const auto values = x.mutable_values<float>().subspan(
              static_cast<std::size_t>(row * size), static_cast<std::size_t>(size));
          for (float& v : values) v = static_cast<float>(random.integer(-distinct / 2, distinct));
          if (order != Order::mixed) std::ranges::sort(values);
          if (order == Order::falling) std::ranges::reverse(values);
          for (int i = 0; special && i < 40; ++i) {
            const float specials[] = {std::numeric_limits<float>::quiet_NaN(),
                                      std::numeric_limits<float>::infinity(),
                                      -std::numeric_limits<float>::infinity(), -0.0f};
            values[static_cast<std::size_t>(random.integer(0, size - 1))] =
                specials[random.integer(0, 3)];
          }
        }
        for (const std::int64_t k : {1, 3, 40, 56, 57, 100, 128, 129, 600, 2899, 2900}) {
          INFO("k " << k << ", order " << static_cast<int>(order) << ", distinct " << distinct);
          check({.k = k, .axis = 1}, x);
        }
        check({.k = 2, .axis = 0}, x);
      }
    }
  }
}

TEST_CASE("topk: rows around the number of groups that are compared") {
  Random random;
  for (const std::int64_t size : {129, 255, 256, 257, 319, 320, 321, 512, 1000}) {
    for (const std::int64_t distinct : {2, 100, 1000000}) {
      HostBuffer x = random.uniform(Shape({4, size}, f32));
      for (float& v : x.mutable_values<float>())
        v = static_cast<float>(random.integer(-distinct, distinct));
      const std::span<float> values = x.mutable_values<float>();
      const auto row = [&](std::int64_t i) {
        return values.subspan(static_cast<std::size_t>(i * size), static_cast<std::size_t>(size));
      };
      std::ranges::fill(row(0), -std::numeric_limits<float>::infinity());
      std::ranges::fill(row(1).subspan(60), -std::numeric_limits<float>::infinity());
      row(2)[5] = row(2).back() = std::numeric_limits<float>::quiet_NaN();
      for (const std::int64_t k : {56, 57, 99, 100, 128, 129}) {
        INFO("size " << size << ", k " << k << ", distinct " << distinct);
        check({.k = k, .axis = 1}, x);
      }
    }
  }
}

TEST_CASE("topk: long rows of other types") {
  Random random;
  for (const DType dtype : {f16, bf16, f64, i8, i32, i64}) {
    const HostBuffer x = random.uniform(Shape({2, 1700}, dtype), -100, 100);
    for (const std::int64_t k : {1, 50, 900}) {
      INFO(name(dtype) << ", k " << k);
      check({.k = k, .axis = 1}, x);
    }
  }
}

}  // namespace
}  // namespace tenon::testing
