// Transforms of every size that the kernels treat differently: along vectors, of lanes side by side, and by a chirp;
// in every layout, whole vectors of lanes and a rest, and the same bits whatever the number of threads.
#include "run_case.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/fft.hpp>

#include <cstdint>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

void check_transform(const OpInstance& op, const HostBuffer& x) {
  check_on_threads(op, {x}, [](const HostBuffer& got, const HostBuffer& want) {
    // Rounding grows with the logarithm of the size.
    CHECK(relative_difference(got, want) <= (got.shape().dtype() == f32 ? 1e-6 : 4e-15));
  });
}

TEST_CASE("transforms: every way to compute them") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  const auto values = [&](const Shape& shape, DType dtype) {
    return random.uniform(shape).to(dtype);
  };
  // 16 to 544: vectors of 2, 4, 8 and 16 along the lane, whole ones, half ones and a rest; 62, 74 and
  // 592: with a prime factor of 31 and 37; 45 and 1001: odd.
  EveryThird third;
  for (const std::int64_t n : {1, 2, 6, 16, 45, 62, 64, 74, 80, 136, 256, 272, 544, 592, 1001}) {
    if (third.skips()) continue;
    for (const std::int64_t lanes : {1, 19}) {
      for (const DType dtype : {f32, f64}) {
        const HostBuffer pairs = values(Shape({lanes, n, 2}, f32), dtype);
        check_transform(OpInstance(Fft{.axis = 1}), pairs);
        check_transform(OpInstance(Fft{.axis = 1, .inverse = true}), pairs);
        check_transform(OpInstance(Rfft{.axis = 1}), values(Shape({lanes, n}, f32), dtype));
        check_transform(OpInstance(Irfft{.axis = 1, .size = n}),
                        values(Shape({lanes, n / 2 + 1, 2}, f32), dtype));
        if (n > 300) continue;
        check_transform(OpInstance(Fft{.axis = 0, .inverse = true}),
                        values(Shape({n, lanes, 2}, f32), dtype));
        check_transform(OpInstance(Rfft{.axis = 0}), values(Shape({n, lanes}, f32), dtype));
        check_transform(OpInstance(Irfft{.axis = 0, .size = n}),
                        values(Shape({n / 2 + 1, lanes, 2}, f32), dtype));
      }
    }
  }
}

}  // namespace
}  // namespace tenon::testing
