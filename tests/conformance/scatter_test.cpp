// Scattering more elements than a kernel processes at once, to places divided among threads.
#include "run_case.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/scatter.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::testing {
namespace {

HostBuffer run_scatter(const OpCase& op_case, const std::string& backend, int threads,
                       Order order = Order::dense) {
  register_cpu_backend();
  register_reference_backend();
  return run_case(op_case, {make_backend(backend, {.threads = threads})}, order);
}

TEST_CASE("scatter: many elements to places divided among threads") {
  Random random;
  for (const DType index_type : {i32, i64}) {
    for (const std::string_view mode : {"set", "add", "min"}) {
      OpCase op_case;
      op_case.op = OpInstance(Scatter{.axis = 0, .mode = mode});
      op_case.inputs = {random.uniform(Shape({101}, i32), -9, 9),
                        random.uniform(Shape({3001}, index_type), 0, 101),
                        random.uniform(Shape({3001}, i32), -9, 9)};
      const HostBuffer want = run_scatter(op_case, "reference", 1);
      for (const int threads : {1, 2, 3, 7}) {
        for (const Order order : {Order::dense, Order::reversed}) {
          INFO(mode << ", " << threads << " threads");
          expect_close(run_scatter(op_case, "cpu", threads, order), want, 0, 0);
        }
      }
    }
  }
}

TEST_CASE("scatter: sums and products of halves are rounded once") {
  for (const DType dtype : {f16, bf16}) {
    for (const std::string_view mode : {"add", "mul"}) {
      const bool adds = mode == "add";
      Random random;
      const auto filled = [&](std::int64_t size, double value) {
        return random.uniform(Shape({size}, f32), value, value).to(dtype);
      };
      const std::int64_t count = adds ? 4096 : 300;
      OpCase op_case;
      op_case.op = OpInstance(Scatter{.axis = 0, .mode = mode});
      op_case.inputs = {filled(2, adds ? 0 : 1.5), random.uniform(Shape({count}, i32), 0, 2),
                        filled(count, adds ? 1 : 1.0078125)};
      const HostBuffer want = run_scatter(op_case, "reference", 1);
      for (const int threads : {1, 3}) {
        INFO(name(dtype) << ", " << mode << ", " << threads << " threads");
        expect_close(run_scatter(op_case, "cpu", threads), want, 0,
                     dtype == f16 ? 0x1p-11 : 0x1p-8);
      }
    }
  }
}

TEST_CASE("scatter: one index of many out of range") {
  Random random;
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{101}, INT64_MIN, INT64_MAX}) {
    OpCase op_case;
    op_case.op = OpInstance(Scatter{.axis = 0, .mode = "add"});
    op_case.inputs = {random.uniform(Shape({101}, f32)), random.uniform(Shape({3001}, i64), 0, 101),
                      random.uniform(Shape({3001}, f32))};
    op_case.inputs[1].mutable_values<std::int64_t>()[2999] = bad;
    for (const int threads : {1, 3}) {
      INFO(bad << ", " << threads << " threads");
      expect_error(Errc::out_of_range, [&] { run_scatter(op_case, "cpu", threads); });
    }
  }
}

}  // namespace
}  // namespace tenon::testing
