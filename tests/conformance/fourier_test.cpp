// Transforms of every size that the kernels treat differently: along vectors, of lanes side by side, and by a chirp;
// in every layout, whole vectors of lanes and a rest, and the same bits whatever the number of threads.
#include "run_case.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/fft.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

void check_transform(const OpInstance& op, const HostBuffer& x) {
  for (const Order order : {Order::dense, Order::permuted, Order::reversed}) {
    OpCase op_case;
    op_case.op = op;
    op_case.inputs = {x};
    const HostBuffer want = run_case(op_case, {make_backend("reference")}, order);
    const HostBuffer exact = want.to(f64);
    double most = 1e-30;
    for (const double value : exact.values<double>()) most = std::max(most, std::fabs(value));
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 7}) {
      INFO(to_string(op) << " of " << to_string(x.shape()) << ", order " << static_cast<int>(order)
                         << ", " << threads << " threads");
      const HostBuffer got = run_case(op_case, {make_backend("cpu", {.threads = threads})}, order);
      REQUIRE(got.shape() == want.shape());
      std::vector<std::byte> bytes(static_cast<std::size_t>(got.shape().bytes()));
      std::memcpy(bytes.data(), got.view().data, bytes.size());
      if (first.empty()) first = bytes;
      CHECK(bytes == first);
      const HostBuffer values = got.to(f64);
      double apart = 0;
      for (std::size_t i = 0; i < exact.values<double>().size(); ++i) {
        const double difference = values.values<double>()[i] - exact.values<double>()[i];
        apart = std::isnan(difference) ? difference : std::max(apart, std::fabs(difference));
        if (std::isnan(apart)) break;
      }
      // In units of the largest result: rounding grows with the logarithm of the size.
      CHECK(apart <= most * (x.shape().dtype() == f32 ? 1e-6 : 4e-15));
    }
  }
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
