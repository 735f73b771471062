// Matrix products in f64 and in integers on the CPU backend against the reference: sizes around the
// tiles, the packed depth and the parts that threads share, and batches.
#include "run_case.hpp"
#include "support/op_testing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/matmul.hpp>

#include <string>
#include <vector>

namespace tenon::testing {
namespace {

TEST_CASE("matmul: f64 and integers on the CPU backend") {
  register_cpu_backend();
  register_reference_backend();
  const std::vector<BackendPtr> cpu{make_backend("cpu", {.threads = 2}), make_backend("reference")};
  Random random;
  const auto check = [&](const Shape& a, const Shape& b) {
    INFO(to_string(a) << " by " << to_string(b));
    OpCase made;
    made.op = OpInstance(Matmul{});
    made.inputs = {random.uniform(a, -9, 9), random.uniform(b, -9, 9)};
    made.output = run_reference(made.op, made.inputs);
    const double tolerance = a.dtype() == f64    ? 1e-11
                             : a.dtype() == f32  ? 5e-3
                             : a.dtype() == f16  ? 4
                             : a.dtype() == bf16 ? 32
                                                 : 0;  // of sums of up to 81 k
    for (const Order order : {Order::dense, Order::permuted}) {
      std::vector<PlanReport::Part> parts;
      expect_close(run_case(made, cpu, order, &parts), made.output, tolerance, 0);
      for (const PlanReport::Part& part : parts) CHECK(part.backend == "cpu");
    }
  };
  for (const DType dtype : {f64, i32, i64, i8}) {
    for (const std::int64_t m : {1, 5, 97}) {
      for (const std::int64_t n : {1, 33, 261}) {
        for (const std::int64_t k : {0, 3, 257}) {
          check(Shape({m, k}, dtype), Shape({k, n}, dtype));
        }
      }
    }
    check(Shape({3, 1, 7, 9}, dtype), Shape({2, 9, 17}, dtype));
  }
  // By vectors, from which every result is summed without packing.
  for (const DType dtype : {f16, bf16, f32, f64, i32, i64}) {
    for (const std::int64_t size : {1, 3, 129, 300}) {
      for (const std::int64_t k : {0, 1, 31, 70, 513}) {
        check(Shape({size, k}, dtype), Shape({k, 1}, dtype));
        check(Shape({1, k}, dtype), Shape({k, size}, dtype));
      }
    }
    check(Shape({3, 1, 7, 90}, dtype), Shape({2, 90, 1}, dtype));
    check(Shape({3, 1, 1, 90}, dtype), Shape({2, 90, 70}, dtype));
  }
}

}  // namespace
}  // namespace tenon::testing
