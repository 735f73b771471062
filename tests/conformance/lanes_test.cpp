// Ops along one axis, or some, of arrays of any rank: read lane by lane, as rows or as columns, whatever their memory is like.
#include "run_case.hpp"
#include "support/op_testing.hpp"
#include "support/rounds.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/ops/cumsum.hpp>
#include <tenon/ops/cumulative.hpp>
#include <tenon/ops/log_softmax.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/softmax.hpp>

#include <cmath>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// The same NaN and infinities, and else the same numbers but for roundings of the type.
void check_lanes(const OpInstance& op, const HostBuffer& x) {
  check_on_threads(op, {x}, [](const HostBuffer& got, const HostBuffer& want) {
    const DType dtype = got.shape().dtype();
    const double rounding = dtype == bf16 ? 1e-2 : dtype == f16 ? 2e-3 : 1e-5;
    const HostBuffer a = got.to(f64), b = want.to(f64);
    std::size_t differ = 0;
    for (std::size_t i = 0; i < a.values<double>().size(); ++i) {
      const double value = a.values<double>()[i], wanted = b.values<double>()[i];
      const bool same = std::isfinite(wanted)
                            ? value == Approx(wanted).epsilon(rounding).margin(1e-4)
                        : std::isnan(wanted) ? std::isnan(value)
                                             : value == wanted;
      differ += same ? 0 : 1;
    }
    CHECK(differ == 0);
  });
}

TEST_CASE("lanes: along any axis of any array, they are the reference's") {
  register_cpu_backend();
  register_reference_backend();
  Random random;
  const auto below = [&](std::int64_t end) { return random.integer(0, end - 1); };
  const DType types[] = {f32, f64, f16, bf16, i64, i32, u8, f32};
  for (int round = 0; round < rounds(150); ++round) {
    const std::int64_t sizes[] = {1, 2, 3, 5, 8, 17, 33, 64, 70, 130};
    std::vector<std::int64_t> dims;
    std::int64_t elements = 1;
    for (std::int64_t rank = 1 + below(4); rank > 0; --rank) {
      dims.push_back(sizes[below(10)]);
      elements *= dims.back();
      if (elements > 6000) dims.back() = 2;
    }
    if (round % 25 == 7) dims[0] = 0;
    const DType dtype = types[below(8)];
    HostBuffer x = random.uniform(Shape(std::span<const std::int64_t>(dims), f32), -3, 3);
    if (is_floating(dtype) && round % 3 == 0 && !x.values<float>().empty()) {
      const float special[] = {std::nanf(""), HUGE_VALF, -HUGE_VALF};
      for (float& v : x.mutable_values<float>()) {
        if (below(200) == 0) v = special[below(3)];
      }
    }
    x = x.to(dtype);
    const std::int64_t axis = below(x.shape().rank());
    std::vector<std::int64_t> axes{axis};
    if (axis > 0 && below(2) == 0) axes.insert(axes.begin(), axis - 1);
    const IntList folded = axes.size() == 1 ? IntList{axes[0]} : IntList{axes[0], axes[1]};
    INFO("round " << round << ", axis " << axis);
    check_lanes(OpInstance(Sum{{folded}}), x);
    check_lanes(OpInstance(Prod{{folded}}), x);
    if (x.shape().elements() > 0) {
      check_lanes(OpInstance(Max{{folded}}), x);
      check_lanes(OpInstance(Min{{folded}}), x);
    }
    check_lanes(OpInstance(Cumsum{axis}), x);
    check_lanes(OpInstance(Cumprod{{axis}}), x);
    check_lanes(OpInstance(Cummax{{axis}}), x);
    check_lanes(OpInstance(Cummin{{axis}}), x);
    if (is_floating(dtype)) {
      check_lanes(OpInstance(Softmax{axis}), x);
      check_lanes(OpInstance(LogSoftmax{axis}), x);
    }
  }
}

}  // namespace
}  // namespace tenon::testing
